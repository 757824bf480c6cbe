package mapping

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// object makes the value a JSON object of the fields.
func (m *Mapper) object(r *source.Record, e *spool.Entry) error {
	b := append(m.buf[:0], '{')
	var err error
	if len(m.o.Columns) > 0 {
		b, err = m.some(b, r)
	} else {
		b, err = m.all(b, r)
	}
	if err != nil {
		return err
	}
	m.buf = append(b, '}')
	e.Value = m.buf
	return nil
}

func (m *Mapper) all(b []byte, r *source.Record) ([]byte, error) {
	clear(m.seen)
	for i := range r.Fields {
		f := &r.Fields[i]
		if m.seen[f.Name] {
			return nil, fmt.Errorf("two fields are called %q; choose columns", f.Name)
		}
		m.seen[f.Name] = true
		var err error
		if b, err = m.member(b, f.Name, f.Value); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (m *Mapper) some(b []byte, r *source.Record) ([]byte, error) {
	for _, name := range m.o.Columns {
		v, ok := r.Get(name)
		if !ok {
			return nil, fmt.Errorf("there is no field %q", name)
		}
		var err error
		if b, err = m.member(b, name, v); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (m *Mapper) member(b []byte, name string, v any) ([]byte, error) {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	if !utf8.ValidString(name) {
		return nil, errors.New("the name of a field is not UTF-8")
	}
	b = append(appendString(b, name), ':')
	b, err := m.appendJSON(b, name, v)
	if err != nil {
		return nil, fmt.Errorf("field %q %w", name, err)
	}
	return b, nil
}

func (m *Mapper) appendJSON(b []byte, name string, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case uint64:
		return strconv.AppendUint(b, v, 10), nil
	case float64:
		return m.appendFloat(b, name, v), nil
	case source.Number:
		if !isNumber(string(v)) {
			m.lose(name, "a number that JSON has no form for became a string")
			return appendString(b, string(v)), nil
		}
		return append(b, v...), nil
	case string:
		return m.appendText(b, name, v)
	case []byte:
		return appendBase64(b, v), nil
	case time.Time:
		return append(append(append(b, '"'), m.moment(name, v)...), '"'), nil
	case json.RawMessage:
		return appendRaw(b, v)
	}
	return nil, fmt.Errorf("is of a kind (%T) that has no JSON", v)
}

func (m *Mapper) appendText(b []byte, name, s string) ([]byte, error) {
	if utf8.ValidString(s) {
		return appendString(b, s), nil
	}
	if !m.o.Base64Text {
		return nil, errors.New("is text that is not UTF-8; --invalid-text=base64 encodes it, --value column:NAME keeps it as it is")
	}
	m.lose(name, "text that is not UTF-8 became base64")
	return appendBase64(b, []byte(s)), nil
}

func appendBase64(b, raw []byte) []byte {
	b = append(b, '"')
	return append(base64.StdEncoding.AppendEncode(b, raw), '"')
}

func appendRaw(b []byte, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return append(b, "null"...), nil
	}
	w := bytes.NewBuffer(b)
	if err := json.Compact(w, raw); err != nil {
		return nil, errors.New("is JSON that is malformed")
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("is JSON that is not UTF-8")
	}
	return w.Bytes(), nil
}

func (m *Mapper) appendFloat(b []byte, name string, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		m.lose(name, "NaN or an infinity became a string")
		return append(append(append(b, '"'), floatText(f)...), '"')
	}
	return strconv.AppendFloat(b, f, floatFormat(f), -1, 64)
}

func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(f, floatFormat(f), -1, 64)
}

// floatFormat writes out what is of common size.
func floatFormat(f float64) byte {
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return 'e'
	}
	return 'f'
}

// moment writes a time in UTC. Years beyond RFC 3339 have a sign and as many
// digits as they need.
func (m *Mapper) moment(name string, at time.Time) string {
	at = at.UTC()
	if y := at.Year(); y < 0 || y > 9999 {
		m.lose(name, "a moment beyond the years 0 to 9999 has a form of its own")
		return fmt.Sprintf("%+05d", y) + at.Format("-01-02T15:04:05.999999999Z07:00")
	}
	return at.Format(time.RFC3339Nano)
}

// isNumber reports whether s is a number in JSON.
func isNumber(s string) bool {
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return false
	}
	last := s[len(s)-1]
	return last >= '0' && last <= '9' && json.Valid([]byte(s))
}

// appendString appends valid UTF-8 as a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// column makes the value one field: bytes and text as they are, anything else
// in the form that JSON has for it, without quotes.
func (m *Mapper) column(r *source.Record, e *spool.Entry) error {
	v, ok := r.Get(m.field)
	if !ok {
		return fmt.Errorf("there is no field %q, which is to be the value", m.field)
	}
	e.Type = "text/plain; charset=utf-8"
	switch v := v.(type) {
	case nil:
		if !m.o.NullValue {
			return fmt.Errorf("field %q, which is the value, is NULL; --null-value=empty stores an empty value", m.field)
		}
		e.Value, e.Type = []byte{}, ""
		return nil
	case []byte:
		e.Value, e.Type = v, ""
		return nil
	case string:
		if e.Value = append(m.buf[:0], v...); !utf8.Valid(e.Value) {
			e.Type = ""
		}
		m.buf = e.Value
		return nil
	case float64:
		e.Value = []byte(floatText(v))
		return nil
	case source.Number:
		e.Value = []byte(v)
		return nil
	case time.Time:
		e.Value = []byte(m.moment(m.field, v))
		return nil
	case json.RawMessage:
		e.Value, e.Type = v, "application/json"
		return nil
	}
	b, err := m.appendJSON(m.buf[:0], m.field, v)
	if err != nil {
		return fmt.Errorf("field %q, which is the value, %w", m.field, err)
	}
	m.buf, e.Value = b, b
	return nil
}
