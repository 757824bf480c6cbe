// Package clienttest serves the HTTP API from memory, for tests of programs
// that use the client package. It keeps to the contract for trees, single
// keys, batches, scans, counts, range deletes, cursors and bulk loads, one request
// at a time; it keeps no history, splits nothing, and forgets everything with the
// process.
// A hook lets a test fail, delay or cut off any request.
package clienttest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The limits of a service with default settings.
const (
	MaxKeyBytes   = 1024
	MaxValueBytes = 64 << 20
	MaxBatchBytes = 4 << 20
	MaxBatchOps   = 10_000
	MaxChunkBytes = 128 << 20
	defaultPage   = 1_000
	maxPage       = 10_000
)

// Server is an http.Handler with the trees it has been given.
type Server struct {
	// Intercept, if set, sees every request first. It answers true if it has
	// dealt with the request itself. Set it before the first request.
	Intercept func(w http.ResponseWriter, r *http.Request) bool
	// Now tells the time for expiries; nil is time.Now.
	Now func() time.Time
	// Token, if set, is demanded of every request.
	Token string

	mu     sync.Mutex
	trees  map[string]*tree
	clock  int
	served map[string]int
}

// tree is one key space.
type tree struct {
	entries map[string]entry
	options map[string]json.RawMessage
	shards  int
	created time.Time
	deleted bool
	// graves are the deleted keys.
	graves map[string]bool
	// loads are the bulk load sessions by operation id.
	loads map[string]*session
	// operations are the atomic batches by operation id, cursors the open ones by
	// theirs.
	operations map[string]named
	cursors    map[string]*cursor
	// splits are all in the past.
	splits []map[string]any
}

// entry is a stored value.
type entry struct {
	value   []byte
	kind    string
	version string
	expires time.Time
}

// New returns a server without trees.
func New() *Server {
	return &Server{trees: map[string]*tree{}, served: map[string]int{}}
}

// Requests returns how many requests of a method and resource were served,
// such as "POST batch", "PUT key", "PUT chunk" or "POST next", intercepted ones left out.
func (s *Server) Requests(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[what]
}

// Len returns how many live keys a tree has.
func (s *Server) Len(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trees[name]; t != nil {
		return len(s.keys(t, bounds{}))
	}
	return 0
}

// Value returns the value of a key.
func (s *Server) Value(name, key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trees[name]; t != nil {
		e, ok := s.live(t, key)
		return e.value, ok
	}
	return nil, false
}

func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// refusal is a problem to answer with.
type refusal struct {
	status  int
	code    string
	detail  string
	key     string
	current string
	// more are members of the problem beside the usual ones.
	more map[string]any
}

// with adds a member to the problem.
func (f *refusal) with(name string, value any) *refusal {
	if f.more == nil {
		f.more = map[string]any{}
	}
	f.more[name] = value
	return f
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, detail: fmt.Sprintf(format, args...)}
}

// Problem writes an error in the form of the API; retryAfter is in seconds,
// 0 for no header.
func Problem(w http.ResponseWriter, status int, code, detail string, retryAfter int) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(retryAfter))
	}
	(&refusal{status: status, code: code, detail: detail}).write(w)
}

func (f *refusal) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	if f.current != "" {
		w.Header().Set("ETag", `"`+f.current+`"`)
	}
	w.WriteHeader(f.status)
	p := map[string]any{"type": "about:blank", "title": http.StatusText(f.status), "status": f.status,
		"code": f.code, "detail": f.detail, "requestId": w.Header().Get("X-Request-Id")}
	if f.key != "" {
		p["key"] = f.key
	}
	maps.Copy(p, f.more)
	_ = json.NewEncoder(w).Encode(p)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Intercept != nil && s.Intercept(w, r) {
		return
	}
	readAhead(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	w.Header().Set("X-Request-Id", fmt.Sprintf("req-%d", s.clock))
	if f := s.route(w, r); f != nil {
		f.write(w)
	}
}

