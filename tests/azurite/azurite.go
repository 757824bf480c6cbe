// Package azurite gives tests a running Azurite: one of their own, or one that
// all tests of a test binary share. A missing program is never a reason to skip a
// test: it is installed, and if that fails the test fails. Under -short tests that
// need an Azurite are left out.
package azurite

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/latticekv/lattice/providers/azurite"
)

// Emulator is a running Azurite that keeps its data in memory.
type Emulator struct {
	server *azurite.Server
}

// Start runs an Azurite on free ports of the loopback address and returns when it
// answers. It is killed, by its process id, when the test ends, and it dies with
// the test binary.
func Start(tb testing.TB) *Emulator {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs Azurite")
	}
	e, err := start(tb)
	if err != nil {
		tb.Fatalf("start azurite: %v", err)
	}
	tb.Cleanup(e.server.Stop)
	return e
}

var shared struct {
	sync.Mutex
	emulator *Emulator
}

// Shared returns the one Azurite of this test binary, started at the first call.
// It lives as long as the binary. Tests keep apart by fresh names.
func Shared(tb testing.TB) *Emulator {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs Azurite")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.emulator != nil && shared.emulator.alive() {
		return shared.emulator
	}
	e, err := start(tb)
	if err != nil {
		tb.Fatalf("start azurite: %v", err)
	}
	shared.emulator = e
	return e
}

func start(tb testing.TB) (*Emulator, error) {
	program, err := program(tb)
	if err != nil {
		return nil, err
	}
	server, err := azurite.Start(tb.Context(), azurite.Options{Program: program})
	if err != nil {
		return nil, err
	}
	return &Emulator{server: server}, nil
}

// program is the Azurite that the environment names, else the pinned one of this
// checkout; the script that installs it does little when it is there.
func program(tb testing.TB) (string, error) {
	if os.Getenv(azurite.ProgramVariable) != "" {
		return azurite.Find(here())
	}
	return azurite.Install(tb.Context(), here())
}

// here is the folder of this source file when the binary knows it, else the
// working folder, which `go test` sets to that of the package under test.
func here() string {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		return filepath.Dir(file)
	}
	return "."
}

func (e *Emulator) alive() bool {
	select {
	case <-e.server.Exited():
		return false
	default:
		return true
	}
}

// ConnectionString names account, key and both services.
func (e *Emulator) ConnectionString() string { return e.server.ConnectionString() }

// TableURL is the address of the table service, with the account.
func (e *Emulator) TableURL() string { return e.server.TableURL() }

// BlobURL is the address of the blob service, with the account.
func (e *Emulator) BlobURL() string { return e.server.BlobURL() }

// PID is the process id, for tests that stop or freeze the emulator.
func (e *Emulator) PID() int { return e.server.PID() }

// Kill ends the emulator at once, for tests of what happens then.
func (e *Emulator) Kill() { e.server.Stop() }

// TableName returns a table name that no other test uses. Table names hold only
// letters and digits.
func (e *Emulator) TableName(tb testing.TB) string { return "t" + fresh(tb) }

// ContainerName returns a container name that no other test uses.
func (e *Emulator) ContainerName(tb testing.TB) string { return "c-" + fresh(tb) }

func fresh(tb testing.TB) string {
	tb.Helper()
	var raw [12]byte
	if _, err := rand.Read(raw[:]); err != nil {
		tb.Fatalf("make a fresh name: %v", err)
	}
	return hex.EncodeToString(raw[:])
}
