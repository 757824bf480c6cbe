package main

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/functions/api"
)

// originals are the headers in which the platform tells the path as it was sent.
var originals = []string{"X-Original-Url", "X-Waws-Unencoded-Url"}

// keyInPath returns the key that the original path of a request names, percent
// encoded, and whether it names one.
func keyInPath(original string) (key string, ok bool) {
	if at := strings.Index(original, "://"); at >= 0 {
		_, rest, _ := strings.Cut(original[at+len("://"):], "/")
		original = rest
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(original, "/"), "?")
	segments := strings.SplitN(path, "/", 5)
	if len(segments) < 5 || segments[1] != "trees" || segments[3] != "keys" {
		return "", false
	}
	return segments[4], true
}

// survives reports whether a key in a path arrives as it was sent. The host
// unescapes the path and reads the result as an address once more.
func survives(encoded string) bool {
	key, err := url.PathUnescape(encoded)
	if err != nil {
		return true // the service refuses it
	}
	// Dots between raw slashes are steps of a path; between escaped ones they stay.
	for segment := range strings.SplitSeq(encoded, "/") {
		if part, err := url.PathUnescape(segment); err == nil && (part == "." || part == "..") {
			return false
		}
	}
	return !strings.ContainsAny(key, "#?%\\\u200e\u200f\u202a\u202b\u202c\u202d\u202e") &&
		strings.TrimRight(key, " \t\r\n") == key && strings.Trim(key, ".") != ""
}

// damaged reports whether the key of a request is another than the one that the
// caller named in the path, as far as the platform tells.
func damaged(r *http.Request) bool {
	for _, name := range originals {
		if key, ok := keyInPath(r.Header.Get(name)); ok && !survives(key) {
			return true
		}
	}
	return false
}

// refuseDamaged answers such a request: it would read or write another key.
func refuseDamaged(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", api.RequestID(r.Header, clock.NewSystem()))
	api.WriteProblem(w, r, &api.Failure{
		Code: api.CodeInvalidArgument,
		Detail: `key: on this host a key with one of # ? % \, white space at the end, or a segment of dots alone does not survive in a path; ` +
			"give it as /v1/trees/{tree}/key?b64= and the key in base64url",
	})
}
