package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/delimited"
	"github.com/latticekv/lattice/migrate/source"
)

// row reads the next row.
func (s *Source) row(in *input) (source.Record, error) {
	if s.o.Format == NDJSON {
		return s.object(in)
	}
	rec, err := in.records.Next()
	if err != nil {
		return source.Record{}, err
	}
	if s.names == nil {
		if err := s.header(rec.Fields); err != nil {
			return source.Record{}, err
		}
	}
	if len(rec.Fields) != len(s.names) {
		return source.Record{}, &delimited.Fault{Line: rec.Line, Reason: fmt.Sprintf("%d fields, %d expected", len(rec.Fields), len(s.names))}
	}
	out := source.Record{Origin: s.origin(rec.Line), Fields: make([]source.Field, len(rec.Fields))}
	for i, f := range rec.Fields {
		out.Fields[i] = source.Field{Name: s.names[i], Value: s.value(string(f))}
	}
	return out, nil
}

// value is a field of CSV.
func (s *Source) value(f string) any {
	if s.o.HasNull && f == s.o.Null {
		return nil
	}
	if s.o.Numbers && isNumber(f) {
		return source.Number(f)
	}
	return f
}

// isNumber reports whether f is a number as JSON writes it.
func isNumber(f string) bool {
	return f != "" && strings.Trim(f, "0123456789+-.eE") == "" && json.Valid([]byte(f))
}

// object reads a line of NDJSON.
func (s *Source) object(in *input) (source.Record, error) {
	for {
		line, err := in.lines.Next()
		n := in.lines.Number()
		if errors.Is(err, delimited.ErrLong) {
			return source.Record{}, &delimited.Fault{Line: n, Reason: fmt.Sprintf("longer than %d bytes", in.lines.Limit())}
		}
		if err != nil {
			return source.Record{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		fields, err := members(line)
		if err != nil {
			return source.Record{}, &delimited.Fault{Line: n, Reason: err.Error()}
		}
		return source.Record{Origin: s.origin(n), Fields: fields}, nil
	}
}

// members reads a line that is an object.
func members(line []byte) ([]source.Field, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("no JSON object")
	}
	if delimited.LoneSurrogate(line) {
		return nil, errors.New("it has an unpaired surrogate")
	}
	var out []source.Field
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, errMalformed
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, errMalformed
		}
		v, err := member(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, source.Field{Name: name.(string), Value: v})
	}
	if _, err := d.Token(); err != nil {
		return nil, errMalformed
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value on the line")
	}
	return out, nil
}

var errMalformed = errors.New("malformed JSON")

// member is the value of a member.
func member(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, errMalformed
		}
		return s, nil
	case '{', '[':
		return raw, nil
	case 'n':
		return nil, nil
	case 't', 'f':
		return raw[0] == 't', nil
	}
	return source.Number(raw), nil
}
