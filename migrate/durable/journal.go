package durable

import (
	"fmt"
	"os"
)

// Journal is a file that grows at its end. Its owner keeps the size up to which
// it is to be believed somewhere else, and opens it with that.
type Journal struct {
	d    *Dir
	name string
	f    *os.File
	size int64
}

// Journal opens a file at a size, and cuts off what is beyond. A file that is
// shorter is damaged.
func (d *Dir) Journal(name string, size int64) (*Journal, error) {
	f, err := os.OpenFile(d.Join(name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explain("open "+name, err)
	}
	j := &Journal{d: d, name: name, f: f}
	st, err := f.Stat()
	if err == nil && st.Size() < size {
		err = fmt.Errorf("%s has %d bytes, %d were written: it was cut off or changed", d.Join(name), st.Size(), size)
	}
	if err == nil {
		err = j.Cut(size)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return j, nil
}

// Append writes p at the end; it is durable after Sync.
func (j *Journal) Append(p []byte) error {
	n, err := j.f.WriteAt(p, j.size)
	if err != nil {
		return explain("write "+j.name, err)
	}
	j.size += int64(n)
	return nil
}

// Cut forgets what is beyond size.
func (j *Journal) Cut(size int64) error {
	if err := j.f.Truncate(size); err != nil {
		return explain("write "+j.name, err)
	}
	j.size = size
	return nil
}

// Size is the length of the file.
func (j *Journal) Size() int64 { return j.size }

// Sync makes it durable.
func (j *Journal) Sync() error {
	if err := j.d.step("sync " + j.name); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return explain("write "+j.name, err)
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }
