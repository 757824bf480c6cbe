package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// jsonLimit bounds a JSON body: MaxBatchBytes of keys and values, which
// base64 and escapes may double.
func (s *Server) jsonLimit() bodyLimit {
	return bodyLimit{2*s.opts.MaxBatchBytes + 64<<10, CodeRequestTooLarge, "the body"}
}

// parser reads one JSON document strictly: names exactly as declared, each at
// most once, nothing unknown, no null in place of a value, nothing behind the
// end. The decoder of the standard library would let all of that pass.
type parser struct{ dec *json.Decoder }

// parseJSON hands the document to read and then demands its end.
func parseJSON(body []byte, read func(p *parser) error) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return argument("body", "missing: a JSON document is needed")
	}
	if !utf8.Valid(body) {
		return argument("body", "not valid UTF-8")
	}
	if !pairedSurrogates(body) {
		return argument("body", "a \\u escape is half of a surrogate pair")
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(body))}
	p.dec.UseNumber()
	if err := read(p); err != nil {
		return err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return argument("body", "something follows the JSON document")
	}
	return nil
}

// object reads an object; field is called for each member and answers false
// for a name that does not belong.
func (p *parser) object(path string, field func(name string) (known bool, err error)) error {
	if err := p.delim(path, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.dec.More() {
		name, err := p.name(path)
		if err != nil {
			return err
		}
		at := join(path, name)
		if seen[name] {
			return argument(at, "given twice")
		}
		seen[name] = true
		known, err := field(name)
		if err != nil {
			return err
		}
		if !known {
			return argument(clip(at, 128), "unknown field")
		}
	}
	return p.closing(path)
}

// array reads an array; element is called for each, with its path.
func (p *parser) array(path string, element func(path string) error) error {
	if err := p.delim(path, '[', "an array"); err != nil {
		return err
	}
	for i := 0; p.dec.More(); i++ {
		if err := element(fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return p.closing(path)
}

func (p *parser) name(path string) (string, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return "", p.malformed(path)
	}
	name, ok := tok.(string)
	if !ok {
		return "", p.malformed(path)
	}
	return name, nil
}

func (p *parser) delim(path string, want json.Delim, what string) error {
	tok, err := p.dec.Token()
	if err != nil {
		return p.malformed(path)
	}
	if tok != want {
		return argument(orBody(path), "must be %s", what)
	}
	return nil
}

func (p *parser) closing(path string) error {
	if _, err := p.dec.Token(); err != nil {
		return p.malformed(path)
	}
	return nil
}

func (p *parser) malformed(path string) error {
	return argument(orBody(path), "malformed JSON near byte %d", p.dec.InputOffset())
}

// raw reads any JSON value, null included, as it stands.
func (p *parser) raw(path string) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := p.dec.Decode(&raw); err != nil {
		return nil, p.malformed(path)
	}
	return raw, nil
}

// text reads a string.
func (p *parser) text(path string) (string, error) {
	raw, err := p.raw(path)
	if err != nil {
		return "", err
	}
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", argument(path, "must be a string")
	}
	return *s, nil
}

// boolean reads true or false.
func (p *parser) boolean(path string) (bool, error) {
	raw, err := p.raw(path)
	if err != nil {
		return false, err
	}
	var b *bool
	if json.Unmarshal(raw, &b) != nil || b == nil {
		return false, argument(path, "must be true or false")
	}
	return *b, nil
}

// count reads a whole number.
func (p *parser) count(path string) (int, error) {
	raw, err := p.raw(path)
	if err != nil {
		return 0, err
	}
	var n *int
	if json.Unmarshal(raw, &n) != nil || n == nil {
		return 0, argument(path, "must be a whole number")
	}
	return *n, nil
}

// bytes reads a base64 string.
func (p *parser) bytes(path string) ([]byte, error) {
	raw, err := p.raw(path)
	if err != nil {
		return nil, err
	}
	var b *[]byte
	if json.Unmarshal(raw, &b) != nil || b == nil || raw[0] != '"' {
		return nil, argument(path, "must be a string in padded base64")
	}
	return *b, nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orBody(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

// pairedSurrogates reports whether every \u escape of a UTF-16 surrogate in
// the strings of a document is half of a pair. The standard library would
// replace an unpaired one, and so turn one key into another.
func pairedSurrogates(doc []byte) bool {
	for i := 0; i < len(doc); i++ {
		if doc[i] != '\\' {
			continue
		}
		unit, ok := escapedUnit(doc[i:])
		if !ok {
			i++
			continue
		}
		switch i += 5; {
		case unit >= 0xdc00 && unit <= 0xdfff:
			return false
		case unit >= 0xd800 && unit <= 0xdbff:
			low, ok := escapedUnit(doc[i+1:])
			if !ok || low < 0xdc00 || low > 0xdfff {
				return false
			}
			i += 6
		}
	}
	return true
}

// escapedUnit reads a \uXXXX escape from the front of b.
func escapedUnit(b []byte) (unit rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(c)
	}
	return unit, true
}
