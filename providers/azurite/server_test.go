package azurite_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/providers/azurite"
)

// program installs Azurite if need be.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Azurite")
	}
	found, err := azurite.Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func start(t *testing.T, o azurite.Options) *azurite.Server {
	t.Helper()
	o.Program = program(t)
	s, err := azurite.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func table(t *testing.T, s *azurite.Server) *azuretable.Table {
	t.Helper()
	table, err := azuretable.New(t.Context(), azuretable.Options{ConnectionString: s.ConnectionString()})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestServerWithAFolderKeepsItsRows(t *testing.T) {
	folder := t.TempDir()
	first := start(t, azurite.Options{Folder: folder})
	if _, err := table(t, first).Apply(t.Context(), "part", []store.Op{store.Insert("key", []byte("value"))}); err != nil {
		t.Fatal(err)
	}
	first.Stop()
	row, err := table(t, start(t, azurite.Options{Folder: folder})).Get(t.Context(), "part", "key")
	if err != nil || string(row.Data) != "value" {
		t.Fatalf("got %q, %v", row.Data, err)
	}
}

func TestStopEndsTheProcessOnce(t *testing.T) {
	s := start(t, azurite.Options{})
	if !alive(s.PID()) {
		t.Fatal("the process is not there")
	}
	s.Stop()
	s.Stop()
	select {
	case <-s.Exited():
	default:
		t.Fatal("stopped, but not exited")
	}
	if alive(s.PID()) {
		t.Fatal("the process is still there")
	}
}

func TestStartOnATakenPortFailsAndLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = azurite.Start(t.Context(), azurite.Options{Program: program(t), TablePort: taken.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "EADDRINUSE") {
		t.Fatalf("got %v, want the reason", err)
	}
}

func TestStartOfSomethingElseFails(t *testing.T) {
	script := filepath.Join(t.TempDir(), "not-azurite")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no such option >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := azurite.Start(t.Context(), azurite.Options{Program: script}); err == nil || !strings.Contains(err.Error(), "no such option") {
		t.Fatalf("got %v, want what the program said", err)
	}
	if _, err := azurite.Start(t.Context(), azurite.Options{Program: script + "-missing"}); err == nil {
		t.Fatal("a missing program started")
	}
}

func TestSilentProgramIsGivenUpAndKilled(t *testing.T) {
	dir := t.TempDir()
	script, mark := filepath.Join(dir, "silent"), filepath.Join(dir, "pid")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $$ >"+mark+"\nexec cat /dev/zero >/dev/null\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := azurite.Start(t.Context(), azurite.Options{Program: script, StartTimeout: time.Second})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want a time-out", err)
	}
	raw, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || alive(pid) {
		t.Fatalf("process %d is still there, %v", pid, err)
	}
}

func TestFindNamesWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv(azurite.ProgramVariable, "")
	_, err := azurite.Find(empty)
	if !errors.Is(err, azurite.ErrNotInstalled) || !strings.Contains(err.Error(), "install-azurite.sh") {
		t.Fatalf("got %v, want what to do", err)
	}
	t.Setenv(azurite.ProgramVariable, filepath.Join(empty, "nowhere"))
	if _, err := azurite.Find(empty); !errors.Is(err, azurite.ErrNotInstalled) {
		t.Fatalf("got %v", err)
	}
	_, err = azurite.Start(t.Context(), azurite.Options{Program: "azurite.js"})
	if !errors.Is(err, azurite.ErrNotInstalled) || !strings.Contains(err.Error(), "Node.js") {
		t.Fatalf("got %v, want the missing Node.js named", err)
	}
	if _, err := azurite.Install(t.Context(), empty); !errors.Is(err, azurite.ErrNotInstalled) {
		t.Fatalf("got %v", err)
	}
}

func TestFindPrefersTheNamedThenTheInstalledProgram(t *testing.T) {
	installed := program(t)
	t.Setenv(azurite.ProgramVariable, "")
	if got, err := azurite.Find("."); err != nil || got != installed {
		t.Fatalf("got %q, %v, want %q", got, err, installed)
	}
	named := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(named, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(azurite.ProgramVariable, named)
	if got, err := azurite.Find("."); err != nil || got != named {
		t.Fatalf("got %q, %v, want %q", got, err, named)
	}
}
