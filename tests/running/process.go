package running

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/latticekv/lattice/providers/subprocess"
)

const (
	// stopTimeout bounds the wait for a graceful end.
	stopTimeout = 30 * time.Second
	// keptLines bounds what is remembered of the output.
	keptLines = 2000
)

// Process is a running program whose output is kept.
type Process struct {
	cmd    *exec.Cmd
	output *output
	exited <-chan struct{}
}

// Run starts a program with the arguments and, on top of an environment without
// settings of the service, the variables given. The test kills it when it ends;
// it dies with the test binary.
func Run(t testing.TB, env []string, program string, args ...string) (*Process, error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(Environment(), env...)
	return Supervise(t, cmd)
}

// Supervise starts a command and keeps its output, except what already has a
// writer. The test kills it when it ends, and fails if there is a secret in the
// output; it dies with the test binary.
func Supervise(t testing.TB, cmd *exec.Cmd) (*Process, error) {
	t.Helper()
	all, err := os.CreateTemp(t.TempDir(), "output")
	if err != nil {
		return nil, fmt.Errorf("keep the output of %s: %w", cmd.Path, err)
	}
	addSecrets(givenSecrets(cmd.Env, cmd.Args))
	p := &Process{cmd: cmd, output: &output{ready: make(chan string, 1), all: all}}
	if cmd.Stdout == nil {
		cmd.Stdout = p.output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.output
	}
	if p.exited, err = subprocess.Start(cmd, false); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), all.Close())
	}
	t.Cleanup(func() {
		p.Kill()
		p.checkOutput(t)
	})
	return p, nil
}

// Environment returns the environment without settings of the service and of its
// telemetry.
func Environment() []string {
	var env []string
	for _, pair := range os.Environ() {
		ours := strings.HasPrefix(pair, "LATTICE_") || strings.HasPrefix(pair, "AZURE_") || strings.HasPrefix(pair, "OTEL_")
		if !ours || strings.HasPrefix(pair, "LATTICE_AZURITE=") {
			env = append(env, pair)
		}
	}
	return env
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns what the program wrote, the last lines of it.
func (p *Process) Output() string { return p.output.String() }

// Listening delivers, once, the address after the words "listening on" in the
// output.
func (p *Process) Listening() <-chan string { return p.output.ready }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitCode returns the exit status of a process that has ended, -1 if a signal
// ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop ends the process gracefully. It is an error if it does not end, or
// fails.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the process: %w", err)
	}
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		return errors.New("the process does not stop:\n" + p.Output())
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("the process ended with %d:\n%s", code, p.Output())
	}
	return nil
}

// Kill ends the process at once, as a crash would, and returns when it is gone.
func (p *Process) Kill() {
	// An error means that it has ended already.
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// output keeps the last lines, and finds the address among them.
type output struct {
	mu    sync.Mutex
	lines []string
	part  string
	found bool
	ready chan string
	// all gets every byte, for the search at the end.
	all *os.File
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.all.Write(p); err != nil {
		return 0, err
	}
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
		url, _, _ = strings.Cut(url, " ")
		o.ready <- strings.TrimRight(url, `",}`)
	}
}

// String returns the lines.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(append(o.lines[:len(o.lines):len(o.lines)], o.part), "\n")
}
