// Package bolt keeps tables and blobs in a directory of one machine, durably:
// rows and small blobs in one bbolt database, larger blobs in a file each
// beside it. Exactly one process at a time may open a directory.
//
//	lattice.db   rows, the index of the blobs, blobs of up to 32 KiB
//	blobs/       one file for each larger blob, named at random
//
// Blob files are written and synced before the index names them, and the index
// entry is what makes a blob exist: a crash between the two leaves a file that
// nobody names, which the next Open removes. Large blobs stay out of the
// database because it would have to find, and later keep, contiguous free
// pages for them, and never gives space back to the file system.
//
// Every version of a row or blob has an ETag from a counter of the database,
// which advances in the transaction that writes the version, so that none is
// used twice, not even after a crash.
package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

var (
	// ErrInUse: another process (or another Store of this one) has the
	// directory open.
	ErrInUse = errors.New("directory is in use by another process")
	// ErrFormat: the directory holds a database of another program, or of a
	// version of this one with another format. It comes with store.ErrCorrupt.
	ErrFormat = errors.New("unknown format")
)

// lockPatience is how long Open waits for another process to close a
// directory.
const lockPatience = 500 * time.Millisecond

const (
	databaseName = "lattice.db"
	blobDirName  = "blobs"
)

// Options configure a Store. The zero value is right for a service.
type Options struct {
	// Clock tells the modification times of blobs; nil is the machine's own.
	Clock clock.Source
	// Verify makes Open read everything and check it. It takes as long as
	// reading the database does.
	Verify bool
	// NoSync leaves it to the operating system when to write to disk: a crash
	// of the machine may then lose or corrupt everything, one of the process
	// nothing. For tests.
	NoSync bool
}

// Store is an open directory.
type Store struct {
	db     *bbolt.DB
	commit committer
	table  Table
	blobs  Blobs
}

// Open opens a directory, and creates it if it does not exist. It returns
// ErrInUse within a second if another process has it open, ErrFormat if it
// holds something else, and an ErrCorrupt that names the file if the database
// is damaged.
func Open(dir string, o Options) (*Store, error) {
	if o.Clock == nil {
		o.Clock = clock.NewSystem()
	}
	files := blobFiles{dir: filepath.Join(dir, blobDirName), noSync: o.NoSync}
	if err := os.MkdirAll(files.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create %s: %w: %w", files.dir, store.ErrUnavailable, err)
	}
	path := filepath.Join(dir, databaseName)
	db, err := openDatabase(path, o.NoSync)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db}
	s.commit = committer{db: db, path: path}
	s.table = Table{db: db, path: path, commit: &s.commit}
	s.blobs = Blobs{db: db, path: path, commit: &s.commit, clock: o.Clock, files: files}
	if err := s.prepare(dir, o); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// prepare brings a database that was just opened into service.
func (s *Store) prepare(dir string, o Options) error {
	if err := checkFormat(s.db, s.commit.path); err != nil {
		return err
	}
	if o.Verify {
		if err := s.Verify(); err != nil {
			return err
		}
	}
	if err := s.blobs.removeOrphans(); err != nil {
		return err
	}
	if o.NoSync {
		return nil
	}
	return syncDir(dir)
}

// Table returns the table of the store.
func (s *Store) Table() store.Table { return &s.table }

// Blobs returns the blobs of the store.
func (s *Store) Blobs() store.BlobStore { return &s.blobs }

// Close waits for the calls that are being served and closes the directory.
// Later calls fail with store.ErrUnavailable. Nothing of the Store runs after
// Close has returned. It may be called again.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.commit.path, err)
	}
	return nil
}

// openDatabase opens the file and takes its lock. A database that was cut off
// or scrambled may make bbolt panic or read beyond the end of the mapped file;
// both come back as ErrCorrupt. The mapping that bbolt leaves behind then, and
// with it the lock, lasts as long as the process.
func openDatabase(path string, noSync bool) (*bbolt.DB, error) {
	var file *os.File
	options := &bbolt.Options{
		Timeout:      lockPatience,
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
		NoSync:       noSync,
		NoGrowSync:   noSync,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			file = f
			return f, err
		},
	}
	var db *bbolt.DB
	err := guard(path, func() (err error) {
		db, err = bbolt.Open(path, 0o600, options)
		return err
	})
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("open %s: %w: %w", path, store.ErrUnavailable, ErrInUse)
	case errors.Is(err, store.ErrCorrupt):
		return nil, errors.Join(err, file.Close())
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, store.Corruptf("database %s: %v", path, err)
	}
	return nil, fmt.Errorf("open %s: %w: %w", path, store.ErrUnavailable, err)
}
