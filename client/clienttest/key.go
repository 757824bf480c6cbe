package clienttest

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// single serves the calls for one key.
func (s *Server) single(w http.ResponseWriter, r *http.Request, name, key string) *refusal {
	if f := checkKey(key); f != nil {
		return f
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.get(w, r, name, key)
	case http.MethodPut:
		return s.put(w, r, name, key)
	case http.MethodDelete:
		return s.delete(w, r, name, key)
	}
	return refuse(405, "method_not_allowed", "no such method")
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, name, key string) *refusal {
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	e, ok := s.live(t, key)
	if !ok {
		return refuse(404, "key_not_found", "key %q", key)
	}
	if r.Header.Get("If-None-Match") == `"`+e.version+`"` {
		w.Header().Set("ETag", `"`+e.version+`"`)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	e.write(w, r, http.StatusOK)
	return nil
}

func (e entry) write(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h.Set("ETag", `"`+e.version+`"`)
	h.Set("Content-Type", e.kind)
	h.Set("Content-Length", strconv.Itoa(len(e.value)))
	if !e.expires.IsZero() {
		h.Set("Lattice-Expires-At", e.expires.UTC().Format(time.RFC3339Nano))
	}
	if strings.Contains(r.Header.Get("Want-Content-Digest"), "sha-256") {
		h.Set("Content-Digest", digest(e.value))
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(e.value)
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// body reads a request's body and checks its digest.
func body(r *http.Request, limit int64, code string) ([]byte, *refusal) {
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, refuse(400, "invalid_argument", "body: %v", err)
	}
	if int64(len(b)) > limit {
		return nil, refuse(413, code, "over %d bytes", limit)
	}
	if d := r.Header.Get("Content-Digest"); d != "" && d != digest(b) {
		return nil, refuse(400, "digest_mismatch", "the body has another digest")
	}
	return b, nil
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, name, key string) *refusal {
	value, f := body(r, MaxValueBytes, "value_too_large")
	if f != nil {
		return f
	}
	q := r.URL.Query()
	expires, f := s.expiry(q.Get("ttl"))
	if f != nil {
		return f
	}
	t, f := s.open(name, true)
	if f != nil {
		return f
	}
	old, ok := s.live(t, key)
	if ok && q.Get("mode") == "get-or-set" {
		old.write(w, r, http.StatusOK)
		return nil
	}
	cond := condition{version: strings.Trim(r.Header.Get("If-Match"), `"`), absent: r.Header.Get("If-None-Match") == "*"}
	if f := cond.check(old, ok); f != nil {
		return f
	}
	e := entry{value: value, kind: r.Header.Get("Content-Type"), version: s.version(), expires: expires}
	if e.kind == "" {
		e.kind = "application/octet-stream"
	}
	t.put(key, e)
	w.Header().Set("ETag", `"`+e.version+`"`)
	status := http.StatusOK
	if !ok {
		status = http.StatusCreated
	}
	answer(w, status, map[string]string{"version": e.version})
	return nil
}

// condition of a write.
type condition struct {
	version string
	absent  bool
}

func (c condition) check(old entry, ok bool) *refusal {
	if c.absent && ok || c.version != "" && (!ok || old.version != c.version) {
		f := refuse(412, "version_mismatch", "the condition does not hold")
		if ok {
			f.current = old.version
		}
		return f
	}
	return nil
}

// expiry parses a time to live: Go style or seconds.
func (s *Server) expiry(ttl string) (time.Time, *refusal) {
	if ttl == "" {
		return time.Time{}, nil
	}
	d, err := time.ParseDuration(ttl)
	if secs, e := strconv.ParseFloat(ttl, 64); e == nil {
		d, err = time.Duration(secs*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return time.Time{}, refuse(400, "invalid_argument", "ttl: not a positive duration")
	}
	return s.now().Add(d), nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, name, key string) *refusal {
	t, f := s.open(name, true)
	if f != nil {
		return f
	}
	old, ok := s.live(t, key)
	cond := condition{version: strings.Trim(r.Header.Get("If-Match"), `"`)}
	if f := cond.check(old, ok); f != nil {
		return f
	}
	t.remove(key)
	w.Header().Set("Lattice-Existed", strconv.FormatBool(ok))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
