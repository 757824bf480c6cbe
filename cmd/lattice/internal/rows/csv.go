package rows

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/latticekv/lattice/migrate/delimited"
)

// CSVOptions say how a CSV or TSV file is read.
type CSVOptions struct {
	// Comma separates fields; zero is ','.
	Comma byte
	// NoHeader says that the first row is data. Columns then have the names
	// 1, 2, 3….
	NoHeader bool
	// NoQuotes makes '"' an ordinary character and every line a row.
	NoQuotes bool
	// Key names the column of the key, KeyTemplate builds it from several;
	// at most one of them. With neither, the key is the column "key" if there
	// is one, else the first.
	Key, KeyTemplate string
	// Value names the column of the value. Without it, a file that has the
	// columns "key" and "value" gives that one, and expiry from the column
	// "expiresAt" if there is one; of any other file the whole row is stored
	// as a JSON object of strings (an array, without a header).
	Value string
	// Base64 says that the value column is in base64.
	Base64 bool
	// MaxRecord bounds a record in bytes.
	MaxRecord int
}

// csv reads delimited rows.
type csv struct {
	rd   *delimited.Reader
	o    CSVOptions
	plan *plan
	// first is the first row of a file without header, read to count columns.
	first *delimited.Record
}

// CSV reads a CSV or TSV file (RFC 4180): fields may be quoted with '"' and
// then hold separators, line ends and doubled quotes, all of which arrive
// unaltered. It reads the first row at once; ErrColumns says that the columns
// asked for are not there. Value bytes need not be UTF-8.
func CSV(r io.Reader, o CSVOptions) (Source, error) {
	if o.Comma == 0 {
		o.Comma = ','
	}
	if o.Comma == '"' || o.Comma == '\n' || o.Comma == '\r' || o.Comma >= utf8.RuneSelf {
		return nil, fmt.Errorf("%w: %q cannot separate fields", ErrColumns, o.Comma)
	}
	c := &csv{rd: delimited.NewReader(delimited.NewLines(r, o.MaxRecord), o.Comma, !o.NoQuotes), o: o}
	first, err := c.next()
	if errors.Is(err, io.EOF) && o.NoHeader {
		return c, nil
	}
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the header row is missing", ErrColumns)
	}
	if err != nil {
		return nil, fmt.Errorf("read first row: %w", err)
	}
	names := header(first.Fields)
	if o.NoHeader {
		names = numbers(len(first.Fields))
		c.first = &first
	}
	c.plan, err = newPlan(names, o)
	return c, err
}

// Next implements Source.
func (c *csv) Next() (Row, error) {
	rec, err := c.record()
	if err != nil {
		return Row{}, err
	}
	row := Row{Line: rec.Line, Raw: rec.Raw}
	if err := c.plan.fill(&row, rec.Fields); err != nil {
		return Row{}, &Fault{Line: rec.Line, Key: row.Op.Key, Reason: err.Error(), Raw: rec.Raw}
	}
	return row, nil
}

// next reads a record, and turns its fault into one of a row.
func (c *csv) next() (delimited.Record, error) {
	rec, err := c.rd.Next()
	var f *delimited.Fault
	if errors.As(err, &f) {
		return rec, &Fault{Line: f.Line, Reason: f.Reason, Raw: f.Raw}
	}
	return rec, err
}

func (c *csv) record() (delimited.Record, error) {
	if c.first != nil {
		rec := *c.first
		c.first = nil
		return rec, nil
	}
	return c.next()
}

func header(fields [][]byte) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = string(f)
	}
	return names
}

func numbers(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(i + 1)
	}
	return names
}

// plan says which fields make what.
type plan struct {
	columns int
	key     int
	// template makes the key if it is not nil.
	template *template
	// value is the column of the value, negative for the whole row.
	value  int
	base64 bool
	// expires is the column of the expiry, negative for none.
	expires int
	// names are the columns as JSON strings; nil for an array.
	names [][]byte
}

