package service

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/providers/memory"
)

// patience is how long a test waits for what must happen, glance for what must
// not.
const (
	patience = 20 * time.Second
	glance   = 50 * time.Millisecond
)

// limited is a listener with a limit of two, and what it accepts.
type limited struct {
	*limitedListener
	log      bytes.Buffer
	clock    *manual
	accepted chan net.Conn
	ended    chan error
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &limited{clock: &manual{System: clock.NewSystem()}, accepted: make(chan net.Conn), ended: make(chan error, 1)}
	l.limitedListener = limitConnections(inner, 2, patience, l.clock, slog.New(slog.NewTextHandler(&l.log, nil)))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				l.ended <- err
				return
			}
			l.accepted <- conn
		}
	}()
	return l
}

// dial connects and waits until the connection lies in the listener's queue,
// which is when connecting returns.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func (l *limited) next(t *testing.T) net.Conn {
	t.Helper()
	select {
	case conn := <-l.accepted:
		return conn
	case <-time.After(patience):
		t.Fatal("no connection is accepted")
		return nil
	}
}

// over reports whether the other side has closed the connection.
func over(conn net.Conn, within time.Duration) bool {
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

func TestTheConnectionThatIsIdleLongestGivesWay(t *testing.T) {
	l := newLimited(t)
	address := l.Addr().String()
	a := dial(t, address)
	first := l.next(t)
	b := dial(t, address)
	second := l.next(t)
	// The first one worked in between: the second is idle longer.
	l.state(first, http.StateActive)
	l.state(first, http.StateIdle)
	dial(t, address)
	third := l.next(t)
	if !over(b, patience) || over(a, glance) {
		t.Fatal("another connection than the one that was idle longest was closed")
	}
	// The displaced one has no place to give back, nor to be displaced from.
	_ = second.Close()
	l.state(second, http.StateIdle)
	if l.open != 2 || l.idle.Len() != 2 {
		t.Errorf("%d connections are open, %d of them idle", l.open, l.idle.Len())
	}
	if third.Close() != nil || first.Close() != nil || l.open != 0 || l.idle.Len() != 0 {
		t.Errorf("%d places are taken by nobody", l.open)
	}
}

func TestConnectionsWaitWhileNoneIsIdle(t *testing.T) {
	l := newLimited(t)
	address := l.Addr().String()
	a, b := dial(t, address), dial(t, address)
	first, second := l.next(t), l.next(t)
	// One has a request under way, on the other a header begins to come.
	l.state(first, http.StateActive)
	if _, err := b.Write([]byte("G")); err != nil {
		t.Fatal(err)
	}
	if first.RemoteAddr().String() == b.LocalAddr().String() {
		first, second = second, first
	}
	l.state(first, http.StateActive)
	if _, err := io.ReadFull(second, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	waiting := dial(t, address)
	select {
	case <-l.accepted:
		t.Fatal("a third connection beside two that work")
	case <-time.After(glance):
	}
	if over(a, glance) || over(b, glance) {
		t.Fatal("a connection that works was closed")
	}
	// One becomes idle: the one that waits takes its place.
	l.state(first, http.StateIdle)
	third := l.next(t)
	if third.RemoteAddr().String() != waiting.LocalAddr().String() || !over(a, patience) {
		t.Error("the idle one did not give way to the one that waited")
	}
	// A listener that is full ends as well, and with it the one that waits.
	l.state(third, http.StateActive)
	last := dial(t, address)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-l.ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the listener does not end")
	}
	if !over(last, patience) {
		t.Error("the one that waited is open")
	}
}

func TestAFullHouseIsToldOnceAMinute(t *testing.T) {
	l := newLimited(t)
	for range 5 {
		dial(t, l.Addr().String())
		l.next(t)
	}
	if n := strings.Count(l.log.String(), "limit=2"); n != 1 {
		t.Errorf("%d lines", n)
	}
	l.mu.Lock() // under which the clock is read
	l.clock.now.Mono += fullPause
	l.mu.Unlock()
	dial(t, l.Addr().String())
	l.next(t)
	if n := strings.Count(l.log.String(), "limit=2"); n != 2 || !strings.Contains(l.log.String(), "notTold=2") {
		t.Errorf("%d lines:\n%s", n, l.log.String())
	}
}

// Idle clients up to the limit do not keep a health check out, and what stands
// behind TLS is seen as such.
func TestIdleClientsKeepNobodyOut(t *testing.T) {
	donor := httptest.NewTLSServer(nil)
	defer donor.Close()
	for name, config := range map[string]*tls.Config{"http": nil, "https": donor.TLS} {
		t.Run(name, func(t *testing.T) {
			o := options.Default()
			o.MaxConnections, o.ShutdownGracePeriod = 2, time.Second
			svc, err := New(Config{Table: memory.New(memory.Options{}).Table(), Blobs: memory.New(memory.Options{}).Blobs(), Options: o, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			secure := make(chan bool, 10)
			front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				secure <- r.TLS != nil
				svc.Handler().ServeHTTP(w, r)
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- svc.serve(ctx, l, config, front) }()
			for range 5 {
				conn := dial(t, l.Addr().String())
				if config != nil {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: lattice.test\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatal(resp, err)
				}
				if got := <-secure; got != (config != nil) {
					t.Errorf("the handler sees TLS: %v", got)
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStrayBytesKeepNobodyOutForLong: an old client ends a request with a line too
// many, an evil one sends a byte and is silent.
func TestStrayBytesKeepNobodyOutForLong(t *testing.T) {
	o := options.Default()
	o.MaxConnections, o.RequestTimeout, o.RoutingRetryBudget, o.ShutdownGracePeriod = 1, time.Second, time.Second, time.Second
	m := memory.New(memory.Options{})
	svc, err := New(Config{Table: m.Table(), Blobs: m.Blobs(), Options: o, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- svc.Serve(ctx, l) }()
	for range 2 {
		conn := dial(t, l.Addr().String())
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: lattice.test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// dial gives it much less time than an idle connection has.
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		if _, err := io.WriteString(conn, "\r\n"); err != nil {
			t.Fatal(err)
		}
		<-time.After(glance) // it is read by then
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestHalfOfALimitedConnectionCanBeClosed(t *testing.T) {
	l := newLimited(t)
	conn := dial(t, l.Addr().String())
	half, ok := l.next(t).(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		t.Fatal("the half cannot be closed")
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read %v", err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Errorf("the other half: %v", err)
	}
}
