package engines

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

const (
	host = "127.0.0.1"
	// startTimeout bounds the wait for the first answer, stopTimeout that for the
	// end of a server that was asked to end.
	startTimeout = 90 * time.Second
	stopTimeout  = 10 * time.Second
	pollInterval = 20 * time.Millisecond
	// attempts bounds how often a server is started when others take its port.
	attempts = 5
)

// server says how to run a program that must be told its port.
type server struct {
	name string
	// command returns what listens on the port.
	command func(port int) *exec.Cmd
	// ready returns nil once the server answers at the address to a password that
	// no other server has.
	ready func(ctx context.Context, addr string) error
}

// start runs the server on a free port and returns when it is ready. Between the
// choice of a port and its use somebody else may take it: then the program ends,
// and another one is tried.
func (s server) start(t testing.TB) (p *running.Process, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		port := freePort(t)
		addr = fmt.Sprintf("%s:%d", host, port)
		p, err := running.Supervise(t, s.command(port))
		if err == nil {
			err = s.await(ctx, p, addr)
		}
		if err == nil {
			showIfFailed(t, s.name, p)
			return p, addr
		}
		if attempt == attempts || ctx.Err() != nil {
			t.Fatalf("start %s: %v", s.name, err)
		}
		t.Logf("start %s again, attempt %d: %v", s.name, attempt, err)
	}
}

func (s server) await(ctx context.Context, p *running.Process, addr string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := s.ready(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("it ended while it started:\n%s", p.Output())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("it does not answer: %w:\n%s", err, p.Output())
		case <-tick.C:
		}
	}
}

// showIfFailed logs what the server said, should the test fail.
func showIfFailed(t testing.TB, name string, p *running.Process) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, p.Output())
		}
	})
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// password returns a secret that needs no quoting anywhere.
func password() string { return rand.Text() }
