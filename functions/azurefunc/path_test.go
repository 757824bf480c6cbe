package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestPathThatDoesNotSurviveIsRefused(t *testing.T) {
	const tree = "/v1/trees/t/keys/"
	for original, served := range map[string]bool{
		"":                                   true,
		"/":                                  true,
		"/healthz":                           true,
		"/v1/trees":                          true,
		tree + "a":                           true,
		tree + "a%2Fb":                       true,
		tree + url.PathEscape("é 🦊!$&'()*+"): true,
		tree + "a?ttl=%25%23":                true,
		tree + "%zz":                         true,
		tree + ".a":                          true,
		"/v1/trees/t/key?b64=JQ":             true,
		"/v1/trees/t/entries?prefix=%23%3F":  true,
		tree + "a%23b":                       false,
		tree + "a%3Fb":                       false,
		tree + "a%3fb?ttl=1h":                false,
		tree + "100%25":                      false,
		tree + "%2541":                       false,
		tree + `a%5Cb`:                       false,
		tree + "a%20":                        false,
		tree + "%2E%2E":                      false,
		tree + ".":                           false,
		tree + "a/%2e%2e/b":                  false,
		tree + "a/./b":                       false,
		tree + "a%2F..%2Fb":                  true,
		tree + "a/..b/c":                     true,
		tree + "a%E2%80%8Fb":                 false,
		tree + "...":                         false,
		tree + "a%23b?x=://y":                false,
		"/v1/trees/t%23x":                    false,
		"/v1/trees/t%23x/keys/a":             false,
		"/v1/trees/t%20":                     false,
		"/v1/trees/%2574":                    false,
		"/v1/trees/x/%2e%2e/t":               false,
		"/v1/tr%65es/t/keys/a%23b":           false,
		"/v1/tr%65es/t/keys/ab":              true,
		"https://app.example.net" + tree + "a%23b": false,
		"https://app.example.net" + tree + "ab":    true,
	} {
		for _, header := range originals {
			reached := false
			h := newHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
			r := httptest.NewRequest("PUT", "http://lattice.test/v1/trees/t/keys/a", strings.NewReader("v"))
			r.Header.Set(header, original)
			r.Header.Set("X-Request-Id", "req-1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if reached != served {
				t.Errorf("%s %q: served %v, want %v", header, original, reached, served)
			}
			var p struct {
				Status                        int
				Type, Code, Detail, RequestID string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &p); !served && (err != nil || w.Code != 400 || p.Status != 400 || p.Code != "invalid_argument" || !strings.Contains(p.Detail, "b64")) {
				t.Errorf("%q was answered with %d %s", original, w.Code, w.Body)
			}
			if !served && (p.Type != "urn:lattice:problem:invalid_argument" || p.RequestID != "req-1" || w.Header().Get("X-Request-Id") != "req-1") {
				t.Errorf("%q: not the form of all errors: %s %v", original, w.Body, w.Header())
			}
		}
	}
}
