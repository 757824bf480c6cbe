package clienttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// ask sends one request and returns status, body and headers.
func ask(t *testing.T, h http.Handler, method, target, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b), w.Result().Header
}

func TestRefusals(t *testing.T) {
	s := New()
	ask(t, s, "PUT", "/v1/trees/t/keys/a", "1")
	for _, tc := range []struct {
		method, target, body string
		status               int
		code                 string
	}{
		{"GET", "/", "", 404, "route_not_found"},
		{"GET", "/v1/trees/_x/keys/a", "", 400, "invalid_argument"},
		{"GET", "/v1/trees/none/keys/a", "", 404, "tree_not_found"},
		{"GET", "/v1/trees/t/keys/none", "", 404, "key_not_found"},
		{"POST", "/v1/trees/t/keys/a", "", 405, "method_not_allowed"},
		{"PUT", "/v1/trees/t/keys/", "", 400, "invalid_argument"},
		{"PUT", "/v1/trees/t/keys/%FF", "", 400, "invalid_argument"},
		{"PUT", "/v1/trees/t/keys/a?ttl=0", "", 400, "invalid_argument"},
		{"GET", "/v1/trees/t/key?b64=!", "", 400, "invalid_argument"},
		{"POST", "/v1/trees/t/batch", "{", 400, "invalid_argument"},
		{"POST", "/v1/trees/t/batch", `{"operations":[{"op":"set","key":"a"}]}`, 400, "invalid_argument"},
		{"POST", "/v1/trees/t/batch", `{"operations":[{"op":"set","key":"a","value":"","x":1}]}`, 400, "invalid_argument"},
		{"POST", "/v1/trees/t/batch", `{"atomic":true,"operations":[{"op":"set","key":"a","value":""},{"op":"set","key":"a","value":""}]}`, 400, "invalid_argument"},
		{"POST", "/v1/trees/t/batch", `{"atomic":true,"operations":[{"op":"set","key":"a","value":"","ifAbsent":true}]}`, 412, "version_mismatch"},
		{"GET", "/v1/trees/t/entries?limit=0", "", 400, "invalid_argument"},
		{"GET", "/v1/trees/t/entries?prefix=a&start=b", "", 400, "invalid_argument"},
		{"DELETE", "/v1/trees/t/entries", "", 400, "invalid_argument"},
		{"POST", "/v1/trees/t/purge", "", 409, "operation_mismatch"},
		{"GET", "/v1/trees/t/nothing", "", 404, "route_not_found"},
	} {
		status, body, h := ask(t, s, tc.method, tc.target, tc.body)
		if status != tc.status || !strings.Contains(body, `"`+tc.code+`"`) || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s", tc.method, tc.target, status, body)
		}
	}
}

func TestExpiredIsAbsent(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := New()
	s.Now = func() time.Time { return now }
	ask(t, s, "PUT", "/v1/trees/t/keys/a?ttl=10", "1")
	if status, _, h := ask(t, s, "GET", "/v1/trees/t/keys/a", ""); status != 200 || h.Get("Lattice-Expires-At") != "2026-01-01T00:00:10Z" {
		t.Fatalf("before: %d, %v", status, h)
	}
	now = now.Add(10 * time.Second)
	if status, _, _ := ask(t, s, "GET", "/v1/trees/t/keys/a", ""); status != 404 || s.Len("t") != 0 {
		t.Fatalf("after: %d, %d keys", status, s.Len("t"))
	}
}

func TestHooks(t *testing.T) {
	s := New()
	s.Token = "x"
	if status, _, _ := ask(t, s, "GET", "/v1/trees", ""); status != 401 {
		t.Fatalf("without token: %d", status)
	}
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == "PUT" {
			Problem(w, 503, "unavailable", "d", 2)
			return true
		}
		return false
	}
	status, body, h := ask(t, s, "PUT", "/v1/trees/t/keys/a", "", "Authorization", "Bearer x")
	if status != 503 || h.Get("Retry-After") != "2" || !strings.Contains(body, "unavailable") || s.Requests("PUT key") != 0 {
		t.Fatalf("%d %s %v", status, body, h)
	}
	if _, ok := s.Value("t", "a"); ok {
		t.Fatal("an intercepted request was carried out")
	}
}

func TestDigestIsChecked(t *testing.T) {
	s := New()
	if status, body, _ := ask(t, s, "PUT", "/v1/trees/t/keys/a", "x", "Content-Digest", digest([]byte("y"))); status != 400 || !strings.Contains(body, "digest_mismatch") {
		t.Fatalf("%d %s", status, body)
	}
	if status, _, _ := ask(t, s, "PUT", "/v1/trees/t/keys/a", "x", "Content-Digest", digest([]byte("x"))); status != 201 {
		t.Fatal(status)
	}
	if v, ok := s.Value("t", "a"); !ok || string(v) != "x" || s.Requests("PUT key") != 2 {
		t.Fatalf("%q, %v, %d requests", v, ok, s.Requests("PUT key"))
	}
}
