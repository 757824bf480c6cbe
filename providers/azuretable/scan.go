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

// enter consumes the bracket that opens an array or object, and the one that
// closes it if nothing stands between.
func (s *scanner) enter(open byte) (empty bool, err error) {
	if err := s.expect(open); err != nil {
		return false, err
	}
	c, err := s.peek()
	if err != nil || c != open+2 { // ']' and '}' follow their partners by two
		return false, err
	}
	s.pos++
	return true, nil
}

// more consumes what follows an element: a comma, or the bracket that closes.
func (s *scanner) more(open byte) (bool, error) {
	c, err := s.peek()
	if err != nil {
		return false, err
	}
	s.pos++
	switch c {
	case ',':
		return true, nil
	case open + 2:
		return false, nil
	}
	return false, errSyntax
}

// array calls element at the start of each element; it consumes the element.
func (s *scanner) array(element func() error) error {
	empty, err := s.enter('[')
	for more := !empty; err == nil && more; {
		if err = element(); err == nil {
			more, err = s.more('[')
		}
	}
	return err
}

// object calls member with each name, the scanner standing at its value.
func (s *scanner) object(member func(name []byte) error) error {
	empty, err := s.enter('{')
	for more := !empty; err == nil && more; {
		if err = s.member(member); err == nil {
			more, err = s.more('{')
		}
	}
	return err
}

func (s *scanner) member(member func(name []byte) error) error {
	name, err := s.str()
	if err != nil {
		return err
	}
	if err := s.expect(':'); err != nil {
		return err
	}
	return member(name)
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

// escaped consumes the rest of a string that holds a backslash, as ETags do.
func (s *scanner) escaped() ([]byte, error) {
	simple := true
	for i := s.pos; i < len(s.in); i++ {
		switch s.in[i] {
		case '\\':
			i++
			simple = simple && i < len(s.in) && (s.in[i] == '"' || s.in[i] == '\\' || s.in[i] == '/')
		case '"':
			text, err := unescape(s.in[s.pos-1:i+1], simple)
			s.pos = i + 1
			return text, err
		}
	}
	return nil, errCut
}

// unescape returns the content of a quoted string. In a simple one each backslash
// just stands before the character that is meant.
func unescape(quoted []byte, simple bool) ([]byte, error) {
	if !simple {
		var text string
		if err := json.Unmarshal(quoted, &text); err != nil {
			return nil, errSyntax
		}
		return []byte(text), nil
	}
	inside := quoted[1 : len(quoted)-1]
	text := make([]byte, 0, len(inside))
	for i := 0; i < len(inside); i++ {
		if inside[i] == '\\' {
			i++
		}
		text = append(text, inside[i])
	}
	return text, nil
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
		return s.array(func() error { return s.skip(depth + 1) })
	}
	_, err = s.scalar()
	return err
}

// entity consumes the object of a row.
func (s *scanner) entity() (entity, error) {
	e := entity{length: -1}
	err := s.object(s.propertyOf(&e))
	return e, err
}

// propertyOf returns what consumes a property and sets it in e.
func (s *scanner) propertyOf(e *entity) func(name []byte) error {
	return func(name []byte) error {
		c, err := s.peek()
		if err != nil {
			return err
		}
		if c == '{' || c == '[' {
			return s.skip(1)
		}
		value, err := s.scalar()
		if err != nil {
			return err
		}
		e.set(name, value)
		return nil
	}
}

// set takes over a property. Unknown ones are ignored: the service adds its own.
// A value of the wrong kind counts as missing, which row reports.
func (e *entity) set(name []byte, value token) {
	if i := chunkOf(name); i >= 0 && value.kind == '"' {
		e.chunks[i] = value
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

// chunkOf returns which part of the payload a property holds; -1 if it is none.
func chunkOf(name []byte) int {
	if len(name) < 2 || len(name) > 3 || name[0] != 'P' || name[1] == '0' && len(name) > 2 {
		return -1
	}
	n := 0
	for _, c := range name[1:] {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	if n >= maxChunks {
		return -1
	}
	return n
}

// entities reads the answer to a query: an object with an array named value. Each
// row goes to found, in memory that the next one takes over. When the input was
// cut at a bound, errCut comes after the rows that are whole.
func entities(in []byte, found func(*entity) error) error {
	s := &scanner{in: in}
	var e entity
	property := s.propertyOf(&e)
	row := func() error {
		e = entity{length: -1}
		if err := s.object(property); err != nil {
			return err
		}
		return found(&e)
	}
	seen := false
	err := s.object(func(name []byte) error {
		if string(name) != "value" {
			return s.skip(1)
		}
		seen = true
		return s.array(row)
	})
	if err == nil && !seen {
		return errSyntax
	}
	return err
}
