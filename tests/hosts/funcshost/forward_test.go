package funcshost

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

func TestPathsChangeOnTheWay(t *testing.T) {
	for raw, want := range map[string]string{
		"/v1/trees/t/keys/plain":     "/v1/trees/t/keys/plain",
		"/v1/trees/t/keys/a%2Fb":     "/v1/trees/t/keys/a%2Fb",
		"/v1/trees/t/keys/a%20b":     "/v1/trees/t/keys/a%20b",
		"/v1/trees/t/keys/%C3%A9":    "/v1/trees/t/keys/%C3%A9",
		"/v1/trees/t/keys/a%23b":     "/v1/trees/t/keys/a",
		"/v1/trees/t/keys/a%3Fb":     "/v1/trees/t/keys/a",
		"/v1/trees/t/keys/a%25b":     "/v1/trees/t/keys/a%25b",
		"/v1/trees/t/keys/a%2541":    "/v1/trees/t/keys/aA",
		"/v1/trees/t/keys/a%252Fb":   "/v1/trees/t/keys/a%2Fb",
		"/v1/trees/t/keys/a%5Cb":     "/v1/trees/t/keys/a/b",
		"/v1/trees/t/keys/a%FFb":     "/v1/trees/t/keys/a%FFb",
		"/v1/trees/t/keys/a%20":      "/v1/trees/t/keys/a",
		"/v1/trees/t/keys/..":        "/v1/trees/t/",
		"/v1/trees/t/keys/%2E%2E":    "/v1/trees/t/",
		"/v1/trees/t/keys//":         "/v1/trees/t/keys//",
		"/v1/%252e%252e/collect":     "/collect",
		"/v1/x%E2%80%8Ey":            "/v1/xy",
		"/v1/%F0%9F%A6%8A/%7E+-;=@:": "/v1/%F0%9F%A6%8A/~+-;=@:",
	} {
		path, err := serverPath(raw)
		if got := forwardedPath(path, false); err != nil || got != want {
			t.Errorf("%s arrives as %s, %v; want %s", raw, got, err, want)
		}
	}
	if _, err := serverPath("/v1/a%00"); err == nil {
		t.Error("a NUL was let through")
	}
}

func TestQueriesChangeOnTheWay(t *testing.T) {
	for raw, want := range map[string]string{
		"":                      "",
		"b64=YQ":                "b64=YQ",
		"a=1&b=2&A=3":           "a=1%2C3&b=2",
		"flag&x=":               "flag=&x=",
		"p=a+b%2Bc%20":          "p=a%20b%2Bc%20",
		"p=%C3%A9%00%23%3F%26":  "p=%C3%A9%00%23%3F%26",
		"p=%ff&q=%zz":           "p=%25ff&q=%25zz",
		"p=a%2Fb":               "p=a%2Fb",
		"&&":                    "",
		"pageToken=a_b-c%3D%3D": "pageToken=a_b-c%3D%3D",
	} {
		if got := forwardedQuery(raw); got != want {
			t.Errorf("%s arrives as %s, want %s", raw, got, want)
		}
	}
}

