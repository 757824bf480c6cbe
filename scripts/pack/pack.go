package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// stamp is the time of every entry: the first that a zip can tell.
var stamp = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// developers are files that hold settings of one machine, secrets among them.
var developers = map[string]bool{"local.settings.json": true}

// pack writes the files under folder into a new zip file at out and returns its
// size in bytes. An error leaves what was at out as it was.
func pack(folder, out string) (size int64, err error) {
	files, err := list(folder)
	if err != nil {
		return 0, err
	}
	temp, err := os.CreateTemp(filepath.Dir(out), ".pack-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, temp.Close(), os.Remove(temp.Name()))
		}
	}()
	if err := write(temp, os.DirFS(folder), files); err != nil {
		return 0, err
	}
	info, err := temp.Stat()
	if err != nil {
		return 0, err
	}
	if err := temp.Chmod(0o644); err != nil {
		return 0, err
	}
	if err := temp.Close(); err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(temp.Name(), out)
}

// file is one entry of the zip.
type file struct {
	// name is relative to the folder, with slashes.
	name string
	mode fs.FileMode
}

// list returns what is under a folder, sorted by name within each folder.
func list(folder string) (files []file, err error) {
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if base := path.Base(name); strings.HasPrefix(base, ".") || developers[base] {
			return fmt.Errorf("%s has no place in a package", name)
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", name)
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		files = append(files, file{name, mode})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New("there is nothing to pack")
	}
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", folder, err)
	}
	return files, nil
}

func write(to io.Writer, from fs.FS, files []file) error {
	z := zip.NewWriter(to)
	for _, f := range files {
		if err := add(z, from, f); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	return z.Close()
}

func add(z *zip.Writer, from fs.FS, f file) error {
	header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: stamp}
	header.SetMode(f.mode)
	entry, err := z.CreateHeader(header)
	if err != nil {
		return err
	}
	content, err := from.Open(f.name)
	if err != nil {
		return err
	}
	_, err = io.Copy(entry, content)
	return errors.Join(err, content.Close())
}
