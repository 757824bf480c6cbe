package cli

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// tool runs commands against one service.
type tool struct {
	t   *testing.T
	url string
	// tty makes every stream a terminal.
	tty bool
	ctx context.Context
	// tick runs a timer of the service, if it is the real one.
	tick func(timer string)
}

// fake starts a service from memory over a real listener.
func fake(t *testing.T) (*tool, *clienttest.Server) {
	t.Helper()
	t.Setenv("LATTICE_SERVER", "")
	t.Setenv("LATTICE_TOKEN", "")
	if err := os.Unsetenv("LATTICE_TOKEN"); err != nil {
		t.Fatal(err)
	}
	s := clienttest.New()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return &tool{t: t, url: srv.URL, ctx: t.Context()}, s
}

// run runs a command with what it reads on standard input.
func (l *tool) run(stdin string, args ...string) result {
	l.t.Helper()
	out, errs := &safeBuffer{}, &safeBuffer{}
	code := Run(l.ctx, append([]string{"--server", l.url}, args...), Console{
		In: strings.NewReader(stdin), Out: out, Err: errs, InTTY: l.tty, OutTTY: l.tty, ErrTTY: l.tty,
	})
	return result{code, out.String(), errs.String()}
}

// ok runs a command that must succeed, and returns its output.
func (l *tool) ok(stdin string, args ...string) string {
	l.t.Helper()
	r := l.run(stdin, args...)
	if r.code != ExitOK {
		l.t.Fatalf("lattice %q: exit %d\n%s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// fails runs a command that must end with a code, saying something.
func (l *tool) fails(code int, says, stdin string, args ...string) result {
	l.t.Helper()
	r := l.run(stdin, args...)
	if r.code != code || !strings.Contains(r.out+r.err, says) {
		l.t.Fatalf("lattice %q: exit %d, want %d and %q\n%s%s", args, r.code, code, says, r.out, r.err)
	}
	return r
}

// is compares output.
func (l *tool) is(got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Fatalf("output\n%q\nwant\n%q", got, want)
	}
}

// file writes a file and returns its name.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readString(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
