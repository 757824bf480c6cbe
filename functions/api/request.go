package api

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
)

// request is an HTTP request whose form has been checked.
type request struct {
	*http.Request
	// route is the path template.
	route string
	// query holds each parameter once.
	query map[string]string
	// tree and key are decoded; empty where the route has none.
	tree, key string
	// caller is who asks, once that is known; nil where nobody needs to say.
	caller *auth.Principal
	// most bounds the answer, 0 if the host does not.
	most int64
	// wantDigest says that the answer is to carry its digest.
	wantDigest bool
	// held is what the request counts against MaxBufferedBytes, and loaded the part
	// of it that is values which were read for the answer.
	held, loaded atomic.Int64
}

var treeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// parse checks the query against what the operation declares, and decodes the
// tree of the path. Whatever could make an answer fail is read here, before
// anything is done.
func (r *request) parse(op *operation) (err error) {
	if r.query, err = parseQuery(r.URL.RawQuery, op); err != nil {
		return err
	}
	r.most, _ = r.Context().Value(answerBound{}).(int64)
	if r.wantDigest, err = wantsDigest(r.Header.Values("Want-Content-Digest")); err != nil {
		return err
	}
	raw, ok := mux.Vars(r.Request)["tree"]
	if !ok {
		return nil
	}
	name, err := url.PathUnescape(raw)
	if err != nil {
		return argument("tree", "not percent-encoded")
	}
	if err := checkTreeName(name); err != nil {
		return err
	}
	r.tree = name
	return nil
}

func checkTreeName(name string) error {
	if strings.HasPrefix(name, "_") {
		return failf(CodeAuthorizationDenied, "tree names that begin with _ are reserved for the system")
	}
	if !treeName.MatchString(name) {
		return argument("tree", "a name has 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter or digit")
	}
	return nil
}

// parseQuery reads the query string: every parameter declared, at most once.
func parseQuery(raw string, op *operation) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, argument("query", "not well formed")
	}
	query := make(map[string]string, len(values))
	for name, v := range values {
		if !op.allows(name) {
			return nil, argument("query", "unknown parameter %q", clip(name, 64))
		}
		if len(v) > 1 {
			return nil, argument(name, "given %d times", len(v))
		}
		if !utf8.ValidString(v[0]) {
			return nil, argument(name, "not valid UTF-8")
		}
		query[name] = v[0]
	}
	return query, nil
}

// flag reads a boolean parameter: true or false; absent is false.
func (r *request) flag(name string) (bool, error) {
	switch v, ok := r.query[name]; {
	case !ok || v == "false":
		return false, nil
	case v == "true":
		return true, nil
	}
	return false, argument(name, "must be true or false")
}

// limit reads the parameter limit: 1 to most.
func (r *request) limit(def, most int) (int, error) {
	v, ok := r.query["limit"]
	if !ok {
		return def, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || !isDigits(v) || n < 1 || n > most {
		f := failf(CodeInvalidArgument, "limit: must be 1 to %d", most)
		f.Limit = int64(most)
		return 0, f
	}
	return n, nil
}

// takeKey decodes the key, from the path or from the parameters of the alias,
// and checks it.
func (r *request) takeKey(maxKey int) error {
	key, err := r.rawKey()
	if err != nil {
		return err
	}
	if err := checkKey("key", key, maxKey); err != nil {
		return err
	}
	r.key = key
	return nil
}

func (r *request) rawKey() (string, error) {
	if raw, ok := mux.Vars(r.Request)["key"]; ok {
		return pathKey(raw)
	}
	encoded, b64 := r.query["b64"]
	plain, given := r.query["key"]
	switch {
	case b64 && given:
		return "", argument("key", "given both plain and as b64")
	case b64:
		return decodeKey(encoded)
	case given:
		return plain, nil
	}
	return "", argument("key", "missing: give key or b64")
}

func pathKey(segment string) (string, error) {
	key, err := url.PathUnescape(segment)
	if err != nil {
		return "", argument("key", "the path segment is not percent-encoded")
	}
	return key, nil
}

// decodeKey reads base64url (RFC 4648, section 5), padded or not.
func decodeKey(s string) (string, error) {
	key, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(s, "="))
	if err != nil || strings.ContainsAny(s, "\r\n") {
		return "", argument("b64", "not base64url")
	}
	return string(key), nil
}

// checkKey refuses a key that is empty, too long, or not UTF-8.
func checkKey(field, key string, maxKey int) error {
	if len(key) > maxKey {
		return &tree.LimitError{What: "key", Key: clip(key, maxKey), Size: int64(len(key)), Limit: int64(maxKey)}
	}
	return checkKeyForm(field, key)
}

// checkKeyForm refuses what can be no key, however long keys may be.
func checkKeyForm(field, key string) error {
	if key == "" {
		return argument(field, "must not be empty")
	}
	if !utf8.ValidString(key) {
		return argument(field, "not valid UTF-8")
	}
	return nil
}

// readOptions returns how current the answer must be.
func (r *request) readOptions() (tree.ReadOptions, error) {
	age, err := maxAge(r.Header.Values("Cache-Control"))
	return tree.ReadOptions{MaxAge: age}, err
}

// bounds reads start and end, or prefix, and reports whether the range is
// bounded at all.
func (r *request) bounds() (b tree.Bounds, bounded bool, err error) { return parseBounds(r.query) }

// parseBounds likewise, from whatever holds them by name.
func parseBounds(given map[string]string) (b tree.Bounds, bounded bool, err error) {
	start, hasStart := given["start"]
	end, hasEnd := given["end"]
	prefix, hasPrefix := given["prefix"]
	if hasPrefix && (hasStart || hasEnd) {
		return b, false, argument("prefix", "cannot be combined with start or end")
	}
	if prefix != "" {
		return tree.Prefix(prefix), true, nil
	}
	if end != "" && start > end {
		return b, false, argument("start", "lies after end")
	}
	return tree.Bounds{From: start, To: end}, start != "" || end != "", nil
}
