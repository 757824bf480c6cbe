// Package ledger remembers which version of which key a migration has left in
// a tree, so that it later deletes nothing that somebody else has written. An
// entry is 16 bytes: a hash of the key and a hash of the version. What is lost
// of a ledger only makes deletions be refused.
package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
)

// ErrNone: the folder has no ledger.
var ErrNone = errors.New("no record of what the migration wrote")

const (
	pointerName = "ledger.json"
	entrySize   = 16
)

// pointer names the ledger in force.
type pointer struct {
	Generation int64 `json:"generation"`
}

func fileName(generation int64) string { return fmt.Sprintf("ledger-%d", generation) }

// Ledger is a ledger that is written.
type Ledger struct {
	f   *journal.File
	gen int64
}

// current returns the generation in force, 0 if there is none.
func current(d *durable.Dir) (int64, error) {
	var p pointer
	_, err := journal.Load(d, pointerName, &p)
	return p.Generation, err
}

// Begin starts the ledger that replaces the one in force when it is put in
// force. It has all entries of that one, if there is one.
func Begin(d *durable.Dir) (*Ledger, error) {
	gen, err := current(d)
	if err != nil {
		return nil, err
	}
	l, err := Resume(d, gen+1, 0)
	if err != nil || gen == 0 {
		return l, err
	}
	if err := l.copy(d, gen); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// copy takes over the entries of another ledger.
func (l *Ledger) copy(d *durable.Dir, gen int64) error {
	size, err := sizeOf(d, gen)
	if err != nil || size == 0 {
		return err
	}
	f, err := os.Open(d.Join(fileName(gen)))
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.CopyN(l.f, f, size); err != nil {
		return fmt.Errorf("copy ledger: %w", err)
	}
	return nil
}

// Resume goes on with a ledger that was begun, at the size of its last Sync.
func Resume(d *durable.Dir, generation, size int64) (*Ledger, error) {
	f, err := journal.Open(d, fileName(generation), size)
	if err != nil {
		return nil, err
	}
	return &Ledger{f, generation}, nil
}

// Append opens the ledger in force; without one it begins one. A torn entry at
// its end is cut off.
func Append(d *durable.Dir) (*Ledger, error) {
	gen, err := current(d)
	if err != nil {
		return nil, err
	}
	if gen == 0 {
		l, err := Begin(d)
		if err != nil {
			return nil, err
		}
		return l, l.Enforce(d)
	}
	size, err := sizeOf(d, gen)
	if err != nil {
		return nil, err
	}
	return Resume(d, gen, size)
}

func sizeOf(d *durable.Dir, gen int64) (int64, error) {
	info, err := os.Stat(d.Join(fileName(gen)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read ledger: %w", err)
	}
	return info.Size() / entrySize * entrySize, nil
}

// Exists reports whether a folder has a ledger in force.
func Exists(d *durable.Dir) (bool, error) {
	gen, err := current(d)
	return gen > 0, err
}

// Generation identifies the ledger to Resume.
func (l *Ledger) Generation() int64 { return l.gen }

// Add records that a key has this version. A later entry of a key replaces an
// earlier one.
func (l *Ledger) Add(key, version string) error {
	var b [entrySize]byte
	binary.BigEndian.PutUint64(b[:8], xxhash.Sum64String(key))
	binary.BigEndian.PutUint64(b[8:], xxhash.Sum64String(version))
	_, err := l.f.Write(b[:])
	return err
}

// Sync makes the entries durable and returns the size of the ledger.
func (l *Ledger) Sync() (int64, error) { return l.f.Sync() }

// Enforce puts a ledger in the place of the one before it. It may be repeated.
func (l *Ledger) Enforce(d *durable.Dir) error {
	if _, err := l.Sync(); err != nil {
		return err
	}
	if err := journal.Save(d, pointerName, pointer{l.gen}); err != nil {
		return err
	}
	if l.gen > 1 {
		return d.Remove(fileName(l.gen - 1))
	}
	return nil
}

// Close closes the file. What was not synced may be lost.
func (l *Ledger) Close() error { return l.f.Close() }

// Owned says of the versions of some keys whether they are those that the
// ledger in force has of them. It reads the ledger once, and needs memory for
// the keys given. Without a ledger it returns ErrNone.
func Owned(d *durable.Dir, versions map[string]string) (map[string]bool, error) {
	gen, err := current(d)
	if err != nil {
		return nil, err
	}
	if gen == 0 {
		return nil, ErrNone
	}
	last := make(map[uint64]uint64, len(versions))
	for k := range versions {
		last[xxhash.Sum64String(k)] = 0
	}
	if err := fill(d, gen, last); err != nil {
		return nil, err
	}
	owned := make(map[string]bool, len(versions))
	for k, v := range versions {
		owned[k] = last[xxhash.Sum64String(k)] == xxhash.Sum64String(v)
	}
	return owned, nil
}

// fill sets the last version hash of each key hash asked for.
func fill(d *durable.Dir, gen int64, last map[uint64]uint64) error {
	size, err := sizeOf(d, gen)
	if err != nil || size == 0 {
		return err
	}
	f, err := os.Open(d.Join(fileName(gen)))
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 4096*entrySize)
	for r := io.LimitReader(f, size); ; {
		n, err := io.ReadFull(r, buf)
		for b := buf[:n/entrySize*entrySize]; len(b) > 0; b = b[entrySize:] {
			k := binary.BigEndian.Uint64(b)
			if _, ok := last[k]; ok {
				last[k] = binary.BigEndian.Uint64(b[8:])
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ledger: %w", err)
		}
	}
}
