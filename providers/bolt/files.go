package bolt

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/latticekv/lattice/core/store"
)

// blobFiles is the directory of the files of larger blobs. A file is written
// once, under a random name, and never changed.
type blobFiles struct {
	dir    string
	noSync bool
}

func (f blobFiles) path(file []byte) string { return filepath.Join(f.dir, hex.EncodeToString(file)) }

// write stores data in a new file and returns its name. The file and its
// directory entry are durable then.
func (f blobFiles) write(data []byte) ([]byte, error) {
	file := make([]byte, fileNameBytes)
	if _, err := rand.Read(file); err != nil {
		return nil, err
	}
	err := f.writeFile(f.path(file), data)
	if err == nil && !f.noSync {
		err = syncDir(f.dir)
	}
	if err != nil {
		f.remove(file)
		return nil, err
	}
	return file, nil
}

func (f blobFiles) writeFile(path string, data []byte) (err error) {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if _, err := w.Write(data); err != nil {
		return err
	}
	if f.noSync {
		return nil
	}
	return w.Sync()
}

// load returns the whole content of a blob, checked. An error of a file that
// is missing matches fs.ErrNotExist.
func (f blobFiles) load(name string, e blobEntry) ([]byte, error) {
	data := e.data
	if e.file != nil {
		var err error
		if data, err = f.loadRange(name, e, 0, e.size); err != nil {
			return nil, err
		}
	}
	if sum := crc32.Checksum(data, castagnoli); sum != e.sum {
		return nil, store.Corruptf("blob %q: checksum is %08x, not %08x", name, sum, e.sum)
	}
	return data, nil
}

// loadRange returns a part of a blob, which must lie within its size.
func (f blobFiles) loadRange(name string, e blobEntry, offset, length int64) ([]byte, error) {
	if e.file == nil {
		return e.data[offset : offset+length : offset+length], nil
	}
	r, err := os.Open(f.path(e.file))
	if err != nil {
		return nil, unavailable(name, err)
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return nil, unavailable(name, err)
	}
	if info.Size() != e.size {
		return nil, store.Corruptf("blob %q: its file %x has %d bytes, not %d", name, e.file, info.Size(), e.size)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(r, offset, length), data); err != nil {
		return nil, unavailable(name, err)
	}
	return data, nil
}

func unavailable(name string, err error) error {
	return fmt.Errorf("blob %q: %w: %w", name, store.ErrUnavailable, err)
}

// remove deletes a file that no blob needs. A file that cannot be deleted is
// an orphan, and the next Open tries again.
func (f blobFiles) remove(file []byte) {
	if file != nil {
		_ = os.Remove(f.path(file))
	}
}

// names returns the files of the directory by their binary names. Others than
// those that write makes are left alone.
func (f blobFiles) names() (map[string]bool, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w: %w", f.dir, store.ErrUnavailable, err)
	}
	names := map[string]bool{}
	for _, entry := range entries {
		if name, err := hex.DecodeString(entry.Name()); err == nil && len(name) == fileNameBytes {
			names[string(name)] = true
		}
	}
	return names, nil
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w: %w", dir, store.ErrUnavailable, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w: %w", dir, store.ErrUnavailable, err)
	}
	return nil
}