func newPlan(names []string, o CSVOptions) (*plan, error) {
	at := map[string]int{}
	for i, n := range names {
		if _, twice := at[n]; twice {
			return nil, fmt.Errorf("%w: column %q occurs twice", ErrColumns, n)
		}
		if !utf8.ValidString(n) {
			return nil, fmt.Errorf("%w: the name of column %d is not UTF-8", ErrColumns, i+1)
		}
		at[n] = i
	}
	p := &plan{columns: len(names), value: -1, expires: -1, base64: o.Base64}
	if err := p.chooseKey(at, o); err != nil {
		return nil, err
	}
	if err := p.chooseValue(at, o); err != nil {
		return nil, err
	}
	if p.value < 0 && o.Base64 {
		return nil, fmt.Errorf("%w: base64 needs a value column", ErrColumns)
	}
	if !o.NoHeader {
		p.names = quoted(names)
	}
	return p, nil
}

func quoted(names []string) [][]byte {
	out := make([][]byte, len(names))
	for i, n := range names {
		out[i] = appendJSON(nil, n)
	}
	return out
}

func (p *plan) chooseKey(at map[string]int, o CSVOptions) (err error) {
	switch {
	case o.Key != "" && o.KeyTemplate != "":
		return fmt.Errorf("%w: a key column and a key template exclude each other", ErrColumns)
	case o.KeyTemplate != "":
		p.template, err = parseTemplate(o.KeyTemplate, at)
	case o.Key != "":
		p.key, err = column(at, o.Key)
	default:
		p.key = at["key"] // the first column if there is no such name
	}
	return err
}

func (p *plan) chooseValue(at map[string]int, o CSVOptions) (err error) {
	if o.Value != "" {
		p.value, err = column(at, o.Value)
		return err
	}
	_, key := at["key"]
	value, ok := at["value"]
	if !key || !ok || o.Key != "" || o.KeyTemplate != "" {
		return nil
	}
	p.value = value
	if i, ok := at["expiresAt"]; ok {
		p.expires = i
	}
	return nil
}

func column(at map[string]int, name string) (int, error) {
	i, ok := at[name]
	if !ok {
		return 0, fmt.Errorf("%w: there is no column %q", ErrColumns, name)
	}
	return i, nil
}

func (p *plan) fill(row *Row, fields [][]byte) (err error) {
	if len(fields) != p.columns {
		return fmt.Errorf("%d fields, %d expected", len(fields), p.columns)
	}
	key := string(fields[p.key])
	if p.template != nil {
		if key, err = p.template.build(fields); err != nil {
			return err
		}
	}
	if !utf8.ValidString(key) {
		return errors.New("the key is not UTF-8")
	}
	if key == "" {
		return errors.New("the key is empty")
	}
	row.Op.Key = key
	if p.expires >= 0 && len(fields[p.expires]) > 0 {
		if row.ExpiresAt, err = parseMoment(string(fields[p.expires])); err != nil {
			return err
		}
	}
	if p.value < 0 {
		row.Op.JSON, err = p.object(fields)
		return err
	}
	return p.fillValue(row, fields[p.value])
}

func (p *plan) fillValue(row *Row, field []byte) (err error) {
	if p.base64 {
		if row.Op.Value, err = base64.StdEncoding.DecodeString(string(field)); err != nil {
			return errors.New("the value is not base64")
		}
		return nil
	}
	row.Op.Value, row.Op.Text = field, utf8.Valid(field)
	return nil
}

// object stores the whole row, columns in order.
func (p *plan) object(fields [][]byte) ([]byte, error) {
	open, end := byte('['), byte(']')
	if p.names != nil {
		open, end = '{', '}'
	}
	out := []byte{open}
	for i, f := range fields {
		if !utf8.Valid(f) {
			return nil, fmt.Errorf("column %d is not UTF-8", i+1)
		}
		if i > 0 {
			out = append(out, ',')
		}
		if p.names != nil {
			out = append(append(out, p.names[i]...), ':')
		}
		out = appendJSON(out, string(f))
	}
	return append(out, end), nil
}

// appendJSON appends s as a JSON string without escapes for HTML.
func appendJSON(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// A string always encodes, and a buffer always takes it.
	_ = enc.Encode(s)
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
