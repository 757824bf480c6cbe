package api

import (
	"encoding/base64"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// The members of an entry of a bulk load. A version is that of an export and
// ignored: the load gives its own.
const (
	fieldKey = iota
	fieldValue
	fieldText
	fieldJSON
	fieldType
	fieldTTL
	fieldExpiresAt
	fieldVersion
	fieldEnd
	fieldCount
	fields
)

var fieldNames = [fields]string{"key", "value", "text", "json", "contentType", "ttl", "expiresAt", "version", "end", "count"}

// entryFields are the members of an entry, or of an end line, free of escapes.
type entryFields struct {
	given [fields]bool
	// text holds strings, the digits of a number, a JSON document.
	text [fields][]byte
	// value is decoded.
	value []byte
	end   bool
	count int64
}

// fieldOf returns the field of a name, fields for none.
func fieldOf(name []byte) int {
	for i, known := range fieldNames {
		if string(name) == known {
			return i
		}
	}
	return fields
}

// maxKnownTypes bounds how many media types an entryParser remembers.
const maxKnownTypes = 256

// entryParser reads entries one by one. A value is valid until the next one is
// read.
type entryParser struct {
	now func() time.Time
	// value is room for a value.
	value []byte
	// types are media types that have been checked.
	types map[string]string
	f     entryFields
}

func (s *Server) newEntryParser() *entryParser {
	return &entryParser{now: func() time.Time { return s.cfg.Clock.Now().Time() }, types: map[string]string{}}
}

// line reads an entry, or the end line and the count that it gives.
func (p *entryParser) line(line []byte, e *tree.BulkEntry) (end bool, count int64, err error) {
	if !p.scan(line) {
		if err := p.parse(line); err != nil {
			return false, 0, err
		}
	}
	if p.f.given[fieldEnd] || p.f.given[fieldCount] {
		return true, p.f.count, p.f.checkEnd()
	}
	return false, 0, p.entry("", e)
}

// parse is the strict way to read a line, for whatever scan leaves to it.
func (p *entryParser) parse(line []byte) error {
	p.f = entryFields{}
	return parseJSON(line, func(js *parser) error {
		return js.object("", func(name string) (bool, error) { return p.f.member(js, "", name) })
	})
}

// member reads one member of an entry.
func (f *entryFields) member(js *parser, path, name string) (known bool, err error) {
	if name == "error" && path == "" {
		return false, argument(name, "this is how an export ends that broke off; it is not complete")
	}
	i := fieldOf([]byte(name))
	if i == fields {
		return false, nil
	}
	f.given[i] = true
	at := join(path, name)
	switch i {
	case fieldValue:
		f.value, err = js.bytes(at)
	case fieldJSON:
		if f.text[i], err = js.raw(at); err == nil {
			f.text[i], err = compactJSON(f.text[i])
		}
	case fieldTTL:
		f.text[i], err = js.durationText(at)
	case fieldEnd:
		f.end, err = js.boolean(at)
	case fieldCount:
		var n int
		n, err = js.count(at)
		f.count = int64(n)
	default:
		var s string
		s, err = js.text(at)
		f.text[i] = []byte(s)
	}
	return true, err
}

// checkEnd holds the members of an end line against each other.
func (f *entryFields) checkEnd() error {
	for i, given := range f.given {
		if wanted := i == fieldEnd || i == fieldCount; given != wanted {
			return argument(fieldNames[i], "does not make an entry or an end line")
		}
	}
	if !f.end {
		return argument("end", "must be true")
	}
	return nil
}

// entry makes an entry of the members.
func (p *entryParser) entry(path string, e *tree.BulkEntry) (err error) {
	f := &p.f
	if !f.given[fieldKey] {
		return argument(join(path, "key"), "missing")
	}
	*e = tree.BulkEntry{Key: string(f.text[fieldKey])}
	if err := checkKeyForm(join(path, "key"), e.Key); err != nil {
		return err
	}
	if err := p.setValue(path, e); err != nil {
		return err
	}
	if f.given[fieldType] {
		if e.Type, err = p.mediaType(join(path, "contentType"), f.text[fieldType]); err != nil {
			return err
		}
	}
	return p.setExpiry(path, e)
}

func (p *entryParser) setValue(path string, e *tree.BulkEntry) error {
	f, n := &p.f, 0
	if f.given[fieldValue] {
		e.Type, e.Value, n = defaultType, f.value, n+1
	}
	if f.given[fieldText] {
		e.Type, e.Value, n = textType, f.text[fieldText], n+1
	}
	if f.given[fieldJSON] {
		e.Type, e.Value, n = jsonType, f.text[fieldJSON], n+1
	}
	if n != 1 {
		return argument(orBody(path), "exactly one of value, text and json is needed, not %d", n)
	}
	return nil
}

// mediaType checks a media type, the first time that it occurs.
func (p *entryParser) mediaType(at string, name []byte) (string, error) {
	if known, ok := p.types[string(name)]; ok {
		return known, nil
	}
	checked, err := storedType([]string{string(name)})
	if err != nil {
		return "", argument(at, "not a media type of at most %d bytes", maxTypeBytes)
	}
	if len(p.types) < maxKnownTypes {
		p.types[string(name)] = checked
	}
	return checked, nil
}

func (p *entryParser) setExpiry(path string, e *tree.BulkEntry) error {
	f := &p.f
	switch {
	case f.given[fieldTTL] && f.given[fieldExpiresAt]:
		return argument(join(path, "expiresAt"), "does not go with ttl")
	case f.given[fieldTTL]:
		ttl, err := parseTTL(join(path, "ttl"), string(f.text[fieldTTL]))
		if err != nil {
			return err
		}
		e.Expiry = p.now().Add(ttl)
	case f.given[fieldExpiresAt]:
		at := join(path, "expiresAt")
		if err := e.Expiry.UnmarshalText(f.text[fieldExpiresAt]); err != nil {
			return argument(at, "not a time such as 2030-01-31T12:00:00Z")
		}
		return checkExpiry(at, e)
	}
	return nil
}

// checkExpiry keeps an expiry within what can be stored. One before 1970 is as
// good as one in it.
func checkExpiry(at string, e *tree.BulkEntry) error {
	if e.Expiry.UTC().Year() > 9999 {
		return argument(at, "lies beyond the year 9999")
	}
	if first := time.UnixMilli(1).UTC(); e.Expiry.Before(first) {
		e.Expiry = first
	}
	return nil
}

// decodeBase64 decodes into room, which it returns grown if need be.
func decodeBase64(room, text []byte) ([]byte, bool) {
	if n := base64.StdEncoding.DecodedLen(len(text)); cap(room) < n {
		room = make([]byte, n)
	}
	room = room[:cap(room)]
	n, err := base64.StdEncoding.Decode(room, text)
	return room[:max(n, 0)], err == nil
}
