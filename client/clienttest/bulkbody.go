package clienttest

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"time"
)

// bulkLine is a line of newline-delimited JSON, or an element of entries.
type bulkLine struct {
	Key         string          `json:"key"`
	Value       *[]byte         `json:"value"`
	Text        *string         `json:"text"`
	JSON        json.RawMessage `json:"json"`
	ContentType *string         `json:"contentType"`
	TTL         string          `json:"ttl"`
	ExpiresAt   *time.Time      `json:"expiresAt"`
	// Version is that of an export, and ignored.
	Version string `json:"version"`
	End     *bool  `json:"end"`
	Count   *int   `json:"count"`
}

// bulkEntries reads the entries of a body.
func (s *Server) bulkEntries(r *http.Request, raw []byte) ([]loaded, *refusal) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/x-ndjson":
		return s.bulkLines(raw)
	case kind != "application/json" || r.URL.Query().Get("mode") == "stream":
		return nil, refuse(400, "invalid_argument", "Content-Type: %q is none of those taken here", kind)
	}
	var in struct {
		Entries []bulkLine `json:"entries"`
	}
	if err := strict(raw, &in); err != nil || in.Entries == nil {
		return nil, refuse(400, "invalid_argument", "body: %v", err)
	}
	var entries []loaded
	for i := range in.Entries {
		e, f := s.bulkEntry(&in.Entries[i])
		if f != nil {
			return nil, f.with("entryIndex", i)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func (s *Server) bulkLines(raw []byte) ([]loaded, *refusal) {
	var entries []loaded
	ended, n := false, 0
	for line := range bytes.Lines(raw) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l bulkLine
		if err := strict(line, &l); err != nil || ended {
			return nil, refuse(400, "invalid_argument", "line %d: malformed", n).with("line", n)
		}
		if l.End != nil {
			if !*l.End || l.Count == nil || *l.Count != len(entries) {
				return nil, refuse(400, "invalid_argument", "line %d: counts other than %d entries", n, len(entries)).with("line", n)
			}
			ended = true
			continue
		}
		e, f := s.bulkEntry(&l)
		if f != nil {
			return nil, f.with("line", n)
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 && !ended {
		return nil, refuse(400, "invalid_argument", "body: missing")
	}
	return entries, nil
}

func (s *Server) bulkEntry(l *bulkLine) (loaded, *refusal) {
	if l.Key == "" || l.TTL != "" && l.ExpiresAt != nil {
		return loaded{}, refuse(400, "invalid_argument", "a key is needed, and at most one of ttl and expiresAt")
	}
	e, f := s.opEntry(&op{Op: "set", Key: l.Key, Value: l.Value, Text: l.Text, JSON: l.JSON, TTL: l.TTL})
	if f != nil {
		return loaded{}, f
	}
	if l.ContentType != nil {
		e.kind = *l.ContentType
	}
	if l.ExpiresAt != nil {
		e.expires = *l.ExpiresAt
	}
	return loaded{l.Key, e}, nil
}
