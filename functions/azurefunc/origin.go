package main

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/latticekv/lattice/functions/tick"
)

// outside are headers that the front end of the platform puts on every request
// from outside, and the host hands on. Its own calls have none of them.
var outside = []string{"X-Arr-Log-Id", "X-Forwarded-For", "X-Original-Url", "Disguised-Host"}

// invoked returns the timer that the host itself calls, or "".
//
// The host's routes alone do not keep others out: it rebuilds a path from its
// unescaped form, so that /v1/%252e%252e/collect arrives as /collect. But it
// keeps the Host of a forwarded request, while its own calls are for the address
// at which this program listens.
func invoked(r *http.Request) string {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if r.Method != http.MethodPost || !slices.Contains(tick.Names(), name) {
		return ""
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || r.Host != at.String() {
		return ""
	}
	for _, header := range outside {
		if r.Header.Get(header) != "" {
			return ""
		}
	}
	return name
}

// keyParameter is where a caller may put a key of the function app. The host
// hands it on; the service would refuse it as unknown.
const keyParameter = "code"

// withoutKey returns the request without keys of the function app.
func withoutKey(r *http.Request) *http.Request {
	if !strings.Contains(strings.ToLower(r.URL.RawQuery), keyParameter+"=") {
		return r
	}
	var kept []string
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || !strings.EqualFold(plain, keyParameter) {
			kept = append(kept, part)
		}
	}
	stripped := *r.URL
	stripped.RawQuery = strings.Join(kept, "&")
	r = r.WithContext(r.Context())
	r.URL = &stripped
	return r
}