// route splits the path while it is still encoded.
func (s *Server) route(w http.ResponseWriter, r *http.Request) *refusal {
	if s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token {
		return refuse(401, "unauthenticated", "no valid token")
	}
	if r.URL.Path == "/v1/cluster/split-activity" {
		answer(w, http.StatusOK, map[string]any{"inFlight": 0, "reportingTrees": 0, "observedAt": time.Now().UTC().Format(time.RFC3339), "anyInFlight": false})
		return nil
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1/trees")
	if !ok {
		return refuse(404, "route_not_found", "no such resource")
	}
	if path == "" {
		return s.listTrees(w)
	}
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !validName(name) {
		return refuse(400, "invalid_argument", "tree: not a name")
	}
	resource, tail, _ := strings.Cut(rest, "/")
	s.served[r.Method+" "+servedAs(resource, tail)]++
	switch resource {
	case "keys":
		key, err := url.PathUnescape(tail)
		if err != nil {
			return refuse(400, "invalid_argument", "key: bad escape")
		}
		return s.single(w, r, name, key)
	case "key":
		key, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("b64"))
		if err != nil {
			return refuse(400, "invalid_argument", "b64: not base64url")
		}
		return s.single(w, r, name, string(key))
	case "cursors":
		return s.cursorCall(w, r, name, tail)
	case "bulk-loads":
		return s.bulkSession(w, r, name, tail)
	}
	return s.collection(w, r, name, resource)
}

// servedAs names a resource for Requests: in the singular, and the parts of a
// bulk load session and the pages of a cursor by themselves.
func servedAs(resource, tail string) string {
	if _, step, ok := strings.Cut(tail, "/"); ok && (resource == "bulk-loads" || resource == "cursors") {
		resource, _, _ = strings.Cut(step, "/")
	}
	return strings.TrimSuffix(resource, "s")
}

func (s *Server) collection(w http.ResponseWriter, r *http.Request, name, resource string) *refusal {
	switch r.Method + " " + resource {
	case "POST batch-get":
		return s.batchGet(w, r, name)
	case "POST batch":
		return s.batch(w, r, name)
	case "GET entries":
		return s.scan(w, r, name)
	case "DELETE entries":
		return s.deleteRange(w, r, name)
	case "GET count":
		return s.count(w, r, name)
	case "POST bulk-load":
		return s.bulkLoad(w, r, name)
	case "GET diagnostics":
		return s.diagnostics(w, r, name)
	}
	return s.admin(w, r, name, resource)
}

func validName(s string) bool {
	if s == "" || len(s) > 128 || strings.ContainsAny(s[:1], "._-") {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// open returns an active tree, made on demand if create is set.
func (s *Server) open(name string, create bool) (*tree, *refusal) {
	t := s.trees[name]
	switch {
	case t == nil && create:
		t = &tree{entries: map[string]entry{}, shards: 4, created: s.now()}
		s.trees[name] = t
	case t == nil:
		return nil, refuse(404, "tree_not_found", "tree %q", name)
	case t.deleted:
		return nil, refuse(409, "tree_deleted", "tree %q", name)
	}
	return t, nil
}

func (s *Server) live(t *tree, key string) (entry, bool) {
	e, ok := t.entries[key]
	return e, ok && (e.expires.IsZero() || e.expires.After(s.now()))
}

func (t *tree) put(key string, e entry) {
	t.entries[key] = e
	delete(t.graves, key)
}

// remove deletes a key, if it is there, and remembers that.
func (t *tree) remove(key string) {
	if _, ok := t.entries[key]; !ok {
		return
	}
	delete(t.entries, key)
	if t.graves == nil {
		t.graves = map[string]bool{}
	}
	t.graves[key] = true
}

func (s *Server) version() string {
	s.clock++
	return fmt.Sprintf("v%08d", s.clock)
}

func checkKey(key string) *refusal {
	switch {
	case key == "":
		return refuse(400, "invalid_argument", "key: empty")
	case !utf8.ValidString(key):
		return refuse(400, "invalid_argument", "key: not UTF-8")
	case len(key) > MaxKeyBytes:
		return refuse(413, "key_too_long", "key of %d bytes is over the limit of %d", len(key), MaxKeyBytes)
	}
	return nil
}

// bounds is a range of keys.
type bounds struct{ start, end, prefix string }

func (b bounds) contains(key string) bool {
	return key >= b.start && (b.end == "" || key < b.end) && strings.HasPrefix(key, b.prefix)
}

func parseBounds(q url.Values) (bounds, *refusal) {
	b := bounds{q.Get("start"), q.Get("end"), q.Get("prefix")}
	if b.prefix != "" && (b.start != "" || b.end != "") {
		return b, refuse(400, "invalid_argument", "prefix: excludes start and end")
	}
	return b, nil
}

func (s *Server) keys(t *tree, b bounds) []string {
	var keys []string
	for k := range t.entries {
		if _, ok := s.live(t, k); ok && b.contains(k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
