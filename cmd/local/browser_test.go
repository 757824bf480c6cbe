package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesOfOtherSitesAreKeptOut(t *testing.T) {
	called := 0
	o := newOwnPages(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called++ }), []string{"localhost", "workstation"})
	for _, c := range []struct {
		method, host string
		header       []string
		admitted     bool
	}{
		{"PUT", "localhost:8080", nil, true}, {"PUT", "127.0.0.1:8080", nil, true}, {"PUT", "[::1]:8080", nil, true}, {"PUT", "Workstation", nil, true}, {"GET", "lattice.localhost", nil, true}, {"GET", "localhost.", nil, true}, {"GET", "", nil, true},
		{"PUT", "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8080"}, true}, {"PUT", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "same-origin"}, true}, {"GET", "127.0.0.1:8080", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"GET", "evil.example:8080", nil, false}, {"GET", "localhost.evil.example", nil, false}, {"GET", "127.0.0.1.evil.example", nil, false}, {"POST", "evil.example", []string{"Origin", "http://evil.example"}, false},
		{"POST", "127.0.0.1:8080", []string{"Origin", "https://evil.example"}, false}, {"POST", "127.0.0.1:8080", []string{"Origin", "null"}, false}, {"DELETE", "localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, false}, {"POST", "localhost:8080", []string{"Origin", "http://localhost:9999"}, false},
	} {
		r := httptest.NewRequest(c.method, "http://localhost/v1/trees/t/batch", http.NoBody)
		r.Host = c.host
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		w, before := httptest.NewRecorder(), called
		o.ServeHTTP(w, r)
		if admitted := called == before+1; admitted != c.admitted {
			t.Errorf("%s of %s with %v: admitted %v", c.method, c.host, c.header, admitted)
		} else if !admitted && (w.Code != 403 || !strings.Contains(w.Body.String(), `"code":"authorization_denied"`) || w.Header().Get("X-Request-Id") == "") {
			t.Errorf("%s of %s: %d %s", c.method, c.host, w.Code, w.Body)
		}
	}
}
