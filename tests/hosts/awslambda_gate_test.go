package hosts

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// tableGate stands between a function and the table service. It passes every call on
// as it is, and holds one back when told to.
type tableGate struct {
	// tableURL is the address of the gate, with the account.
	tableURL string
	target   string

	mu    sync.Mutex
	calls int
	armed *hold
}

// hold is a call that is held back.
type hold struct {
	matches func(*http.Request) bool
	// skip calls that match are let through first.
	skip int
	// applied holds the answer back instead of the call.
	applied bool
	// all holds every further call as well.
	all     bool
	once    sync.Once
	reached chan struct{}
	release chan struct{}
}

// transactions match what changes the table.
func transactions(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/Tables")
}

func queries(r *http.Request) bool { return r.Method == http.MethodGet }

func (c *cloud) gate(t *testing.T) *tableGate {
	t.Helper()
	at, err := url.Parse(c.server.TableURL())
	if err != nil {
		t.Fatal(err)
	}
	g := &tableGate{target: at.Scheme + "://" + at.Host}
	server := httptest.NewServer(g)
	t.Cleanup(func() {
		g.arm(nil)
		server.Close()
	})
	g.tableURL = server.URL + at.Path
	return g
}

// arm holds the next call that matches; nil holds none, and lets go what is held.
func (g *tableGate) arm(h *hold) *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.armed != nil {
		g.armed.let()
	}
	if g.armed = h; h != nil {
		h.reached, h.release = make(chan struct{}), make(chan struct{})
	}
	return h
}

// let lets the call go.
func (h *hold) let() { h.once.Do(func() { close(h.release) }) }

// await returns when the call is there.
func (h *hold) await(t *testing.T) {
	t.Helper()
	select {
	case <-h.reached:
	case <-time.After(30 * time.Second):
		t.Fatal("no call to the storage came that was to be held")
	}
}

// seen returns how many calls came so far.
func (g *tableGate) seen() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// take returns the hold that is meant for a call, nil if there is none.
func (g *tableGate) take(r *http.Request) *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	h := g.armed
	if h == nil || !h.matches(r) {
		return nil
	}
	if h.skip > 0 {
		h.skip--
		return nil
	}
	if !h.all {
		g.armed = nil
	}
	select {
	case <-h.reached:
	default:
		close(h.reached)
	}
	return h
}

// ServeHTTP implements http.Handler. A call is passed on even if its sender has
// given it up: the network does not know.
func (g *tableGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h := g.take(r)
	if h != nil && !h.applied {
		<-h.release
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, g.target+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header = r.Header.Clone()
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if h != nil && h.applied {
		<-h.release
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(got)
}
