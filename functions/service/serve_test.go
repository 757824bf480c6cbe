package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

// gate is a table whose reads wait until they are let go, or cancelled.
type gate struct {
	store.Table
	entered, open chan struct{}
	once          chan struct{}
}

func newGate() *gate {
	g := &gate{Table: memory.New(memory.Options{}).Table(), entered: make(chan struct{}), open: make(chan struct{}), once: make(chan struct{}, 1)}
	g.once <- struct{}{}
	return g
}

func (g *gate) Get(ctx context.Context, partition, key string) (store.Row, error) {
	if err := g.wait(ctx); err != nil {
		return store.Row{}, err
	}
	return g.Table.Get(ctx, partition, key)
}

func (g *gate) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	if err := g.wait(ctx); err != nil {
		return store.Page{}, err
	}
	return g.Table.Range(ctx, partition, q)
}

func (g *gate) wait(ctx context.Context) error {
	select {
	case <-g.once:
		close(g.entered)
	default:
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
}

// running is a service under Serve.
type running struct {
	url  string
	stop context.CancelFunc
	done chan error
}

func serve(t *testing.T, g *gate, grace time.Duration) *running {
	t.Helper()
	o := options.Default()
	o.ShutdownGracePeriod = grace
	svc, err := New(Config{Table: g, Blobs: memory.New(memory.Options{}).Blobs(), Options: o, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{"http://" + l.Addr().String(), stop, make(chan error, 1)}
	go func() { r.done <- svc.Serve(ctx, l) }()
	t.Cleanup(stop)
	return r
}

// ask makes a request in the background.
func (r *running) ask() chan string {
	answered := make(chan string, 1)
	go func() {
		resp, err := http.Get(r.url + "/v1/trees")
		if err != nil {
			answered <- "error"
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			answered <- "error"
			return
		}
		answered <- string(body)
	}()
	return answered
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	g := newGate()
	r := serve(t, g, time.Minute)
	answered := r.ask()
	<-g.entered
	r.stop()
	close(g.open)
	if got := <-answered; got != `{"trees":[]}` {
		t.Errorf("the running request got %q", got)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if _, err := http.Get(r.url + "/healthz"); err == nil {
		t.Error("the service still answers")
	}
}

func TestShutdownCutsOffWhatOverstays(t *testing.T) {
	g := newGate()
	r := serve(t, g, time.Millisecond)
	answered := r.ask()
	<-g.entered
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if got := <-answered; strings.Contains(got, "trees\":[]") {
		t.Errorf("the request that overstayed got %q", got)
	}
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	svc, err := New(Config{Table: newGate(), Blobs: memory.New(memory.Options{}).Blobs(), Options: options.Default()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := svc.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v", err)
	}
}

func TestHeadersOverTheLimitAreRefused(t *testing.T) {
	g := newGate()
	close(g.open)
	r := serve(t, g, time.Second)
	req, err := http.NewRequest(http.MethodGet, r.url+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for size, status := range map[int64]int{options.Default().MaxHeaderBytes: 413, 8 * options.Default().MaxHeaderBytes: 431} {
		req.Header.Set("X-Filler", string(bytes.Repeat([]byte("x"), int(size))))
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != status {
			t.Errorf("header of %d bytes: %d, want %d", size, resp.StatusCode, status)
		}
	}
}
