package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrFull: the disk has no room left. What was durable before still is.
var ErrFull = errors.New("the disk is full")

// Suffix ends the names of files that are not finished.
const Suffix = ".tmp"

// Step is told of each change to the disk before and after it is made, and
// can refuse it. Tests use it to stop a program at every one of them.
type Step func(name string) error

// Dir is a folder whose files are replaced as a whole.
type Dir struct {
	path string
	step Step
}

// Open makes the folder if it is not there. Step may be nil.
func Open(path string, step Step) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, explain("make folder", err)
	}
	if step == nil {
		step = func(string) error { return nil }
	}
	return &Dir{path: path, step: step}, nil
}

// Path returns the path of the folder.
func (d *Dir) Path() string { return d.path }

// Join returns the path of a file in it.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// Sub opens a folder inside.
func (d *Dir) Sub(name string) (*Dir, error) { return Open(d.Join(name), d.step) }

// Write makes name hold data. On return it is durable; after an error, or a
// crash, the file is the old one or the new one.
func (d *Dir) Write(name string, data []byte) error {
	f, err := d.Create(name)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}

// Read returns what a file holds. A file that is not there is fs.ErrNotExist.
func (d *Dir) Read(name string) ([]byte, error) { return os.ReadFile(d.Join(name)) }

// Names returns the names of the files, sorted.
func (d *Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Remove removes a file; one that is not there is no error. It is not synced:
// a file that comes back after a crash must do no harm.
func (d *Dir) Remove(name string) error {
	if err := d.step("remove " + name); err != nil {
		return err
	}
	if err := os.Remove(d.Join(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.step("removed " + name)
}

// Sweep removes what a crash left unfinished.
func (d *Dir) Sweep() error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, Suffix) {
			if err := d.Remove(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// File is a file that has no name yet.
type File struct {
	*os.File
	d    *Dir
	name string
	done bool
}

// Create begins the file that is to be called name.
func (d *Dir) Create(name string) (*File, error) {
	if err := d.step("create " + name); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(d.Join(name)+Suffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, explain("create "+name, err)
	}
	return &File{File: f, d: d, name: name}, nil
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err != nil {
		return n, explain("write "+f.name, err)
	}
	return n, nil
}

// Commit gives the file its name. On return it is durable.
func (f *File) Commit() error {
	if err := f.d.step("sync " + f.name); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return explain("write "+f.name, err)
	}
	if err := f.Close(); err != nil {
		return explain("write "+f.name, err)
	}
	f.done = true
	if err := f.d.step("rename " + f.name); err != nil {
		return err
	}
	if err := os.Rename(f.d.Join(f.name)+Suffix, f.d.Join(f.name)); err != nil {
		return explain("write "+f.name, err)
	}
	if err := syncDir(f.d.path); err != nil {
		return explain("write "+f.name, err)
	}
	return f.d.step("renamed " + f.name)
}

// Discard removes the file unless it was committed.
func (f *File) Discard() {
	if f.done {
		return
	}
	f.done = true
	_ = f.Close()
	_ = os.Remove(f.d.Join(f.name) + Suffix)
}

// explain marks a full disk.
func explain(what string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%s: %w; free some space, or give a folder on another disk, and run the same command again: %w", what, ErrFull, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
