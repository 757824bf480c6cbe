// Package running builds the project's programs and runs the service as a
// process of its own, as its users do: for tests that need the real thing.
package running

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout bounds the wait for the first answer.
	startTimeout = 60 * time.Second
	// stopTimeout bounds the wait for a graceful end.
	stopTimeout = 30 * time.Second
	// keptLines bounds what is remembered of the output.
	keptLines = 2000
)

// Root returns the top folder of the checkout.
func Root(t testing.TB) string {
	t.Helper()
	at, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			t.Fatal("no go.mod above the test")
		}
		at = filepath.Dir(at)
	}
}

// builds remembers the programs built by this test binary.
var builds struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// Build compiles a program, such as "cmd/local", once per test binary and
// returns its path. Main removes the results.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if path := builds.paths[pkg]; path != "" {
		return path
	}
	if builds.dir == "" {
		t.Fatal("call running.Main from TestMain")
	}
	path := filepath.Join(builds.dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", path, "./"+pkg)
	cmd.Dir = Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	builds.paths[pkg] = path
	return path
}

// Main runs the tests of a package that builds programs, and tidies up.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "lattice-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	builds.dir, builds.paths = dir, map[string]string{}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Service is a running cmd/local.
type Service struct {
	// URL is where it answers, without a trailing slash.
	URL string
	// Client trusts whatever certificate it has.
	Client *http.Client

	cmd    *exec.Cmd
	output *output
	exited chan struct{}
}

// Start runs cmd/local on a free port with the arguments and, on top of a clean
// environment, the variables given, and returns when it answers. The test ends
// it.
func Start(t testing.TB, env []string, args ...string) *Service {
	t.Helper()
	s, err := Launch(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Launch is Start for a service that may refuse to start: its output is in the
// error then.
func Launch(t testing.TB, env []string, args ...string) (*Service, error) {
	t.Helper()
	s := &Service{output: &output{ready: make(chan string, 1)}, exited: make(chan struct{})}
	s.cmd = exec.Command(Build(t, "cmd/local"), append([]string{"--listen=127.0.0.1:0"}, args...)...)
	s.cmd.Env = append(cleanEnv(), env...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	go func() {
		// How it ended is in ProcessState.
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(s.Kill)
	if err := s.await(t.Context()); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// cleanEnv is the environment without settings of the service.
func cleanEnv() []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "LATTICE_") && !strings.HasPrefix(pair, "AZURE_") || strings.HasPrefix(pair, "LATTICE_AZURITE=") {
			env = append(env, pair)
		}
	}
	return env
}

func (s *Service) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case s.URL = <-s.output.ready:
	case <-s.exited:
		return fmt.Errorf("the service ended with %s:\n%s", s.cmd.ProcessState, s.Output())
	case <-ctx.Done():
		return fmt.Errorf("the service did not start: %w:\n%s", ctx.Err(), s.Output())
	}
	s.Client = newClient()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return fmt.Errorf("the service does not answer: %w:\n%s", err, s.Output())
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the service is not ready: %d %s", resp.StatusCode, body)
	}
	return err
}

// PID returns the process id.
func (s *Service) PID() int { return s.cmd.Process.Pid }

// Output returns what the service wrote, the last lines of it.
func (s *Service) Output() string { return s.output.String() }

// Exited is closed when the process has ended.
func (s *Service) Exited() <-chan struct{} { return s.exited }

// ExitCode returns the exit status of a process that has ended.
func (s *Service) ExitCode() int { return s.cmd.ProcessState.ExitCode() }

// Signal sends a signal.
func (s *Service) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Stop ends the service gracefully. It is an error if it does not end, or
// fails.
func (s *Service) Stop() error {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the service: %w", err)
	}
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		return errors.New("the service does not stop:\n" + s.Output())
	}
	if code := s.ExitCode(); code != 0 {
		return fmt.Errorf("the service ended with %d:\n%s", code, s.Output())
	}
	return nil
}

// Kill ends the process at once, as a crash would.
func (s *Service) Kill() {
	// An error means that it has ended already.
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// output keeps the last lines, and finds the address among them.
type output struct {
	mu    sync.Mutex
	lines []string
	part  string
	found bool
	ready chan string
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	scan := bufio.NewReader(strings.NewReader(o.part + string(p)))
	for {
		line, err := scan.ReadString('\n')
		if err != nil {
			o.part = line
			return len(p), nil
		}
		o.add(strings.TrimSuffix(line, "\n"))
	}
}

func (o *output) add(line string) {
	if o.lines = append(o.lines, line); len(o.lines) > keptLines {
		o.lines = o.lines[1:]
	}
	if _, url, ok := strings.Cut(line, "listening on "); ok && !o.found {
		o.found = true
		url, _, _ = strings.Cut(strings.TrimSpace(url), " ")
		o.ready <- strings.TrimRight(url, `"}`)
	}
}

// String returns the lines.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(append(o.lines[:len(o.lines):len(o.lines)], o.part), "\n")
}
