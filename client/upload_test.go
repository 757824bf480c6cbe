package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
)

// TestUploadEndsWithItsIterator: a service that answers before the end must
// not leave the caller's iterator running, nor take what it did not get for
// success.
func TestUploadEndsWithItsIterator(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"refusal": func(w http.ResponseWriter) { clienttest.Problem(w, 409, "tree_not_empty", "", 0) },
		"success": func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"acceptedEntryCount":1,"totalLiveKeys":1}`) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// The first read lets the client begin.
				_, _ = r.Body.Read(make([]byte, 1))
				answer(w)
			}))
			defer srv.Close()
			c, err := client.New(srv.URL, client.Options{})
			must(t, err)
			defer c.CloseIdle()
			runs, ended := 0, 0
			_, err = c.Tree("t").BulkStream(t.Context(), func(yield func(client.BulkEntry, error) bool) {
				runs++
				defer func() { ended++ }()
				for i := range 1 << 30 {
					if !yield(client.BulkEntry{Key: fmt.Sprintf("%09d", i), Value: make([]byte, 1000)}, nil) {
						return
					}
				}
			}, client.BulkOptions{})
			if err == nil || runs != 1 || ended != 1 {
				t.Fatalf("error %v, the iterator was run %d times and ended %d times", err, runs, ended)
			}
		})
	}
}

// TestRefusedConnectionLeavesTheIteratorAlone shows that a load is repeated
// only while nobody has seen any of it.
func TestRefusedConnectionLeavesTheIteratorAlone(t *testing.T) {
	fake := httptest.NewServer(clienttest.New())
	defer fake.Close()
	attempts := 0
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	c, err := client.New(fake.URL, client.Options{
		HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if attempts++; attempts <= 2 {
				_ = r.Body.Close()
				return nil, refusedConnection()
			}
			return base.RoundTrip(r)
		})},
		Retry: client.RetryPolicy{Base: time.Nanosecond, Cap: time.Nanosecond},
	})
	must(t, err)
	res, err := c.Tree("t").BulkLoad(t.Context(), of("a", "b"), client.BulkOptions{})
	if err != nil || attempts != 3 || res.Accepted != 2 {
		t.Fatalf("%+v, %v after %d attempts", res, err, attempts)
	}
}

// TestBegunUploadIsNotRepeated: the iterator may be one that runs once.
func TestBegunUploadIsNotRepeated(t *testing.T) {
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		_, _ = io.Copy(io.Discard, r.Body)
		clienttest.Problem(w, 503, "storage_throttled", "", 1)
	}))
	defer srv.Close()
	c, err := client.New(srv.URL, client.Options{})
	must(t, err)
	defer c.CloseIdle()
	_, err = c.Tree("t").BulkLoad(t.Context(), of("a"), client.BulkOptions{})
	wantErr(t, err, client.ErrStorageThrottled)
	if calls != 1 {
		t.Fatalf("%d calls", calls)
	}
}

// TestChunkIsSentAgainAsItWas: a lost acknowledgement must meet the same bytes.
func TestChunkIsSentAgainAsItWas(t *testing.T) {
	fake := clienttest.New()
	var bodies []string
	fake.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/chunks/") {
			return false
		}
		b, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(b)) || r.Header.Get("Content-Digest") == "" {
			t.Errorf("length %d, header %v, %v", r.ContentLength, r.Header, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		if bodies = append(bodies, string(b)); len(bodies) > 1 {
			return false
		}
		lost := fake.Intercept
		fake.Intercept = nil
		fake.ServeHTTP(httptest.NewRecorder(), r)
		fake.Intercept = lost
		clienttest.Problem(w, 502, "", "", 0)
		return true
	}
	srv := httptest.NewServer(fake)
	defer srv.Close()
	c, err := client.New(srv.URL, client.Options{Retry: client.RetryPolicy{Base: time.Nanosecond, Cap: time.Nanosecond}})
	must(t, err)
	defer c.CloseIdle()
	tree := c.Tree("t")
	_, _, err = tree.BeginBulkLoad(t.Context(), "op")
	must(t, err)
	ack, err := tree.AppendBulkLoad(t.Context(), "op", 0, chunk(t, "a", "b"), client.BulkOptions{})
	if err != nil || ack.Accepted != 2 || len(bodies) != 2 || bodies[0] != bodies[1] || fake.Len("t") != 2 {
		t.Fatalf("%+v, %v, %d bodies, %d keys", ack, err, len(bodies), fake.Len("t"))
	}
}

// TestOtherAcknowledgementsAreRefused: they are not of what was sent.
func TestOtherAcknowledgementsAreRefused(t *testing.T) {
	answer := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer srv.Close()
	c, err := client.New(srv.URL, client.Options{})
	must(t, err)
	defer c.CloseIdle()
	for _, answer = range []string{`{}`, `{"chunkIndex":2,"nextChunkIndex":3,"acceptedEntryCount":1}`, `{"chunkIndex":1,"nextChunkIndex":3,"acceptedEntryCount":1}`} {
		_, err = c.Tree("t").AppendBulkLoad(t.Context(), "op", 1, chunk(t, "a"), client.BulkOptions{})
		wantErr(t, err, client.ErrProtocol)
	}
	for _, answer = range []string{`{}`, `{"operationId":"other","status":"open"}`, `{"operationId":"op"}`} {
		_, err = c.Tree("t").BulkLoadState(t.Context(), "op")
		wantErr(t, err, client.ErrProtocol)
		_, _, err = c.Tree("t").BeginBulkLoad(t.Context(), "op")
		wantErr(t, err, client.ErrProtocol)
	}
}

func TestUploadIsCancelled(t *testing.T) {
	srv := httptest.NewServer(clienttest.New())
	defer srv.Close()
	c, err := client.New(srv.URL, client.Options{})
	must(t, err)
	defer c.CloseIdle()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Tree("t").BulkLoad(ctx, func(yield func(client.BulkEntry, error) bool) {
		for i := 0; ; i++ {
			if i == 1000 {
				cancel()
			}
			if !yield(client.BulkEntry{Key: fmt.Sprintf("%09d", i), Value: make([]byte, 1000)}, nil) {
				return
			}
		}
	}, client.BulkOptions{})
	wantErr(t, err, context.Canceled)
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func refusedConnection() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}
