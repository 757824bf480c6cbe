package clienttest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func decode(r *http.Request, v any) *refusal {
	b, f := body(r, MaxBatchBytes, "request_too_large")
	if f != nil {
		return f
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(400, "invalid_argument", "body: %v", err)
	}
	return nil
}

// wire is an entry in JSON.
type wire struct {
	Key       string     `json:"key"`
	Value     *[]byte    `json:"value,omitempty"`
	Version   string     `json:"version"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

func (e entry) wire(key string, keysOnly bool) wire {
	w := wire{Key: key, Version: e.version}
	if !keysOnly {
		v := slices.Clone(e.value)
		if v == nil {
			v = []byte{}
		}
		w.Value = &v
	}
	if !e.expires.IsZero() {
		at := e.expires.UTC()
		w.ExpiresAt = &at
	}
	return w
}

func (s *Server) batchGet(w http.ResponseWriter, r *http.Request, name string) *refusal {
	var in struct {
		Keys []string `json:"keys"`
	}
	if f := decode(r, &in); f != nil {
		return f
	}
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	found := []wire{}
	for _, k := range in.Keys {
		if f := checkKey(k); f != nil {
			return f
		}
		if e, ok := s.live(t, k); ok {
			found = append(found, e.wire(k, false))
		}
	}
	answer(w, http.StatusOK, map[string]any{"entries": found})
	return nil
}

// op is one operation of a batch.
type op struct {
	Op        string          `json:"op"`
	Key       string          `json:"key"`
	Value     *[]byte         `json:"value"`
	Text      *string         `json:"text"`
	JSON      json.RawMessage `json:"json"`
	TTL       string          `json:"ttl"`
	IfVersion string          `json:"ifVersion"`
	IfAbsent  bool            `json:"ifAbsent"`
}

// result answers an op.
type result struct {
	Key     string `json:"key"`
	Status  string `json:"status"`
	Version string `json:"version,omitempty"`
	Existed bool   `json:"existed,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

func (s *Server) batch(w http.ResponseWriter, r *http.Request, name string) *refusal {
	var in struct {
		Operations  []op   `json:"operations"`
		Atomic      bool   `json:"atomic"`
		OperationID string `json:"operationId"`
	}
	if f := decode(r, &in); f != nil {
		return f
	}
	if in.OperationID != "" && !in.Atomic {
		return refuse(400, "invalid_argument", "operationId: is for atomic batches")
	}
	if len(in.Operations) > MaxBatchOps {
		return refuse(413, "request_too_large", "over %d operations", MaxBatchOps)
	}
	entries := make([]entry, len(in.Operations))
	for i := range in.Operations {
		e, f := s.opEntry(&in.Operations[i])
		if f != nil {
			f.detail = "operations[" + strconv.Itoa(i) + "]: " + f.detail
			return f
		}
		entries[i] = e
	}
	t, f := s.open(name, true)
	if f != nil {
		return f
	}
	if in.Atomic {
		return s.atomic(w, t, in.Operations, entries, in.OperationID)
	}
	results := make([]result, len(in.Operations))
	for i := range in.Operations {
		results[i] = s.apply(t, &in.Operations[i], entries[i])
	}
	answer(w, http.StatusOK, map[string]any{"results": results})
	return nil
}

// opEntry checks an operation's shape and returns what a set stores.
func (s *Server) opEntry(o *op) (entry, *refusal) {
	if o.Key == "" {
		return entry{}, refuse(400, "invalid_argument", "key: empty")
	}
	given := 0
	e := entry{}
	if o.Value != nil {
		given++
		e.value, e.kind = *o.Value, "application/octet-stream"
	}
	if o.Text != nil {
		given++
		e.value, e.kind = []byte(*o.Text), "text/plain; charset=utf-8"
	}
	if o.JSON != nil {
		given++
		var b bytes.Buffer
		_ = json.Compact(&b, o.JSON)
		e.value, e.kind = b.Bytes(), "application/json"
	}
	if o.Op == "delete" && given == 0 && o.TTL == "" && !o.IfAbsent {
		return e, nil
	}
	if o.Op != "set" || given != 1 {
		return e, refuse(400, "invalid_argument", "one of value, text and json belongs to a set, none to a delete")
	}
	at, f := s.expiry(o.TTL)
	e.expires = at
	return e, f
}

func (s *Server) apply(t *tree, o *op, e entry) result {
	if f := checkKey(o.Key); f != nil {
		return result{Key: o.Key, Status: f.code, Detail: f.detail}
	}
	old, ok := s.live(t, o.Key)
	if f := (condition{o.IfVersion, o.IfAbsent}).check(old, ok); f != nil {
		return result{Key: o.Key, Status: f.code, Version: f.current}
	}
	if o.Op == "delete" {
		t.remove(o.Key)
		return result{Key: o.Key, Status: "ok", Existed: ok}
	}
	e.version = s.version()
	t.put(o.Key, e)
	return result{Key: o.Key, Status: "ok", Version: e.version}
}

func (s *Server) scan(w http.ResponseWriter, r *http.Request, name string) *refusal {
	q := r.URL.Query()
	b, f := parseBounds(q)
	if f != nil {
		return f
	}
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	keys := s.keys(t, b)
	if q.Get("reverse") == "true" {
		slices.Reverse(keys)
	}
	keysOnly := q.Get("keysOnly") == "true"
	if strings.Contains(r.Header.Get("Accept"), "application/x-ndjson") {
		s.streamKeys(w, t, keys, keysOnly)
		return nil
	}
	return s.page(w, r, t, keys, keysOnly)
}

func (s *Server) streamKeys(w http.ResponseWriter, t *tree, keys []string, keysOnly bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	for _, k := range keys {
		_ = enc.Encode(t.entries[k].wire(k, keysOnly))
	}
	_ = enc.Encode(map[string]any{"end": true, "count": len(keys)})
}

// page answers one page; its token is the last key given.
func (s *Server) page(w http.ResponseWriter, r *http.Request, t *tree, keys []string, keysOnly bool) *refusal {
	q := r.URL.Query()
	limit := defaultPage
	if l := q.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 || n > maxPage {
			return refuse(400, "invalid_argument", "limit: 1 to %d", maxPage)
		}
		limit = n
	}
	if token := q.Get("pageToken"); token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return refuse(400, "invalid_argument", "pageToken: malformed")
		}
		keys = keys[slices.Index(keys, string(last))+1:]
	}
	out := map[string]any{}
	if len(keys) > limit {
		keys = keys[:limit]
		out["nextPageToken"] = base64.RawURLEncoding.EncodeToString([]byte(keys[limit-1]))
	}
	entries := make([]wire, len(keys))
	for i, k := range keys {
		entries[i] = t.entries[k].wire(k, keysOnly)
	}
	out["entries"] = entries
	answer(w, http.StatusOK, out)
	return nil
}

func (s *Server) deleteRange(w http.ResponseWriter, r *http.Request, name string) *refusal {
	b, f := parseBounds(r.URL.Query())
	if f != nil {
		return f
	}
	if (b == bounds{}) != (r.URL.Query().Get("all") == "true") {
		return refuse(400, "invalid_argument", "give a range, or all=true and no range")
	}
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	keys := s.keys(t, b)
	for _, k := range keys {
		t.remove(k)
	}
	answer(w, http.StatusOK, map[string]int{"deleted": len(keys)})
	return nil
}

func (s *Server) count(w http.ResponseWriter, r *http.Request, name string) *refusal {
	b, f := parseBounds(r.URL.Query())
	if f != nil {
		return f
	}
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	n := len(s.keys(t, b))
	out := map[string]any{"count": n, "mapVersion": 0}
	if r.URL.Query().Get("perShard") == "true" {
		out["shards"] = []map[string]int{{"shard": 0, "count": n}}
	}
	answer(w, http.StatusOK, out)
	return nil
}
