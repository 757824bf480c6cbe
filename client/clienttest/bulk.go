package clienttest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
)

// loaded is one entry of a bulk load.
type loaded struct {
	key string
	entry
}

// readAhead reads the body of a streamed load before the server is locked, for
// it may be made of what the server itself serves meanwhile.
func readAhead(r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/bulk-load") {
		return
	}
	b, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(&failingReader{bytes.NewReader(b), err})
}

// failingReader ends with an error in place of io.EOF, if there is one.
type failingReader struct {
	r   *bytes.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) && f.err != nil {
		err = f.err
	}
	return n, err
}

// bulkLoad serves the one-shot and the streamed load.
func (s *Server) bulkLoad(w http.ResponseWriter, r *http.Request, name string) *refusal {
	raw, f := body(r, math.MaxInt64-1, "request_too_large")
	if f != nil {
		return f
	}
	stream := r.URL.Query().Get("mode") == "stream"
	entries, f := s.bulkEntries(r, raw)
	if f != nil {
		return f
	}
	t, f := s.open(name, true)
	switch {
	case f != nil:
		return f
	case t.openLoad() != nil:
		return refuse(409, "operation_in_progress", "the bulk load session %s is open", t.openLoad().id).with("operationId", t.openLoad().id)
	case !stream && !t.empty():
		return refuse(409, "tree_not_empty", "tree %q holds keys or tombstones", name)
	}
	if !stream {
		slices.SortStableFunc(entries, func(a, b loaded) int { return strings.Compare(a.key, b.key) })
	}
	n, f := checkAscending(entries, "", 0)
	if f != nil && stream {
		// What came before the fault stays.
		s.store(t, entries[:n])
		f.with("acceptedEntryCount", n)
	}
	if f != nil {
		return f
	}
	out, f := accept(r, entries)
	if f != nil {
		return f
	}
	s.store(t, entries)
	out["totalLiveKeys"] = len(s.keys(t, bounds{}))
	answer(w, http.StatusOK, out)
	return nil
}

// empty counts what was deleted too, and what has expired.
func (t *tree) empty() bool { return len(t.entries)+len(t.graves) == 0 }

// checkAscending returns the place of the first entry that does not follow its
// predecessor; before is the key before the first one.
func checkAscending(entries []loaded, before string, offset int) (int, *refusal) {
	for i, e := range entries {
		if e.key <= before {
			f := refuse(422, "bulk_load_order", "key %q follows %q", e.key, before)
			f.key = e.key
			return i, f.with("previousKey", before).with("entryIndex", i+offset)
		}
		before = e.key
	}
	return len(entries), nil
}

// accept counts entries over the limits, or refuses them if that is asked for.
func accept(r *http.Request, entries []loaded) (map[string]any, *refusal) {
	out := map[string]any{"acceptedEntryCount": len(entries)}
	over := 0
	for i := range entries {
		what, code, size, limit := "key", "key_too_long", len(entries[i].key), MaxKeyBytes
		if size <= limit {
			what, code, size, limit = "value", "value_too_large", len(entries[i].value), MaxValueBytes
		}
		if size <= limit {
			continue
		}
		if r.URL.Query().Get("enforceLimits") == "true" {
			f := refuse(413, code, "a %s of %d bytes is over the limit of %d", what, size, limit)
			f.key = entries[i].key
			return nil, f.with("limit", limit)
		}
		if over++; over == 1 {
			out["firstOverLimit"] = map[string]any{"what": what, "key": entries[i].key, "size": size, "limit": limit}
		}
	}
	if over > 0 {
		out["overLimitCount"] = over
	}
	return out, nil
}

func (s *Server) store(t *tree, entries []loaded) {
	version := s.version()
	for _, e := range entries {
		e.version = version
		t.put(e.key, e.entry)
	}
}
