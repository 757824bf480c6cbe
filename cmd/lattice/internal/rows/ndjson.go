package rows

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/delimited"
)

// ndjson reads one JSON object a line.
type ndjson struct {
	lines *delimited.Lines
	rows  int64
}

// NDJSON reads lines of the form {"key": …, "value": base64 | "text": … |
// "json": …, "ttl"?, "expiresAt"?, "contentType"?}. A "version" is accepted
// and ignored, and so is an end line, {"end":true,"count":N}, if N is the
// number of rows before it: exports and streams of the service can be read as
// they are. Empty lines are skipped. maxLine bounds a line in bytes.
func NDJSON(r io.Reader, maxLine int) Source {
	return &ndjson{lines: delimited.NewLines(r, maxLine)}
}

// Next implements Source.
func (n *ndjson) Next() (Row, error) {
	for {
		line, err := n.lines.Next()
		if errors.Is(err, delimited.ErrLong) {
			n.rows++
			return Row{}, &Fault{Line: n.lines.Number(), Reason: fmt.Sprintf("longer than %d bytes", n.lines.Limit()), Raw: line}
		}
		if err != nil {
			return Row{}, err
		}
		if line = delimited.Chomp(line); len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row, end, err := decodeLine(line)
		if end != nil {
			if err := n.checkEnd(*end); err != nil {
				return Row{}, err
			}
			continue
		}
		n.rows++
		row.Line, row.Raw = n.lines.Number(), line
		if err != nil {
			return Row{}, &Fault{Line: n.lines.Number(), Key: row.Op.Key, Reason: err.Error(), Raw: line}
		}
		return row, nil
	}
}

func (n *ndjson) checkEnd(count int64) error {
	if count != n.rows {
		return fmt.Errorf("line %d: %w: the end line counts %d rows, %d were read", n.lines.Number(), ErrShort, count, n.rows)
	}
	n.rows = 0
	return nil
}

// wireRow is a line.
type wireRow struct {
	Key         json.RawMessage `json:"key"`
	Value       json.RawMessage `json:"value"`
	Text        json.RawMessage `json:"text"`
	JSON        json.RawMessage `json:"json"`
	TTL         json.RawMessage `json:"ttl"`
	ExpiresAt   json.RawMessage `json:"expiresAt"`
	ContentType json.RawMessage `json:"contentType"`
	Version     json.RawMessage `json:"version"`
	End         bool            `json:"end"`
	Count       *int64          `json:"count"`
}

// decodeLine returns the row, or the count of an end line.
func decodeLine(line []byte) (row Row, end *int64, err error) {
	if !utf8.Valid(line) {
		return row, nil, errors.New("not UTF-8")
	}
	var w wireRow
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return row, nil, fmt.Errorf("malformed JSON: %w", plain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return row, nil, errors.New("malformed JSON: more than one value on the line")
	}
	if w.End && w.Key == nil && w.Count != nil {
		return row, w.Count, nil
	}
	if w.End || w.Count != nil {
		return row, nil, errors.New(`"end" and "count" belong to an end line alone`)
	}
	err = w.fill(&row)
	return row, nil, err
}

// plain drops the prefix that means nothing to a user.
func plain(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the line ends too early")
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return misfit(mismatch)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// misfit says that JSON of another kind was expected, without a word of Go.
func misfit(err *json.UnmarshalTypeError) error {
	if err.Field == "" {
		return fmt.Errorf("an object is expected, this is of type %s", err.Value)
	}
	return fmt.Errorf("%q cannot be of type %s", err.Field, err.Value)
}

func (w *wireRow) fill(row *Row) error {
	key, err := text("key", w.Key)
	if err != nil {
		return err
	}
	if key == "" {
		return errors.New("the key is empty")
	}
	row.Op.Key = key
	if err := w.value(&row.Op); err != nil {
		return err
	}
	if w.ContentType != nil {
		if row.ContentType, err = text("contentType", w.ContentType); err != nil {
			return err
		}
		if strings.ContainsFunc(row.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) {
			return errors.New(`"contentType" is no media type`)
		}
	}
	return w.expiry(row)
}

func (w *wireRow) value(op *client.Op) error {
	given := 0
	for _, f := range []json.RawMessage{w.Value, w.Text, w.JSON} {
		if f != nil {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf(`exactly one of "value", "text" and "json" is needed, there are %d`, given)
	}
	if w.JSON != nil {
		op.JSON = w.JSON
		return nil
	}
	if w.Text != nil {
		s, err := text("text", w.Text)
		op.Value, op.Text = []byte(s), true
		return err
	}
	s, err := text("value", w.Value)
	if err != nil {
		return err
	}
	if op.Value, err = base64.StdEncoding.DecodeString(s); err != nil {
		return errors.New(`"value" is not base64; text goes in "text"`)
	}
	return nil
}

func (w *wireRow) expiry(row *Row) error {
	if w.TTL != nil && w.ExpiresAt != nil {
		return errors.New(`"ttl" and "expiresAt" exclude each other`)
	}
	if w.TTL != nil {
		s := strings.Trim(string(w.TTL), `"`)
		ttl, err := ParseTTL(s)
		row.Op.TTL = ttl
		return err
	}
	if w.ExpiresAt == nil || string(w.ExpiresAt) == "null" {
		return nil
	}
	s, err := text("expiresAt", w.ExpiresAt)
	if err != nil {
		return err
	}
	row.ExpiresAt, err = parseMoment(s)
	return err
}

func parseMoment(s string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return at, fmt.Errorf("expiresAt %q is no RFC 3339 time", s)
	}
	return at, nil
}

// ParseTTL reads a time to live: a Go duration or a number of seconds,
// positive.
func ParseTTL(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		secs, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil || !(secs > 0 && secs < 9e9) {
			return 0, fmt.Errorf("ttl %q is no positive duration such as 90s or 1h30m", s)
		}
		d = time.Duration(secs * float64(time.Second))
	}
	if d <= 0 {
		return 0, fmt.Errorf("ttl %q is not positive", s)
	}
	return d, nil
}

// text decodes a JSON string and refuses what decoding would alter.
func text(name string, raw json.RawMessage) (string, error) {
	if raw == nil {
		return "", fmt.Errorf("%q is missing", name)
	}
	if raw[0] != '"' {
		return "", fmt.Errorf("%q is not a string", name)
	}
	if delimited.LoneSurrogate(raw) {
		return "", fmt.Errorf("%q has an unpaired surrogate", name)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%q: %w", name, plain(err))
	}
	return s, nil
}
