package durable

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ErrLocked: another process works in the folder.
var ErrLocked = errors.New("the folder is in use")

// Lock is held by the one process that works in a folder. The system lets go
// of it when the process ends, however it ends.
type Lock struct{ f *os.File }

// Lock takes the folder for this process.
func (d *Dir) Lock() (*Lock, error) {
	const name = "lock"
	f, err := os.OpenFile(d.Join(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explain("lock "+d.path, err)
	}
	if err := lockFile(f); err != nil {
		owner := make([]byte, 20)
		n, _ := f.ReadAt(owner, 0)
		_ = f.Close()
		if !errors.Is(err, errHeld) {
			return nil, fmt.Errorf("lock %s: %w", d.path, err)
		}
		return nil, fmt.Errorf("%w: process %s works in %s", ErrLocked, strings.TrimSpace(string(owner[:n])), d.path)
	}
	// The number is for people; that it cannot be written does not matter.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return &Lock{f}, nil
}

// Unlock lets go of the folder.
func (l *Lock) Unlock() { _ = l.f.Close() }

var errHeld = errors.New("held by another process")
