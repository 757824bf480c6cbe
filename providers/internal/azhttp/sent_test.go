package azhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// transporter adapts a function.
type transporter func(*http.Request) (*http.Response, error)

func (f transporter) Do(r *http.Request) (*http.Response, error) { return f(r) }

// write makes one PUT and returns what the contract says of its failure.
func write(t *testing.T, transport interface {
	Do(*http.Request) (*http.Response, error)
}, url string) error {
	t.Helper()
	ctx, sent := Watch(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := Observe(transport).Do(req)
	if err == nil {
		resp.Body.Close()
		t.Fatal("the request succeeded")
	}
	return Lost(ctx, err, true, sent)
}

func TestRefusedConnectionHadNoEffect(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	listener.Close()
	if err := write(t, NewTransport(), url); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v, want unavailable", err)
	}
}

func TestConnectionBrokenAfterTheRequestLeavesItsOutcomeUnknown(t *testing.T) {
	url, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	if err := write(t, NewTransport(), url); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want outcome unknown", err)
	}
}

func TestConnectionBrokenOnReuseIsNotRepeated(t *testing.T) {
	var requests atomic.Int64
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	transport := NewTransport()
	get(t, transport, url)
	if err := write(t, transport, url); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want outcome unknown", err)
	}
	if got := requests.Load(); got != 2 {
		t.Fatalf("the write arrived %d times", got-1)
	}
}

func TestSilentTransportIsBelievedCapableOfAnything(t *testing.T) {
	fails := transporter(func(*http.Request) (*http.Response, error) { return nil, errors.New("lost") })
	if err := write(t, fails, "http://127.0.0.1"); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want outcome unknown", err)
	}
}

func TestCallThatNeverReachedTheTransportHadNoEffect(t *testing.T) {
	ctx, sent := Watch(t.Context())
	err := Lost(ctx, errors.New("no token"), true, sent)
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want unavailable", err)
	}
}

func TestLostReadIsUnavailable(t *testing.T) {
	ctx, sent := Watch(t.Context())
	sent.reached.Store(true)
	if err := Lost(ctx, errors.New("reset"), false, sent); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v, want unavailable", err)
	}
}

func TestLostNamesTheCauseOfAnEndedContext(t *testing.T) {
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	ctx, sent := Watch(ctx)
	cancel(cause)
	err := Lost(ctx, context.Canceled, false, sent)
	if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want both the cause and the cancellation", err)
	}
}

func TestUnwatchedRequestPassesThrough(t *testing.T) {
	url, _ := server(t, func(http.ResponseWriter, *http.Request) {})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := Observe(NewTransport()).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
