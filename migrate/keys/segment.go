package keys

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/source"
)

// append adds the segment of a value.
func (t *Template) append(b []byte, p *part, v any) ([]byte, error) {
	null := t.o.NullSegment
	v = scalar(v)
	if v == nil {
		if null == "" {
			return b, errors.New("is NULL; --null-segment gives a text that stands for it")
		}
		return append(b, null...), nil
	}
	s, err := p.form.text(v)
	if err != nil {
		return b, err
	}
	if s == "" {
		return b, errors.New("is empty")
	}
	if s == null {
		return b, fmt.Errorf("is %q, which stands for NULL", null)
	}
	if !utf8.ValidString(s) {
		return b, errors.New("is not UTF-8; :hex and :b64 take any bytes")
	}
	if r := p.forbidden(s); r != 0 {
		return b, fmt.Errorf("holds the separator %q; choose another one, or :hex%s", r, p.rawHint())
	}
	return append(b, s...), nil
}

func (p *part) rawHint() string {
	if p.after != 0 {
		return ""
	}
	return ", or :raw for the last segment"
}

// forbidden returns the separator that a segment holds, 0 if none. What has a
// constant width cannot be mistaken, whatever it holds.
func (p *part) forbidden(s string) rune {
	if p.form.kind == kindRaw || p.form.width() > 0 {
		return 0
	}
	return p.separatorIn(s)
}

func (p *part) separatorIn(s string) rune {
	for _, r := range [2]rune{p.after, p.before} {
		if r != 0 && strings.ContainsRune(s, r) {
			return r
		}
	}
	return 0
}

// scalar reads JSON that is one plain value.
func scalar(v any) any {
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	case c == '-' || c >= '0' && c <= '9':
		return source.Number(raw)
	case string(raw) == "true" || string(raw) == "false":
		return string(raw)
	}
	return v
}

// text is the segment of a value that is not NULL.
func (f form) text(v any) (string, error) {
	switch f.kind {
	case kindPadded:
		return f.padded(v)
	case kindHex, kindBase64:
		return f.encoded(v)
	case kindTime, kindUnix, kindUnixMilli, kindDate:
		at, err := moment(v)
		if err != nil {
			return "", err
		}
		return f.time(at)
	}
	return plain(v)
}

// plain is a value as it is.
func plain(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	case source.Number:
		return string(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", errors.New("is no finite number")
		}
		if v == 0 {
			return "0", nil // also for the zero with a sign, which equals it
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case time.Time:
		return form{kind: kindTime}.time(v)
	case json.RawMessage:
		return "", errors.New("is a JSON object or array")
	}
	return "", fmt.Errorf("is of a kind (%T) that cannot be part of a key", v)
}

func (f form) encoded(v any) (string, error) {
	var raw []byte
	switch v := v.(type) {
	case string:
		raw = []byte(v)
	case []byte:
		raw = v
	default:
		return "", errors.New("is neither bytes nor text")
	}
	if f.kind == kindHex {
		return hex.EncodeToString(raw), nil
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// moment reads a time, or text in RFC 3339.
func moment(v any) (time.Time, error) {
	switch v := v.(type) {
	case time.Time:
		return v, nil
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at, nil
		}
		if at, err := time.Parse(time.DateOnly, v); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errors.New("is no time")
}

// time writes a moment in a form of constant width that loses nothing.
func (f form) time(at time.Time) (string, error) {
	at = at.UTC()
	if at.Year() < 0 || at.Year() > 9999 {
		return "", fmt.Errorf("lies in the year %d, which has no form of constant width", at.Year())
	}
	switch f.kind {
	case kindDate:
		if !at.Equal(at.Truncate(24 * time.Hour)) {
			return "", errors.New("is more than a day; :rfc3339 keeps all of it")
		}
		return at.Format(time.DateOnly), nil
	case kindUnix:
		if at.Nanosecond() != 0 {
			return "", errors.New("is finer than a second; :unixms or :rfc3339 keep more")
		}
		return positive(at.Unix(), f.width())
	case kindUnixMilli:
		if at.Nanosecond()%int(time.Millisecond) != 0 {
			return "", errors.New("is finer than a millisecond; :rfc3339 keeps all of it")
		}
		return positive(at.UnixMilli(), f.width())
	}
	return at.Format("2006-01-02T15:04:05.000000000Z"), nil
}

func positive(n int64, width int) (string, error) {
	if n < 0 {
		return "", errors.New("lies before 1970; :rfc3339 has a form for it")
	}
	return fmt.Sprintf("%0*d", width, n), nil
}

// padded writes a whole number at constant width.
func (f form) padded(v any) (string, error) {
	digits, negative, err := integer(v)
	if err != nil {
		return "", err
	}
	if len(digits) > f.digits {
		return "", fmt.Errorf("is a number of %d digits, and its width is %d", len(digits), f.digits)
	}
	if negative && !f.signed {
		return "", fmt.Errorf("is below zero; {…:+%d} has a form for such numbers that keeps the order", f.digits)
	}
	out := make([]byte, 0, f.digits+1)
	if f.signed && negative {
		out = append(out, '0')
	} else if f.signed {
		out = append(out, '1')
	}
	start := len(out)
	out = append(append(out, strings.Repeat("0", f.digits-len(digits))...), digits...)
	if negative {
		for i := start; i < len(out); i++ {
			out[i] = '0' + '9' - out[i]
		}
	}
	return string(out), nil
}

// integer returns the digits of a whole number, without zeros in front.
func integer(v any) (digits string, negative bool, err error) {
	switch v := v.(type) {
	case int64, uint64, string, source.Number:
		digits = fmt.Sprint(v)
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return "", false, errors.New("is no whole number that a float holds exactly")
		}
		digits = strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return "", false, errors.New("is no whole number")
	}
	if whole, fraction, ok := strings.Cut(digits, "."); ok && whole != "" && strings.Trim(fraction, "0") == "" {
		if _, number := v.(source.Number); number {
			digits = whole
		}
	}
	digits, negative = strings.CutPrefix(digits, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return "", false, errors.New("is no whole number")
	}
	digits = strings.TrimLeft(digits, "0")
	return digits, negative && digits != "", nil
}
