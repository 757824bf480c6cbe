package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/client/clienttest"
)

// TestMain lets the test binary stand in for the command.
func TestMain(m *testing.M) {
	if os.Getenv("LATTICE_TEST_AS_COMMAND") == "1" {
		main()
	}
	os.Exit(m.Run())
}

// command is the tool in a process of its own.
func command(t *testing.T, url string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), "LATTICE_TEST_AS_COMMAND=1", "LATTICE_SERVER="+url)
	out := &bytes.Buffer{}
	c.Stdout, c.Stderr = out, out
	return c, out
}

func exitOf(t *testing.T, err error) int {
	t.Helper()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	if e == nil {
		return 0
	}
	return e.ExitCode()
}

// signalling runs an import of which each request from the nth on is given to
// on, together with the process.
func signalling(t *testing.T, nth int64, on func(r *http.Request, p *os.Process) bool) (code int, out string, s *clienttest.Server) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rows.ndjson")
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "{\"key\":\"k%06d\",\"text\":\"v\"}\n", i)
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var process *os.Process
	started := make(chan struct{})
	var n atomic.Int64
	s = clienttest.New()
	s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		<-started
		return n.Add(1) >= nth && on(r, process)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	c, buf := command(t, srv.URL, "import", "t", name, "--batch-size", "20")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	process = c.Process
	close(started)
	code = exitOf(t, c.Wait())
	return code, buf.String(), s
}

func TestFirstSignalStopsInGoodOrder(t *testing.T) {
	var once atomic.Bool
	code, out, s := signalling(t, 5, func(_ *http.Request, p *os.Process) bool {
		if once.CompareAndSwap(false, true) {
			if err := p.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	if code != 130 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	if want := fmt.Sprintf("--skip-rows=%d.", s.Len("t")); !strings.Contains(out, want) || s.Len("t") == 0 {
		t.Fatalf("lacks %q:\n%s", want, out)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	// Every request hangs and sends signals, again and again since two at the
	// same moment arrive as one: the first stops the reading, the second ends
	// the process although nothing was answered.
	code, out, s := signalling(t, 1, func(r *http.Request, p *os.Process) bool {
		// The server notices that the client is gone only once the body is read.
		_, _ = io.Copy(io.Discard, r.Body)
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for {
			if err := p.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
			select {
			case <-again.C:
			case <-r.Context().Done():
				return true
			}
		}
	})
	if code != 130 || strings.Contains(out, "Read ") || s.Len("t") != 0 {
		t.Fatalf("exit %d, %d keys; it did not exit at once:\n%s", code, s.Len("t"), out)
	}
}

func TestExitCodeAndOutputOfTheProcess(t *testing.T) {
	srv := httptest.NewServer(clienttest.New())
	t.Cleanup(srv.Close)
	for _, tc := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"set", "t", "k", "v"}, 0, "Created k"}, {[]string{"get", "t", "k"}, 0, "v"}, {[]string{"get", "t", "x"}, 1, "key_not_found"},
		{[]string{"nonsense"}, 2, "lattice: "}, {[]string{"--server", "http://127.0.0.1:1", "trees", "purge", "-y", "t"}, 3, ""}, {[]string{"--help"}, 0, "Usage: lattice"},
	} {
		c, out := command(t, srv.URL, tc.args...)
		if code := exitOf(t, c.Run()); code != tc.code || !strings.Contains(out.String(), tc.out) {
			t.Errorf("lattice %q: exit %d, want %d\n%s", tc.args, code, tc.code, out)
		}
	}
}
