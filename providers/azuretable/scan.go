package azuretable

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// A decoder of just the JSON that the service sends. Rows are a few long base64
// strings; finding where those end is all the work, so it reads several times
// faster than the general decoder, and without copying them.

var (
	// errCut: the input ended inside a value.
	errCut = errors.New("JSON ends early")
	// errSyntax: the input is not JSON.
	errSyntax = errors.New("not JSON")
	// errDeep: nested deeper than the service ever nests.
	errDeep = errors.New("JSON nested too deep")
)

const maxDepth = 16

// token is a scalar: its kind ('"' string, '0' number, 't' true, 'f' false, 'n'
// null) and text, a string's without quotes and escapes. The text points into
// the input where it can.
type token struct {
	kind byte
	text []byte
}

type scanner struct {
	in  []byte
	pos int
}

// peek skips white space and returns the next byte.
func (s *scanner) peek() (byte, error) {
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c, nil
		}
	}
	return 0, errCut
}

// expect consumes the byte c.
func (s *scanner) expect(c byte) error {
	got, err := s.peek()
	if err != nil {
		return err
	}
	if got != c {
		return errSyntax
	}
	s.pos++
	return nil
}

// items calls item at the start of each element of the array or object that open
// begins; item consumes it.
func (s *scanner) items(open byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	end := open + 2 // ']' and '}' follow their partners in ASCII by two
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c == end {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		c, err := s.peek()
		if err != nil {
			return err
		}
		s.pos++
		switch c {
		case end:
			return nil
		case ',':
		default:
			return errSyntax
		}
	}
}

// object calls member with each name, the scanner standing at its value.
func (s *scanner) object(member func(name []byte) error) error {
	return s.items('{', func() error {
		name, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(name)
	})
}

// str consumes a string and returns its content.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	rest := s.in[s.pos:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, errCut
	}
	if bytes.IndexByte(rest[:end], '\\') < 0 {
		s.pos += end + 1
		return rest[:end], nil
	}
	return s.escaped()
}

// escaped consumes the rest of a string that holds a backslash.
func (s *scanner) escaped() ([]byte, error) {
	for i := s.pos; i < len(s.in); i++ {
		switch s.in[i] {
		case '\\':
			i++
		case '"':
			var text string
			if err := json.Unmarshal(s.in[s.pos-1:i+1], &text); err != nil {
				return nil, errSyntax
			}
			s.pos = i + 1
			return []byte(text), nil
		}
	}
	return nil, errCut
}

// scalar consumes a string, number, true, false or null.
func (s *scanner) scalar() (token, error) {
	c, err := s.peek()
	if err != nil {
		return token{}, err
	}
	if c == '"' {
		text, err := s.str()
		return token{'"', text}, err
	}
	start := s.pos
	for s.pos < len(s.in) && !endsScalar(s.in[s.pos]) {
		s.pos++
	}
	if s.pos == len(s.in) {
		return token{}, errCut
	}
	text := s.in[start:s.pos]
	switch string(text) {
	case "true", "false", "null":
		return token{c, text}, nil
	}
	if (c == '-' || c >= '0' && c <= '9') && json.Valid(text) {
		return token{'0', text}, nil
	}
	return token{}, errSyntax
}

func endsScalar(c byte) bool { return strings.IndexByte(",]} \t\r\n", c) >= 0 }

// skip consumes a value of any kind.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	c, err := s.peek()
	switch {
	case err != nil:
		return err
	case c == '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case c == '[':
		return s.items('[', func() error { return s.skip(depth + 1) })
	}
	_, err = s.scalar()
	return err
}

// entity consumes the object of a row.
func (s *scanner) entity() (entity, error) {
	e := entity{length: -1}
	err := s.object(func(name []byte) error {
		if c, err := s.peek(); err != nil {
			return err
		} else if c == '{' || c == '[' {
			return s.skip(1)
		}
		value, err := s.scalar()
		if err != nil {
			return err
		}
		e.set(name, value)
		return nil
	})
	return e, err
}

// set takes over a property. Unknown ones are ignored: the service adds its own.
// A value of the wrong kind counts as missing, which row reports.
func (e *entity) set(name []byte, value token) {
	if len(name) > 1 && name[0] == 'P' && name[1] >= '0' && name[1] <= '9' {
		if i, err := strconv.Atoi(string(name[1:])); err == nil && i < maxChunks && value.kind == '"' {
			e.chunks[i] = value
		}
		return
	}
	if string(name) == "Len" {
		if n, err := strconv.ParseInt(string(value.text), 10, 32); err == nil && value.kind == '0' {
			e.length = int(n)
		}
		return
	}
	if value.kind != '"' {
		return
	}
	switch string(name) {
	case "odata.etag":
		e.etag = string(value.text)
	case "PartitionKey":
		e.partition = string(value.text)
	case "RowKey":
		e.key = string(value.text)
	}
}

// entities reads the answer to a query: an object with an array named value. Each
// row goes to found. When the input was cut at a bound, errCut comes after the
// rows that are whole.
func entities(in []byte, found func(*entity) error) error {
	s := &scanner{in: in}
	seen := false
	err := s.object(func(name []byte) error {
		if string(name) != "value" {
			return s.skip(1)
		}
		seen = true
		return s.items('[', func() error {
			e, err := s.entity()
			if err != nil {
				return err
			}
			return found(&e)
		})
	})
	if err == nil && !seen {
		return errSyntax
	}
	return err
}
