package file

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"github.com/latticekv/lattice/migrate/delimited"
	"github.com/latticekv/lattice/migrate/source"
)

// Format is the form of a file.
type Format string

// The formats.
const (
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
	TSV    Format = "tsv"
)

// DefaultMaxRecord bounds one row, in bytes.
const DefaultMaxRecord = 128 << 20

// The bounds of a page.
const (
	pageRecords = 1000
	pageBytes   = 4 << 20
)

// Options say how a file is read.
type Options struct {
	Path   string
	Format Format
	// Comma separates fields; zero is a comma for CSV, a tab for TSV.
	Comma byte
	// NoHeader says that the first row is data; columns are then 1, 2, 3….
	NoHeader bool
	// NoQuotes makes '"' an ordinary character and every line a row.
	NoQuotes bool
	// Numbers makes numbers of the fields of CSV that JSON has that form for.
	Numbers bool
	// Null is the text of a field of CSV that stands for NULL, if HasNull.
	Null    string
	HasNull bool
	// MaxRecord bounds a row in bytes; 0 is DefaultMaxRecord.
	MaxRecord int
}

// Source reads a file. It implements source.Source.
type Source struct {
	o     Options
	names []string
	// first is where the rows begin.
	first place
}

// place is a position.
type place struct {
	Offset int64 `json:"offset"`
	Line   int64 `json:"line"`
}

// New returns a source; nothing is opened yet.
func New(o Options) (*Source, error) {
	o.MaxRecord = cmp.Or(o.MaxRecord, DefaultMaxRecord)
	if o.Comma == 0 && o.Format == TSV {
		o.Comma = '\t'
	}
	o.Comma = cmp.Or(o.Comma, ',')
	if o.Format != NDJSON && o.Format != CSV && o.Format != TSV {
		return nil, fmt.Errorf("a file is ndjson, csv or tsv, not %q", o.Format)
	}
	if o.Comma == '"' || o.Comma == '\n' || o.Comma == '\r' || o.Comma >= utf8.RuneSelf {
		return nil, fmt.Errorf("%q cannot separate fields", o.Comma)
	}
	return &Source{o: o}, nil
}

// Close implements source.Source.
func (s *Source) Close() error { return nil }

