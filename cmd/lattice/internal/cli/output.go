package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// output is standard output, or a file that appears under its name only when
// it is committed.
type output struct {
	io.Writer
	name string
	temp *os.File
	zip  *gzip.Writer
}

// createOutput creates a temporary file beside the one named.
func createOutput(e *env, name string) (*output, error) {
	if name == "-" {
		return &output{Writer: e.Out}, nil
	}
	temp, err := createTemp(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("create %s: the folder %s does not exist", show(name), show(filepath.Dir(name)))
	}
	if err != nil {
		return nil, fmt.Errorf("create output: %w", err)
	}
	o := &output{Writer: temp, name: name, temp: temp}
	if strings.HasSuffix(strings.ToLower(name), ".gz") {
		o.zip = gzip.NewWriter(temp)
		o.Writer = o.zip
	}
	return o, nil
}

// createTemp is os.CreateTemp with the permissions of an ordinary file.
func createTemp(name string) (*os.File, error) {
	for i := range 100 {
		temp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".tmp"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(i))
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, os.ErrExist
}

// commit makes the file durable and gives it its name.
func (o *output) commit() error {
	if o.temp == nil {
		return nil
	}
	if o.zip != nil {
		if err := o.zip.Close(); err != nil {
			return err
		}
	}
	if err := o.temp.Sync(); err != nil {
		return err
	}
	if err := o.temp.Close(); err != nil {
		return err
	}
	if err := os.Rename(o.temp.Name(), o.name); err != nil {
		return err
	}
	o.temp = nil
	return nil
}

// discard removes what was not committed.
func (o *output) discard() {
	if o.temp != nil {
		_ = o.temp.Close()
		_ = os.Remove(o.temp.Name())
	}
}
