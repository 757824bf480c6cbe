package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// record is one delimited row.
type record struct {
	line   int64
	raw    []byte
	fields [][]byte
}

// recordReader splits lines into records. After a fault it goes on with the
// next line, so that one bad row costs no other.
type recordReader struct {
	lines  *lines
	comma  byte
	quotes bool
	max    int
}

// next returns the next record; empty lines are skipped.
func (r *recordReader) next() (record, error) {
	for {
		line, err := r.lines.next()
		if errors.Is(err, errLong) {
			return record{}, &Fault{Line: r.lines.n, Reason: fmt.Sprintf("longer than %d bytes", r.max), Raw: line}
		}
		if err != nil {
			return record{}, err
		}
		if len(chomp(line)) == 0 {
			continue
		}
		return r.split(line)
	}
}

func (r *recordReader) split(line []byte) (record, error) {
	rec := record{line: r.lines.n, raw: chomp(line)}
	if !r.quotes {
		rec.fields = bytes.Split(rec.raw, []byte{r.comma})
		return rec, nil
	}
	s := &splitter{r: r, rest: line, raw: line}
	for more := true; more; {
		field, err := s.field()
		if err != nil {
			return record{}, r.fault(rec.line, s, err)
		}
		rec.fields = append(rec.fields, field)
		if more, err = s.separator(); err != nil {
			return record{}, r.fault(rec.line, s, err)
		}
	}
	rec.raw = chomp(s.raw)
	return rec, nil
}

// fault makes a Fault of what is wrong with a record; a quote that never ends
// is final.
func (r *recordReader) fault(line int64, s *splitter, err error) error {
	if errors.Is(err, ErrQuote) {
		return fmt.Errorf("line %d: %w", line, err)
	}
	var f *Fault
	if errors.As(err, &f) {
		f.Line, f.Raw = line, chomp(s.raw)
		return f
	}
	return err
}

// splitter walks through one record.
type splitter struct {
	r *recordReader
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
		end = len(chomp(s.rest))
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
	line, err := s.r.lines.next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is still open at the end of the input", ErrQuote)
	}
	if errors.Is(err, errLong) || len(s.raw)+len(line) > s.r.max {
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
	if len(chomp(s.rest)) == 0 {
		return false, nil
	}
	if s.rest[0] != s.r.comma {
		return false, &Fault{Reason: `characters after the end quote of a field; double a '"' inside it, or use --no-quotes`}
	}
	s.rest = s.rest[1:]
	return true, nil
}
