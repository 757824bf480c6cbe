package cli

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// input is a file or standard input, unpacked, that counts what was read of it.
type input struct {
	io.Reader
	// read counts bytes before unpacking; size is their total, 0 if unknown.
	read atomic.Int64
	size int64
	file *os.File
}

// openInput opens a file, and reads nothing yet.
func openInput(e *env, name string) (*input, error) {
	in := &input{Reader: e.In}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open input: %w", err)
		}
		in.Reader, in.file = f, f
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			in.size = st.Size()
		}
	}
	return in, nil
}

// unpack looks at the beginning; what is gzip is unpacked.
func (i *input) unpack() error {
	buffered := bufio.NewReaderSize(&counter{i.Reader, &i.read}, 256<<10)
	i.Reader = buffered
	head, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return nil
	}
	z, err := gzip.NewReader(buffered)
	if err != nil {
		return fmt.Errorf("unpack: %w", whole(err))
	}
	i.Reader = unpacked{z}
	return nil
}

// unpacked is a gzip stream that says so when it breaks off.
type unpacked struct{ z *gzip.Reader }

// Read implements io.Reader.
func (u unpacked) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	return n, whole(err)
}

// errCutOff: compressed input ends in the middle.
var errCutOff = errors.New("the compressed input is cut off or damaged")

// whole explains what a compressed stream that is not whole looks like.
func whole(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) {
		return errCutOff
	}
	return err
}

// lazySource makes its source when the first row is asked for, so that the
// silence of an input can be interrupted.
type lazySource struct {
	open func() (rows.Source, error)
	src  rows.Source
}

// Next implements rows.Source.
func (l *lazySource) Next() (rows.Row, error) {
	if l.src == nil {
		src, err := l.open()
		if err != nil {
			// No fault of one row: without its first row a file says nothing.
			return rows.Row{}, final{err}
		}
		l.src = src
	}
	return l.src.Next()
}

// final hides a fault of a row from whoever would go on after it.
type final struct{ err error }

// Error implements error.
func (f final) Error() string { return f.err.Error() }

// Is keeps the categories of the cause.
func (f final) Is(target error) bool { return errors.Is(f.err, target) }

func (i *input) close() {
	if i.file != nil {
		_ = i.file.Close()
	}
}

// counter counts bytes.
type counter struct {
	r io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// shownRejects is how many rejected rows are reported one by one.
const shownRejects = 20

// reject is a rejected row as it is reported and written.
type reject struct {
	Line   int64  `json:"line"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
	// Row is the record as it stands in the input, or RowBase64 if it is not
	// UTF-8; only in a reject file.
	Row       *string `json:"row,omitempty"`
	RowBase64 string  `json:"rowBase64,omitempty"`
}

// rejects remembers the first rejected rows and writes all of them to a file.
type rejects struct {
	first []reject
	file  *os.File
	w     *bufio.Writer
}

// newRejects creates the reject file, empty, unless name is "".
func newRejects(name string) (*rejects, error) {
	r := &rejects{first: []reject{}}
	if name == "" {
		return r, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create reject file: %w", err)
	}
	r.file, r.w = f, bufio.NewWriter(f)
	return r, nil
}

// add takes a rejected row; calls do not overlap.
func (r *rejects) add(f *rows.Fault) {
	j := reject{Line: f.Line, Key: f.Key, Reason: f.Reason}
	if len(r.first) < shownRejects {
		r.first = append(r.first, j)
	}
	if r.w == nil {
		return
	}
	if utf8.Valid(f.Raw) {
		row := string(f.Raw)
		j.Row = &row
	} else {
		j.RowBase64 = base64.StdEncoding.EncodeToString(f.Raw)
	}
	enc := json.NewEncoder(r.w)
	enc.SetEscapeHTML(false)
	// A failure sticks to the writer and comes out in close.
	_ = enc.Encode(j)
}

func (r *rejects) close() error {
	if r.file == nil {
		return nil
	}
	if err := errors.Join(r.w.Flush(), r.file.Close()); err != nil {
		return fmt.Errorf("write reject file: %w", err)
	}
	return nil
}

// print reports the first rejected rows to a person.
func (r *rejects) print(w io.Writer, total int64) {
	for _, j := range r.first {
		key := ""
		if j.Key != "" {
			key = fmt.Sprintf(" (key %s)", clip(show(j.Key), len(j.Key), true))
		}
		fmt.Fprintf(w, "line %d: %s%s\n", j.Line, j.Reason, key)
	}
	if more := total - int64(len(r.first)); more > 0 {
		fmt.Fprintf(w, "… and %s more\n", plural(more, "failed row"))
	}
}
