package bolt

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
)

// The buckets of the database. Beside them stands nothing.
var (
	metaBucket = []byte("lattice")
	rowBucket  = []byte("rows")
	blobBucket = []byte("blobs")
)

// The marker row says how everything else is stored.
var (
	formatKey = []byte("format")
	format    = []byte("1")
)

// checkFormat refuses a database that this code does not understand, and
// marks one that is new.
func checkFormat(db *bbolt.DB, path string) error {
	return guard(path, func() error {
		return discard(db.Update(func(tx *bbolt.Tx) error {
			if err := checkSize(tx, path); err != nil {
				return err
			}
			meta := tx.Bucket(metaBucket)
			if meta == nil {
				return initialise(tx, path)
			}
			if found := meta.Get(formatKey); string(found) != string(format) {
				return fmt.Errorf("database %s has format %q, this program knows %q: %w: %w", path, found, format, store.ErrCorrupt, ErrFormat)
			}
			if tx.Bucket(rowBucket) == nil || tx.Bucket(blobBucket) == nil {
				return store.Corruptf("database %s lacks a bucket", path)
			}
			return errDiscard
		}))
	})
}

// checkSize refuses a file that was cut off: shorter than the pages in use.
func checkSize(tx *bbolt.Tx, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if info.Size() < tx.Size() {
		return store.Corruptf("database %s has %d bytes, but its pages take %d", path, info.Size(), tx.Size())
	}
	return nil
}

// initialise creates the buckets of a new database.
func initialise(tx *bbolt.Tx, path string) error {
	if name, _ := tx.Cursor().First(); name != nil {
		return fmt.Errorf("database %s belongs to another program: %w: %w", path, store.ErrCorrupt, ErrFormat)
	}
	for _, name := range [][]byte{metaBucket, rowBucket, blobBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return fmt.Errorf("create a bucket: %w: %w", store.ErrUnavailable, err)
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, format)
}

// errDiscard ends a transaction that shall have no effect.
var errDiscard = errors.New("nothing to commit")

func discard(err error) error {
	if errors.Is(err, errDiscard) {
		return nil
	}
	return err
}

// guard calls fn and turns what a damaged database does to it, a panic or a
// read beyond the mapped file, into ErrCorrupt.
func guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = store.Corruptf("database %s: %v", path, r)
		}
	}()
	return fn()
}
