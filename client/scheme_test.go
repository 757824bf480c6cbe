package client_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client"
)

// hangsUp is the address of a listener that ends every connection once it has
// read a little, as a service that speaks TLS does with plain HTTP.
func hangsUp(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 64<<10))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestAServiceThatHangsUpOnPlainHTTPIsAskedForTLS(t *testing.T) {
	const hint = "try https://"
	address := hangsUp(t)
	for scheme, hinted := range map[string]bool{"http://": true, "https://": false} {
		c, err := client.New(scheme+address, client.Options{Retry: client.RetryPolicy{Max: -1}})
		must(t, err)
		t.Cleanup(c.CloseIdle)
		_, err = c.Tree("t").Get(t.Context(), "k", client.ReadOptions{})
		if err == nil || strings.Contains(err.Error(), hint) != hinted {
			t.Errorf("%s: get: %v", scheme, err)
		}
		if hinted {
			wantErr(t, err, io.EOF)
		}
		for _, err := range c.Tree("t").Scan(t.Context(), client.Query{}) {
			if err == nil || strings.Contains(err.Error(), hint) != hinted {
				t.Errorf("%s: scan: %v", scheme, err)
			}
		}
	}
}