// Inspect implements source.Source. A file that is changed is another one.
func (s *Source) Inspect(context.Context) (source.Info, error) {
	path, err := filepath.Abs(s.o.Path)
	if err != nil {
		return source.Info{}, fmt.Errorf("find %s: %w", s.o.Path, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return source.Info{}, fmt.Errorf("open the file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return source.Info{}, fmt.Errorf("%s is no regular file; a migration must be able to begin again in the middle of it", s.o.Path)
	}
	in, err := s.open(place{})
	if err != nil {
		return source.Info{}, err
	}
	defer in.close()
	info := source.Info{
		Kind: "file", Identity: fmt.Sprintf("%s of %d bytes, changed %s", path, st.Size(), st.ModTime().UTC().Format(time.RFC3339Nano)),
		Version: string(s.o.Format), Estimate: -1, Consistent: true,
	}
	if err := s.look(in, &info); err != nil {
		return source.Info{}, err
	}
	if n := in.lines.Offset(); n > 0 && !in.packed {
		info.Estimate = s.estimate(st.Size())
	}
	return info, nil
}

// look reads the header, or the first row.
func (s *Source) look(in *input, info *source.Info) error {
	if s.o.Format == NDJSON {
		line, err := in.lines.Next()
		if err != nil {
			return nil //nolint:nilerr // an empty file has no fields, and a fault is met again
		}
		if fields, err := members(line); err == nil && len(fields) > 0 {
			info.KeyTemplate = "{" + keyName(len(fields), func(i int) string { return fields[i].Name }) + "}"
		}
		return nil
	}
	rec, err := in.records.Next()
	if errors.Is(err, io.EOF) && s.o.NoHeader {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty: the header row is missing", s.o.Path)
	}
	if err != nil {
		return fmt.Errorf("read the first row of %s: %w", s.o.Path, err)
	}
	if err := s.header(rec.Fields); err != nil {
		return err
	}
	if !s.o.NoHeader {
		s.first = place{in.lines.Offset(), in.lines.Number()}
	}
	info.Fields = s.names
	info.KeyTemplate = "{" + keyName(len(s.names), func(i int) string { return s.names[i] }) + "}"
	return nil
}

// keyName is the field "key", else the first one.
func keyName(n int, name func(int) string) string {
	for i := range n {
		if name(i) == "key" {
			return "key"
		}
	}
	return name(0)
}

// header takes the names of the columns.
func (s *Source) header(fields [][]byte) error {
	s.names = s.names[:0]
	seen := map[string]bool{}
	for i, f := range fields {
		name := string(f)
		if s.o.NoHeader {
			name = strconv.Itoa(i + 1)
		}
		switch {
		case name == "":
			return fmt.Errorf("column %d of %s has no name in the header row", i+1, s.o.Path)
		case !utf8.ValidString(name):
			return fmt.Errorf("the name of column %d of %s is not UTF-8", i+1, s.o.Path)
		case seen[name]:
			return fmt.Errorf("column %q occurs twice in the header row of %s", name, s.o.Path)
		}
		seen[name] = true
		s.names = append(s.names, name)
	}
	return nil
}

// estimate guesses the number of rows from the lines at the beginning, those of
// the header left out.
func (s *Source) estimate(size int64) int64 {
	f, err := os.Open(s.o.Path)
	if err != nil {
		return -1
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 256<<10)
	n, _ := io.ReadFull(f, head)
	head = head[:n]
	rows := int64(bytes.Count(head, []byte{'\n'}))
	switch {
	case int64(n) == size && n > 0 && head[n-1] != '\n':
		rows++
	case int64(n) < size && rows == 0:
		return -1
	case int64(n) < size:
		rows = size * rows / int64(n)
	}
	return max(0, rows-s.first.Line)
}

// input is the file, open at a place.
type input struct {
	f       *os.File
	packed  bool
	lines   *delimited.Lines
	records *delimited.Reader
}

func (i *input) close() { _ = i.f.Close() }

// open opens the file at a place.
func (s *Source) open(at place) (*input, error) {
	f, err := os.Open(s.o.Path)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	in := &input{f: f}
	r, err := in.unpack()
	if err == nil {
		err = in.skip(r, at.Offset)
	}
	if err != nil {
		in.close()
		return nil, fmt.Errorf("read %s: %w", s.o.Path, err)
	}
	in.lines = delimited.LinesFrom(r, s.o.MaxRecord, at.Line, at.Offset)
	in.records = delimited.NewReader(in.lines, s.o.Comma, !s.o.NoQuotes)
	return in, nil
}

// unpack looks at the beginning; what is gzip is unpacked.
func (i *input) unpack() (io.Reader, error) {
	var head [2]byte
	n, err := i.f.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < 2 || head[0] != 0x1f || head[1] != 0x8b {
		return i.f, nil
	}
	i.packed = true
	return gzip.NewReader(bufio.NewReaderSize(i.f, 256<<10))
}

func (i *input) skip(r io.Reader, n int64) error {
	if !i.packed {
		_, err := i.f.Seek(n, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// Read implements source.Source.
func (s *Source) Read(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
	return func(yield func(source.Page, error) bool) {
		at := s.first
		if from != nil {
			if err := json.Unmarshal(from, &at); err != nil || at.Offset < 0 || at.Line < 0 {
				yield(source.Page{}, errors.New("the position is none in a file"))
				return
			}
		}
		in, err := s.open(at)
		if err != nil {
			yield(source.Page{}, err)
			return
		}
		defer in.close()
		for more := true; more; {
			var p source.Page
			if err = ctx.Err(); err == nil {
				p, more, err = s.page(in)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// page reads up to a page of rows and reports whether there may be more.
func (s *Source) page(in *input) (source.Page, bool, error) {
	var p source.Page
	start := in.lines.Offset()
	for len(p.Records)+len(p.Faults) < pageRecords && in.lines.Offset()-start < pageBytes {
		r, err := s.row(in)
		var fault *delimited.Fault
		switch {
		case errors.Is(err, io.EOF):
			return p, false, nil
		case errors.As(err, &fault):
			p.Faults = append(p.Faults, source.Fault{Origin: s.origin(fault.Line), Reason: fault.Reason})
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
			return p, false, fmt.Errorf("%s is cut off or damaged: it cannot be unpacked behind line %d", s.o.Path, in.lines.Number())
		case err != nil:
			return p, false, fmt.Errorf("read %s: %w", s.o.Path, err)
		default:
			p.Records = append(p.Records, r)
		}
	}
	next, err := json.Marshal(place{in.lines.Offset(), in.lines.Number()})
	p.Next = next
	return p, true, err
}

func (s *Source) origin(line int64) string {
	return filepath.Base(s.o.Path) + ":" + strconv.FormatInt(line, 10)
}
