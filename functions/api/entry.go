package api

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// form is how values are written in JSON.
type form string

const (
	formBase64 form = ""
	formText   form = "text"
	formJSON   form = "json"
)

// form reads the parameter as.
func (r *request) form() (form, error) {
	switch v, ok := r.query["as"]; {
	case !ok:
		return formBase64, nil
	case form(v) == formText, form(v) == formJSON:
		return form(v), nil
	}
	return "", argument("as", "must be text or json")
}

const (
	// piece is how much of a value is encoded at a time, so that a large one
	// takes no memory beside itself. A multiple of three, for base64.
	piece = 3 << 10
	// maxDepth is how deep a JSON value may be nested to be given as it is:
	// readers give up on a whole page that is too deep for them.
	maxDepth = 1000
)

// entryWriter writes entries as JSON, the very bytes that encoding/json would
// write of {key, value | text | json, version, expiresAt}, and allocates nothing
// for usual ones: scans are made of them. Errors of the writer stay until its Flush.
type entryWriter struct {
	*bufio.Writer
	form     form
	keysOnly bool
	// measures says that what is written is counted in size, and goes nowhere.
	measures bool
	size     int64
	scratch  [piece / 3 * 4]byte
}

func newEntryWriter(w io.Writer, size int, f form, keysOnly bool) *entryWriter {
	return &entryWriter{Writer: bufio.NewWriterSize(w, size), form: f, keysOnly: keysOnly}
}

// entry writes an item. A value that is not UTF-8, or not JSON, is given in
// base64 whatever was asked for: one such value among many must not spoil the
// page.
func (w *entryWriter) entry(item *tree.Item) {
	w.text(`{"key":"`)
	w.quoted(append(w.scratch[:0], item.Key...))
	w.text(`"`)
	if !w.keysOnly {
		w.value(item.Value)
	}
	w.text(`,"version":"`)
	version := item.Version.Append(w.scratch[:0])
	n := hex.Encode(w.scratch[clock.VersionBytes:], version)
	w.raw(w.scratch[clock.VersionBytes:][:n])
	if !item.Expiry.IsZero() {
		w.text(`","expiresAt":"`)
		w.raw(item.Expiry.UTC().AppendFormat(w.scratch[:0], timeFormat))
	}
	w.text(`"}`)
}

func (w *entryWriter) value(value []byte) {
	switch {
	case w.form == formText && utf8.Valid(value):
		w.text(`,"text":"`)
		w.quoted(value)
		w.text(`"`)
	case w.form == formJSON && utf8.Valid(value) && json.Valid(value) && !deep(value):
		w.text(`,"json":`)
		w.compact(value)
	default:
		w.text(`,"value":"`)
		if w.measures {
			w.size, value = w.size+int64(base64.StdEncoding.EncodedLen(len(value))), nil
		}
		for len(value) > 0 {
			part := value[:min(len(value), piece)]
			value = value[len(part):]
			n := base64.StdEncoding.EncodedLen(len(part))
			base64.StdEncoding.Encode(w.scratch[:n], part)
			w.raw(w.scratch[:n])
		}
		w.text(`"`)
	}
}

// list writes items as an array.
func (w *entryWriter) list(items []tree.Item) {
	w.text("[")
	for i := range items {
		if i > 0 {
			w.text(",")
		}
		w.entry(&items[i])
	}
	w.text("]")
}

func (w *entryWriter) text(s string) {
	if w.measures {
		w.size += int64(len(s))
		return
	}
	_, _ = w.WriteString(s)
}

func (w *entryWriter) raw(b []byte) {
	if w.measures {
		w.size += int64(len(b))
		return
	}
	_, _ = w.Write(b)
}

// quoted writes what stands between the quotes of a JSON string.
func (w *entryWriter) quoted(s []byte) {
	for len(s) > 0 {
		n := plainLength(s)
		if n > 0 {
			w.raw(s[:n])
		} else {
			n = min(len(s), piece)
			for n < len(s) && !utf8.RuneStart(s[n]) {
				n-- // a rune, of four bytes at most, stays whole
			}
			escaped := mustMarshal(string(s[:n]))
			w.raw(escaped[1 : len(escaped)-1])
		}
		s = s[n:]
	}
}

// plainLength is how much of s stands for itself in a JSON string.
func plainLength(s []byte) int {
	for i, c := range s {
		switch {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return i
		}
	}
	return len(s)
}

// deep reports whether a JSON document is nested deeper than maxDepth.
func deep(doc []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// compact writes a valid JSON document without insignificant space, and escapes in
// its strings what is not to stand in a page of HTML, as encoding/json does.
func (w *entryWriter) compact(doc []byte) {
	from, inString := 0, false
	for i := 0; i < len(doc); i++ {
		c := doc[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString && (c == '<' || c == '>' || c == '&'):
			w.raw(doc[from:i])
			w.text(escapes[c])
			from = i + 1
		case inString && c == 0xE2 && doc[i+1] == 0x80 && doc[i+2]&^1 == 0xA8:
			w.raw(doc[from:i])
			w.text(separators[doc[i+2]&1])
			i += 2
			from = i + 1
		case !inString && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			w.raw(doc[from:i])
			from = i + 1
		}
	}
	w.raw(doc[from:])
}

var (
	escapes    = map[byte]string{'<': `\u003c`, '>': `\u003e`, '&': `\u0026`}
	separators = [2]string{`\u2028`, `\u2029`}
)

// compactJSON returns a document without insignificant space.
func compactJSON(doc []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, doc); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
