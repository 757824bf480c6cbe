package funcshost

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

// Options say what to run and how the platform behaves.
type Options struct {
	// App is the folder of the function app.
	App string
	// Program is the custom handler. Empty is the one in App that host.json names.
	Program string
	// Env are variables for it, on top of an environment without settings.
	Env []string
	// Limit is when the platform's front end gives up; 0 is 230 s.
	Limit time.Duration
	// RefuseChunked makes chunked requests fail with 500; otherwise their bodies
	// get lost. Versions of the host differ.
	RefuseChunked bool
	// Bare leaves the platform's front end out, as on a developer's machine: none
	// of its headers.
	Bare bool
	// LoseReply, if set, is asked once for each answer of the handler whether it
	// gets lost: the caller gets a 500 then.
	LoseReply func() bool
	// Key is the function key, for functions whose level asks for one.
	Key string
}

const (
	// startTimeout bounds the wait for the handler's first answer.
	startTimeout = 60 * time.Second
	// pollInterval is how often the host asks whether the handler listens.
	pollInterval = 25 * time.Millisecond
	// maxStarts bounds how often a handler is started: one that does not even
	// begin would be for ever.
	maxStarts = 100
)

// Host is a running host with its handler.
type Host struct {
	*front
	// URL is where callers find it, without a trailing slash.
	URL string

	tb   testing.TB
	exec string

	mu      sync.Mutex
	handler *running.Process
	starts  int
	// given is closed when the host has given the handler up.
	given  chan struct{}
	halted bool
}

// Start runs the app until the test ends, and returns when its handler listens.
// A handler that ends is started again, on the same port, until Stop.
func Start(tb testing.TB, o Options) *Host {
	tb.Helper()
	a, err := readApp(o.App)
	if err != nil {
		tb.Fatal(err)
	}
	h := &Host{tb: tb, exec: o.Program, given: make(chan struct{}), front: newFront(a, freeAddress(tb), o)}
	if h.exec == "" {
		h.exec = filepath.Join(o.App, a.program)
	}
	h.URL = serve(tb, h.front)
	if err := h.launch(); err != nil {
		tb.Fatal(err)
	}
	h.AwaitHandler()
	return h
}

// Before puts a host in front of a handler that runs already, at an address of
// host and port, and returns where callers find it.
func Before(tb testing.TB, o Options, address string) (url string) {
	tb.Helper()
	a, err := readApp(o.App)
	if err != nil {
		tb.Fatal(err)
	}
	return serve(tb, newFront(a, address, o))
}

func serve(tb testing.TB, f *front) (url string) {
	server := httptest.NewUnstartedServer(f)
	server.Config.MaxHeaderBytes = maxHeaderBytes
	server.Start()
	tb.Cleanup(server.Close)
	return server.URL
}

// freeAddress returns an address at which nobody listens now.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// launch starts a handler, unless the host is halted, and sees to the next one.
func (h *Host) launch() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.halted {
		return nil
	}
	if h.starts == maxStarts {
		return fmt.Errorf("it ended %d times; the last one said\n%s", h.starts, h.handler.Output())
	}
	_, port, err := net.SplitHostPort(h.address)
	if err != nil {
		return err
	}
	cmd := exec.Command(h.exec)
	cmd.Dir = h.options.App
	cmd.Env = append(running.Environment(), append(h.options.Env, "FUNCTIONS_CUSTOMHANDLER_PORT="+port, "FUNCTIONS_WORKER_RUNTIME=custom")...)
	p, err := running.Supervise(h.tb, cmd)
	if err != nil {
		return err
	}
	// Registered last and therefore run first: nothing starts any more when
	// processes are killed.
	h.tb.Cleanup(h.halt)
	h.handler = p
	h.starts++
	go func() {
		<-p.Exited()
		if err := h.launch(); err != nil {
			h.tb.Errorf("start the handler again: %v", err)
			close(h.given)
		}
	}()
	return nil
}

func (h *Host) halt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.halted = true
}

// Handler returns the process that runs now, or ran last.
func (h *Host) Handler() *running.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handler
}

// Starts counts the handlers started so far.
func (h *Host) Starts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts
}

// AwaitHandler returns when the handler answers, as the host waits for it: any
// answer will do. The test fails if none comes.
func (h *Host) AwaitHandler() {
	h.tb.Helper()
	deadline, tick := time.After(startTimeout), time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		resp, err := h.client.Get("http://" + h.address + "/")
		if err == nil {
			resp.Body.Close()
			return
		}
		select {
		case <-tick.C:
		case <-h.given:
			h.tb.FailNow()
		case <-deadline:
			h.tb.Fatalf("the handler does not answer: %v\n%s", err, h.Handler().Output())
		}
	}
}

// Kill ends the handler as a crash would; the host starts another.
func (h *Host) Kill() { h.Handler().Kill() }

// Stop ends host and handler as a deployment does: the handler is asked to end
// and may finish what it has begun. It must end well.
func (h *Host) Stop() error {
	h.halt()
	return h.Handler().Stop()
}
