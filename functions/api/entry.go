package api

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"
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
	// entryOverheadBytes is about what surrounds key and value of an entry.
	entryOverheadBytes = 64
)

// entryWriter writes entries as JSON, the very bytes that encoding/json would
// write of {key, value | text | json, version, expiresAt}, and allocates nothing
// for usual ones: scans are made of them. Errors of the writer stay until its Flush.
type entryWriter struct {
	*bufio.Writer
	form     form
	keysOnly bool
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
	case w.form == formJSON && utf8.Valid(value) && json.Valid(value):
		w.text(`,"json":`)
		w.raw(mustMarshal(json.RawMessage(value)))
	default:
		w.text(`,"value":"`)
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

func (w *entryWriter) text(s string) { _, _ = w.WriteString(s) }
func (w *entryWriter) raw(b []byte)  { _, _ = w.Write(b) }

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

// entriesPage renders a page of entries; token is empty where there are no more.
func entriesPage(items []tree.Item, f form, keysOnly bool, token string) []byte {
	return renderPage(items, f, keysOnly, func(w *entryWriter) {
		w.text(`{"entries":`)
		w.list(items)
		if token != "" {
			w.text(`,"nextPageToken":"`)
			w.quoted([]byte(token))
			w.text(`"`)
		}
		w.text("}")
	})
}

// cursorPage renders a page of a cursor: of entries, or of a delete-range.
func cursorPage(p tree.CursorPage, f form) []byte {
	return renderPage(p.Items, f, p.Kind == tree.CursorKeys, func(w *entryWriter) {
		w.text(`{"page":`)
		w.text(strconv.FormatInt(p.Page, 10))
		if p.Kind == tree.CursorDeleteRange {
			w.text(`,"deleted":`)
			w.text(strconv.FormatInt(p.Deleted, 10))
		} else {
			w.text(`,"entries":`)
			w.list(p.Items)
		}
		w.text(`,"hasMore":`)
		w.text(strconv.FormatBool(p.HasMore))
		w.text(`,"expiresAt":"`)
		w.text(formatTime(p.Expires))
		w.text(`"}`)
	})
}

// renderPage returns what is written, in a buffer made to its size.
func renderPage(items []tree.Item, f form, keysOnly bool, write func(*entryWriter)) []byte {
	size := 2*entryOverheadBytes + len(items)*entryOverheadBytes
	for i := range items {
		size += len(items[i].Key)
		if !keysOnly {
			size += base64.StdEncoding.EncodedLen(len(items[i].Value))
		}
	}
	out := bytes.NewBuffer(make([]byte, 0, size))
	w := newEntryWriter(out, piece, f, keysOnly)
	write(w)
	if err := w.Flush(); err != nil {
		panic("a buffer in memory fails: " + err.Error())
	}
	return out.Bytes()
}

// compactJSON returns a document without insignificant space.
func compactJSON(doc []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, doc); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
