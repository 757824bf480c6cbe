// Package journal keeps on disk what a long job must find again after a crash:
// a state that is replaced as a whole, and files of lines that only grow and are
// cut back to the length that the state knows of.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/latticekv/lattice/migrate/durable"
)

// ErrCorrupt: a file is not what was written. Nothing is guessed from it.
var ErrCorrupt = errors.New("corrupt state")

// envelope is a state file: the state, and a digest of its compact JSON.
type envelope struct {
	Format int             `json:"format"`
	Digest string          `json:"digest"`
	State  json.RawMessage `json:"state"`
}

// format is the version of the envelope.
const format = 1

// Save replaces the state in a file by v, as JSON. On return it is durable; a
// crash leaves the old state or the new one.
func Save(d *durable.Dir, name string, v any) error {
	state, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	b, err := json.Marshal(envelope{format, digest(state), state})
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return d.Write(name, append(b, '\n'))
}

// Load reads the state of a file into v and reports whether there is one.
func Load(d *durable.Dir, name string, v any) (bool, error) {
	b, err := d.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	var e envelope
	if json.Unmarshal(b, &e) != nil || e.Format != format || e.Digest != digest(e.State) {
		return false, fmt.Errorf("%w: %s", ErrCorrupt, d.Join(name))
	}
	dec := json.NewDecoder(bytes.NewReader(e.State))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, d.Join(name), err)
	}
	return true, nil
}

func digest(b []byte) string { return strconv.FormatUint(xxhash.Sum64(b), 16) }

// portion is how many bytes are gathered before they are written.
const portion = 64 << 10

// File is a file that only grows.
type File struct {
	j   *durable.Journal
	buf []byte
}

// Open opens a file and cuts it to the length that is known to be right; 0
// makes it anew. A file shorter than that is refused.
func Open(d *durable.Dir, name string, size int64) (*File, error) {
	j, err := d.Journal(name, size)
	if err != nil {
		return nil, err
	}
	return &File{j: j}, nil
}

// Write appends; it is durable after Sync.
func (f *File) Write(p []byte) (int, error) {
	f.buf = append(f.buf, p...)
	if len(f.buf) < portion {
		return len(p), nil
	}
	return len(p), f.flush()
}

func (f *File) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	err := f.j.Append(f.buf)
	f.buf = f.buf[:0]
	return err
}

// Line appends v as a line of JSON.
func (f *File) Line(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode line: %w", err)
	}
	_, err := f.Write(b.Bytes())
	return err
}

// Sync makes durable what was written, and returns the length of the file.
func (f *File) Sync() (int64, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.j.Size(), f.j.Sync()
}

// Close closes the file. What was not synced may be lost.
func (f *File) Close() error { return errors.Join(f.flush(), f.j.Close()) }

// Lines calls each with the lines of a file up to a length, the newlines left
// out, until it returns false. A line of more than 16 MiB is ErrCorrupt.
func Lines(d *durable.Dir, name string, size int64, each func(line []byte) (bool, error)) error {
	f, err := os.Open(d.Join(name))
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(io.LimitReader(f, size))
	s.Buffer(make([]byte, 0, 64<<10), 16<<20)
	for s.Scan() {
		if more, err := each(s.Bytes()); err != nil || !more {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, d.Join(name), err)
	}
	return nil
}
