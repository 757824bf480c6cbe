package hosts

import (
	"context"
	"io"
	"net"
	"net/url"
	"regexp"
	"sync"
	"testing"
)

// relay stands between a process and a server. It can be closed, so that
// connections are refused, and hold back what is sent.
type relay struct {
	t  *testing.T
	to string
	at string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	// open is closed while nothing is held back; held counts what waits.
	open chan struct{}
	held int
}

// newRelay is closed until it is opened.
func newRelay(t *testing.T, to string) *relay {
	open := make(chan struct{})
	close(open)
	r := &relay{t: t, to: to, at: "127.0.0.1:0", conns: map[net.Conn]bool{}, open: open}
	r.Open() // for an address
	r.Close()
	t.Cleanup(func() {
		r.Release()
		r.Close()
	})
	return r
}

// Open takes connections.
func (r *relay) Open() {
	l, err := net.Listen("tcp", r.at)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.at = l, l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
}

// Close refuses connections and breaks those that are open.
func (r *relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener.Close()
	for conn := range r.conns {
		conn.Close()
	}
}

// Hold keeps back what the process sends from now on.
func (r *relay) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// Release lets it go.
func (r *relay) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

// Held counts the connections whose bytes are kept back.
func (r *relay) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

func (r *relay) serve(from net.Conn) {
	to, err := net.Dial("tcp", r.to)
	if err != nil {
		from.Close()
		return
	}
	r.mu.Lock()
	r.conns[from], r.conns[to] = true, true
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(from, to) // an end of either is the end of both
		from.Close()
	}()
	_, _ = io.Copy(gate{r, to}, from)
	to.Close()
}

// gate is a connection to the server that waits while the relay holds.
type gate struct {
	r *relay
	net.Conn
}

// Write implements io.Writer.
func (g gate) Write(p []byte) (int, error) {
	g.r.mu.Lock()
	open := g.r.open
	g.r.held++
	g.r.mu.Unlock()
	<-open
	g.r.mu.Lock()
	g.r.held--
	g.r.mu.Unlock()
	return g.Conn.Write(p)
}

// ReadFrom hides that of the connection, which would not wait.
func (g gate) ReadFrom(from io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{g}, from)
}

var endpoint = regexp.MustCompile(`(Blob|Table)Endpoint=([^;]+)`)

// relayed replaces the endpoints of a connection string by relays.
func relayed(t *testing.T, connection string) (string, []*relay) {
	t.Helper()
	var relays []*relay
	changed := endpoint.ReplaceAllStringFunc(connection, func(part string) string {
		found := endpoint.FindStringSubmatch(part)
		address, err := url.Parse(found[2])
		if err != nil {
			t.Fatal(err)
		}
		r := newRelay(t, address.Host)
		relays = append(relays, r)
		address.Host = r.at
		return found[1] + "Endpoint=" + address.String()
	})
	if len(relays) != 2 {
		t.Fatalf("%d endpoints in the connection string", len(relays))
	}
	return changed, relays
}

// each does the same with all relays.
func each(relays []*relay, do func(*relay)) {
	for _, r := range relays {
		do(r)
	}
}

// dials reports whether somebody listens at an address.
func dials(ctx context.Context, address string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
