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

// pathOf returns the path of such an address, percent encoded.
func pathOf(original string) string {
	path, _, _ := strings.Cut(original, "?")
	if !strings.HasPrefix(path, "/") {
		_, rest, _ := strings.Cut(path, "://")
		_, path, _ = strings.Cut(rest, "/")
	}
	return strings.TrimPrefix(path, "/")
}

// survives reports whether a path arrives as it was sent. The host unescapes it
// and reads the result as an address once more, so that another key, or another
// tree, may be meant.
func survives(encoded string) bool {
	path, err := url.PathUnescape(encoded)
	if err != nil {
		return true // the service refuses it
	}
	// Dots between raw slashes are steps of a path; between escaped ones they stay.
	for segment := range strings.SplitSeq(encoded, "/") {
		if part, err := url.PathUnescape(segment); err == nil && part != "" && strings.Trim(part, ".") == "" {
			return false
		}
	}
	return !strings.ContainsAny(path, "#?%\\\u200e\u200f\u202a\u202b\u202c\u202d\u202e") &&
		strings.TrimRight(path, " \t\r\n") == path
}

// damaged reports whether the path of a request is another than the one that the
// caller sent, as far as the platform tells.
func damaged(r *http.Request) bool {
	for _, name := range originals {
		if !survives(pathOf(r.Header.Get(name))) {
			return true
		}
	}
	return false
}

// refuseDamaged answers such a request: it would concern another key, or another
// tree.
func refuseDamaged(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", api.RequestID(r.Header, clock.NewSystem()))
	api.WriteProblem(w, r, &api.Failure{
		Code: api.CodeInvalidArgument,
		Detail: `path: on this host one with # ? % or \ in it, white space at the end, or a segment of dots alone is not handed on as it was sent; ` +
			"give a key as /v1/trees/{tree}/key?b64= in base64url",
	})
}