// lay writes a small function app.
func lay(t *testing.T, level string) *app {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"host.json":            `{"version":"2.0","extensions":{"http":{"routePrefix":""}},"customHandler":{"description":{"defaultExecutablePath":"handler"},"enableForwardingHttpRequest":true}}`,
		"api/function.json":    `{"bindings":[{"type":"httpTrigger","name":"req","authLevel":"` + level + `","route":"v1/{*path}","methods":["get","put"]},{"type":"http","direction":"out","name":"res"}]}`,
		"health/function.json": `{"bindings":[{"type":"httpTrigger","name":"req","authLevel":"anonymous","route":"healthz","methods":["get"]}]}`,
		"tidy/function.json":   `{"bindings":[{"type":"timerTrigger","name":"timer","schedule":"0 * * * * *"}]}`,
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := readApp(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// between is a front with a handler made of a function behind it.
func between(t *testing.T, level string, o Options, handler http.HandlerFunc) (*front, *httptest.Server) {
	t.Helper()
	behind := httptest.NewServer(handler)
	t.Cleanup(behind.Close)
	f := newFront(lay(t, level), strings.TrimPrefix(behind.URL, "http://"), o)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server
}

func call(t *testing.T, method, url string, body io.Reader, header ...string) (int, http.Header, string) {
	t.Helper()
	got := running.Ask(t, http.DefaultClient, method, url, body, header...)
	return got.Status, got.Header, got.Body
}

func TestOnlyRoutesAreForwarded(t *testing.T) {
	reached := ""
	_, server := between(t, "function", Options{Key: "k"}, func(w http.ResponseWriter, r *http.Request) { reached = r.URL.Path })
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/healthz", 200}, {"GET", "/HealthZ/", 200}, {"POST", "/healthz", 404}, {"GET", "/healthz/x", 404}, {"GET", "/", 404},
		{"GET", "/v1/a/b", 401}, {"GET", "/v1/a/b?code=k", 200}, {"GET", "/v1/a/b?code=l", 401}, {"POST", "/v1/a?code=k", 404},
		{"POST", "/tidy", 404}, {"GET", "/internal/x?code=k", 404}, {"GET", "/v1/../tidy?code=k", 404},
	} {
		reached = ""
		status, _, _ := call(t, c.method, server.URL+c.path, nil)
		if status != c.status || (reached != "") != (status == 200) {
			t.Errorf("%s %s: %d, the handler was asked for %q", c.method, c.path, status, reached)
		}
	}
}

func TestBodiesAndHeadersChangeOnTheWay(t *testing.T) {
	var got *http.Request
	var body []byte
	handler := func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "answer")
	}
	f, server := between(t, "anonymous", Options{}, handler)
	status, header, text := call(t, "PUT", server.URL+"/v1/a", strings.NewReader("value"), "Content-Type", "text/plain", "Content-Encoding", "gzip", "X-Twice", "1", "X-Twice", "2", "X-Forwarded-For", "8.8.8.8")
	if status != 201 || header.Get("X-Answer") != "yes" || text != "answer" {
		t.Errorf("%d %v %q", status, header, text)
	}
	h := got.Header
	if string(body) != "value" || got.ContentLength != 5 || h.Get("Content-Type") != "text/plain" || h.Get("Content-Encoding") != "" || h.Get("X-Twice") != "1, 2" {
		t.Errorf("length %d, body %q, header %v", got.ContentLength, body, h)
	}
	if h.Get("X-Arr-Log-Id") == "" || h.Get("X-Azure-Functions-Invocationid") == "" || h.Get("X-Forwarded-For") == "8.8.8.8" || got.Host != strings.TrimPrefix(server.URL, "http://") {
		t.Errorf("host %s, header %v", got.Host, h)
	}
	call(t, "PUT", server.URL+"/v1/a", io.MultiReader(strings.NewReader("value")), "Content-Type", "text/plain")
	if got.ContentLength != 0 || len(body) != 0 || got.Header.Get("Content-Type") != "" || len(got.TransferEncoding) != 0 {
		t.Errorf("a chunked body arrives with length %d, %q and header %v", got.ContentLength, body, got.Header)
	}
	got = nil
	if status, _, _ := call(t, "GET", server.URL+"/v1/a", nil, "X-Name", "é"); status != 500 || got != nil {
		t.Errorf("a header beyond ASCII: %d", status)
	}
	f.options.RefuseChunked = true
	if status, _, _ := call(t, "PUT", server.URL+"/v1/a", io.MultiReader(strings.NewReader("value"))); status != 500 || got != nil {
		t.Errorf("a refused chunked body: %d", status)
	}
}

func TestAnswersAreWholeAndInTime(t *testing.T) {
	let := make(chan struct{})
	f, server := between(t, "anonymous", Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/v1/late" {
			<-let
			return
		}
		panic(http.ErrAbortHandler)
	})
	if status, _, text := call(t, "GET", server.URL+"/v1/cut", nil); status != 500 || text != "" {
		t.Errorf("half an answer became %d %q", status, text)
	}
	f.SetLimit(time.Millisecond)
	if status, _, text := call(t, "GET", server.URL+"/v1/late", nil); status != 502 || text != "" {
		t.Errorf("a late answer became %d %q", status, text)
	}
	close(let)
}

func TestTimersAreCalledAsTheHostDoes(t *testing.T) {
	var got *http.Request
	answers := map[string]string{"/tidy": `{"Outputs":{},"Logs":["done"],"ReturnValue":{"ok":true}}`}
	status := 200
	f, _ := between(t, "anonymous", Options{}, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answers[r.URL.Path])
	})
	done, err := f.Invoke(t.Context(), "tidy", Payload(time.Unix(0, 0), true))
	if err != nil || !done.OK() || len(done.Logs) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if got.Method != "POST" || got.Host != f.address || got.Header.Get("X-Arr-Log-Id") != "" || got.ContentLength != -1 {
		t.Errorf("the call %s %s has header %v", got.Method, got.Host, got.Header)
	}
	status = 503
	if done, err := f.Invoke(t.Context(), "tidy", ""); err == nil || done.Logs != nil {
		t.Errorf("a failed call has logs %q", done.Logs)
	}
	status, answers["/tidy"] = 200, "done"
	if _, err := f.Invoke(t.Context(), "tidy", ""); err == nil {
		t.Error("an answer that is no JSON was taken")
	}
	if _, err := f.Invoke(t.Context(), "api", ""); err == nil {
		t.Error("a function that is no timer was called as one")
	}
}
