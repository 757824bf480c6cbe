package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

const (
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
	timeFormat = "2006-01-02T15:04:05.000Z07:00"
)

// formatTime renders a time for people and programs: RFC 3339, UTC, to the
// millisecond.
func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }

// writeJSON answers with a JSON document.
func writeJSON(w http.ResponseWriter, r *request, status int, v any) error {
	return writeBody(w, r, status, jsonType, mustMarshal(v))
}

// writeBody answers with a whole body, and its digest if that was asked for.
func writeBody(w http.ResponseWriter, r *request, status int, contentType string, body []byte) error {
	if r.wantDigest && r.Method != http.MethodHead {
		w.Header().Set("Content-Digest", digestOf(body))
	}
	writeBuffered(w, r.Request, status, contentType, body)
	return nil
}

func writeBuffered(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		// A client that is gone needs no further word.
		_, _ = w.Write(body)
	}
}

// writeItem answers with a raw value. Values are made by callers and may be
// pages with scripts: the headers keep a browser from running them in the name
// of the service.
func writeItem(w http.ResponseWriter, r *request, item *tree.Item) error {
	if err := r.fits(int64(len(item.Value))); err != nil && r.Method != http.MethodHead {
		return err
	}
	setItemHeaders(w.Header(), item)
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	return writeBody(w, r, http.StatusOK, item.Type, item.Value)
}

func setItemHeaders(h http.Header, item *tree.Item) {
	h.Set("ETag", quoteVersion(item.Version))
	if !item.Expiry.IsZero() {
		h.Set("Lattice-Expires-At", formatTime(item.Expiry))
	}
}
