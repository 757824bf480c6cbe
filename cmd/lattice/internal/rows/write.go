package rows

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/client"
)

// ErrForm: a value cannot be written in the form asked for.
var ErrForm = errors.New("value does not fit the form")

// Form says how values are written.
type Form string

// The forms of a value.
const (
	// Base64 fits every value.
	Base64 Form = "base64"
	// Text needs UTF-8.
	Text Form = "text"
	// JSON needs JSON, and writes it compact.
	JSON Form = "json"
	// Auto is Text where it fits, else Base64.
	Auto Form = "auto"
)

// Writer writes entries. Flush must be called at the end.
type Writer interface {
	// Write writes one entry; one without value is written as a key alone.
	Write(client.Entry) error
	Flush() error
}

// ndjsonWriter writes what NDJSON reads.
type ndjsonWriter struct {
	w    *bufio.Writer
	form Form
}

// NewNDJSONWriter writes one JSON object a line, as NDJSON reads them.
func NewNDJSONWriter(w io.Writer, form Form) Writer {
	return &ndjsonWriter{w: bufio.NewWriterSize(w, 256<<10), form: form}
}

// Write implements Writer.
func (n *ndjsonWriter) Write(e client.Entry) error {
	line := appendJSON([]byte(`{"key":`), e.Key)
	line, err := n.appendValue(line, e)
	if err != nil {
		return err
	}
	if e.Version != "" {
		line = appendJSON(append(line, `,"version":`...), e.Version)
	}
	if !e.ExpiresAt.IsZero() {
		line = appendJSON(append(line, `,"expiresAt":`...), moment(e.ExpiresAt))
	}
	_, err = n.w.Write(append(line, "}\n"...))
	return err
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (n *ndjsonWriter) appendValue(line []byte, e client.Entry) ([]byte, error) {
	form := n.form
	if form == Auto {
		form = Base64
		if utf8.Valid(e.Value) {
			form = Text
		}
	}
	switch {
	case e.Value == nil:
		return line, nil
	case form == Base64:
		line = append(line, `,"value":"`...)
		return append(base64.StdEncoding.AppendEncode(line, e.Value), '"'), nil
	case form == Text && utf8.Valid(e.Value):
		return appendJSON(append(line, `,"text":`...), string(e.Value)), nil
	case form == JSON:
		var b bytes.Buffer
		if utf8.Valid(e.Value) && json.Compact(&b, e.Value) == nil {
			return append(append(line, `,"json":`...), b.Bytes()...), nil
		}
	}
	return nil, fmt.Errorf("%w: the value of %q is not %s", ErrForm, e.Key, form)
}

// Flush implements Writer.
func (n *ndjsonWriter) Flush() error { return n.w.Flush() }

// csvWriter writes what CSV reads.
type csvWriter struct {
	w      *bufio.Writer
	comma  byte
	form   Form
	header bool
}

// NewCSVWriter writes rows of key, value and expiresAt under a header, quoted
// after RFC 4180 where need be. The form is Text or Base64.
func NewCSVWriter(w io.Writer, comma byte, form Form) Writer {
	return &csvWriter{w: bufio.NewWriterSize(w, 256<<10), comma: comma, form: form}
}

// Write implements Writer.
func (c *csvWriter) Write(e client.Entry) error {
	c.writeHeader()
	value := string(e.Value)
	switch {
	case c.form == Base64:
		value = base64.StdEncoding.EncodeToString(e.Value)
	case !utf8.Valid(e.Value):
		return fmt.Errorf("%w: the value of %q is not text", ErrForm, e.Key)
	}
	expires := ""
	if !e.ExpiresAt.IsZero() {
		expires = moment(e.ExpiresAt)
	}
	return c.row(e.Key, value, expires)
}

func (c *csvWriter) writeHeader() {
	if !c.header {
		c.header = true
		// An error sticks to the writer and is returned by what follows.
		_ = c.row("key", "value", "expiresAt")
	}
}

func (c *csvWriter) row(fields ...string) error {
	for i, f := range fields {
		if i > 0 {
			_ = c.w.WriteByte(c.comma)
		}
		if strings.ContainsAny(f, "\"\r\n"+string(rune(c.comma))) {
			f = `"` + strings.ReplaceAll(f, `"`, `""`) + `"`
		}
		_, _ = c.w.WriteString(f)
	}
	return c.w.WriteByte('\n')
}

// Flush implements Writer.
func (c *csvWriter) Flush() error {
	c.writeHeader()
	return c.w.Flush()
}
