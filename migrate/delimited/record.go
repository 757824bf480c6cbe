package delimited

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrQuote: a quoted field is still open where the input, or the bound on one
// record, ends. Where the next row starts cannot be known.
var ErrQuote = errors.New("a quoted field does not end")

// Record is one delimited row.
type Record struct {
	// Line is the line it starts on, from 1.
	Line int64
	// Raw is the record as it stands in the input, without its line end.
	Raw    []byte
	Fields [][]byte
}

// Fault is a record that cannot be used, and why. Reading goes on after it.
type Fault struct {
	Line   int64
	Reason string
	// Raw is the record as it stands in the input; of one that is too long,
	// the beginning.
	Raw []byte
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("line %d: %s", f.Line, f.Reason) }

// Reader splits lines into records. After a fault it goes on with the next
// line, so that one bad row costs no other.
type Reader struct {
	*Lines
	comma  byte
	quotes bool
}

// NewReader splits at comma. Without quotes '"' is an ordinary character and
// every line is a row; with them a record, like a line, has a limit.
func NewReader(l *Lines, comma byte, quotes bool) *Reader {
	return &Reader{Lines: l, comma: comma, quotes: quotes}
}

// Next returns the next record; empty lines are skipped. An error that is no
// *Fault is final, io.EOF the end.
func (r *Reader) Next() (Record, error) {
	for {
		line, err := r.Lines.Next()
		if errors.Is(err, ErrLong) {
			return Record{}, &Fault{Line: r.n, Reason: fmt.Sprintf("longer than %d bytes", r.max), Raw: line}
		}
		if err != nil {
			return Record{}, err
		}
		if len(Chomp(line)) == 0 {
			continue
		}
		return r.split(line)
	}
}

func (r *Reader) split(line []byte) (Record, error) {
	rec := Record{Line: r.n, Raw: Chomp(line)}
	if !r.quotes {
		rec.Fields = bytes.Split(rec.Raw, []byte{r.comma})
		return rec, nil
	}
	s := &splitter{r: r, rest: line, raw: line}
	for more := true; more; {
		field, err := s.field()
		if err != nil {
			return Record{}, r.fault(rec.Line, s, err)
		}
		rec.Fields = append(rec.Fields, field)
		if more, err = s.separator(); err != nil {
			return Record{}, r.fault(rec.Line, s, err)
		}
	}
	rec.Raw = Chomp(s.raw)
	return rec, nil
}

// fault makes a Fault of what is wrong with a record; a quote that never ends
// is final.
func (r *Reader) fault(line int64, s *splitter, err error) error {
	if errors.Is(err, ErrQuote) {
		return fmt.Errorf("line %d: %w", line, err)
	}
	var f *Fault
	if errors.As(err, &f) {
		f.Line, f.Raw = line, Chomp(s.raw)
		return f
	}
	return err
}

// splitter walks through one record.
type splitter struct {
	r *Reader
	// rest is what is left of the present line, with its line end.
	rest []byte
	// raw is everything of the record so far.
	raw []byte
}

// field takes one field.
func (s *splitter) field() ([]byte, error) {
	if len(s.rest) > 0 && s.rest[0] == '"' {
		s.rest = s.rest[1:]
		return s.quoted()
	}
	end := bytes.IndexByte(s.rest, s.r.comma)
	if end < 0 {
		end = len(Chomp(s.rest))
	}
	field := s.rest[:end]
	if bytes.IndexByte(field, '"') >= 0 {
		return nil, &Fault{Reason: `a '"' inside a field that does not start with one; double it and quote the field, or use --no-quotes`}
	}
	s.rest = s.rest[end:]
	return field, nil
}

// quoted takes the rest of a quoted field up to and including its end quote.
func (s *splitter) quoted() ([]byte, error) {
	field := []byte{}
	for {
		i := bytes.IndexByte(s.rest, '"')
		if i < 0 {
			field = append(field, s.rest...)
			if err := s.more(); err != nil {
				return nil, err
			}
			continue
		}
		field = append(field, s.rest[:i]...)
		s.rest = s.rest[i+1:]
		if len(s.rest) == 0 || s.rest[0] != '"' {
			return field, nil
		}
		field = append(field, '"')
		s.rest = s.rest[1:]
	}
}

// more goes on with the next line, inside a quoted field.
func (s *splitter) more() error {
	line, err := s.r.Lines.Next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is still open at the end of the input", ErrQuote)
	}
	if errors.Is(err, ErrLong) || len(s.raw)+len(line) > s.r.max {
		return fmt.Errorf("%w within %d bytes", ErrQuote, s.r.max)
	}
	if err != nil {
		return err
	}
	s.raw = append(s.raw, line...)
	s.rest = line
	return nil
}

// separator takes what stands after a field and reports whether another
// follows.
func (s *splitter) separator() (bool, error) {
	if len(Chomp(s.rest)) == 0 {
		return false, nil
	}
	if s.rest[0] != s.r.comma {
		return false, &Fault{Reason: `characters after the end quote of a field; double a '"' inside it, or use --no-quotes`}
	}
	s.rest = s.rest[1:]
	return true, nil
}
