package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/tree"
)

// form is how values are written in JSON.
type form string

const (
	formBase64 form = ""
	formText   form = "text"
	formJSON   form = "json"
)

// entryBody is one entry in JSON. One of the three values is set unless only
// keys were asked for.
type entryBody struct {
	Key       string          `json:"key"`
	Value     *string         `json:"value,omitempty"`
	Text      *string         `json:"text,omitempty"`
	JSON      json.RawMessage `json:"json,omitempty"`
	Version   string          `json:"version"`
	ExpiresAt string          `json:"expiresAt,omitempty"`
}

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

// newEntry renders an item. A value that is not UTF-8, or not JSON, is given
// in base64 whatever was asked for: one such value among many must not spoil
// the page.
func newEntry(item *tree.Item, f form, keysOnly bool) entryBody {
	e := entryBody{Key: item.Key, Version: item.Version.String()}
	if !item.Expiry.IsZero() {
		e.ExpiresAt = formatTime(item.Expiry)
	}
	if keysOnly {
		return e
	}
	switch {
	case f == formText && utf8.Valid(item.Value):
		text := string(item.Value)
		e.Text = &text
	case f == formJSON && utf8.Valid(item.Value) && json.Valid(item.Value):
		e.JSON = item.Value
	default:
		value := base64.StdEncoding.EncodeToString(item.Value)
		e.Value = &value
	}
	return e
}

func newEntries(items []tree.Item, f form, keysOnly bool) []entryBody {
	entries := make([]entryBody, len(items))
	for i := range items {
		entries[i] = newEntry(&items[i], f, keysOnly)
	}
	return entries
}

// compactJSON returns a document without insignificant space.
func compactJSON(doc []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, doc); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
