package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
)

const internalToken = "test-token"

func testOptions() options.Options { return options.Default() }

// rig is a server over a fake database, spoken to over real HTTP. Every answer
// is held against the OpenAPI document.
type rig struct {
	t      *testing.T
	db     *fakeDB
	beats  fakeBeats
	api    *Server
	web    *httptest.Server
	logs   *syncBuffer
	router routers.Router

	mu   sync.Mutex
	seen []Exchange
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, db: newFakeDB(), logs: &syncBuffer{}}
	cfg := Config{
		Clock: clock.NewSystem(), Options: testOptions(), Internal: auth.NewInternal(internalToken),
		Logger:  slog.New(slog.NewJSONHandler(r.logs, nil)),
		Beats:   &r.beats,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
		Ticks: map[string]Tick{
			"checkpoint": func(context.Context) (any, error) { return map[string]int{"shards": 3}, nil },
			"collect":    func(context.Context) (any, error) { return map[string]int{"blobs": 1}, nil },
		},
		Observe: func(x Exchange) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen = append(r.seen, x)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	r.api = newServer(cfg, r.db)
	r.web = httptest.NewServer(r.api)
	t.Cleanup(r.web.Close)
	r.router = loadDocument(t, r.api.Document()).router
	return r
}

// document is an OpenAPI document that was read and found valid, and the router
// that it describes. Neither is changed.
type document struct {
	*openapi3.T
	router routers.Router
}

// documents are those read so far, by their text: nearly all rigs have the same,
// and to read it is most of what it takes to make one.
var documents = struct {
	sync.Mutex
	read map[string]document
}{read: map[string]document{}}

func loadDocument(t *testing.T, raw []byte) document {
	t.Helper()
	documents.Lock()
	defer documents.Unlock()
	if d, ok := documents.read[string(raw)]; ok {
		return d
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatalf("load the document: %v", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("the document is not valid: %v", err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatalf("route the document: %v", err)
	}
	d := document{doc, router}
	documents.read[string(raw)] = d
	return d
}

// reply is an answer with its body read.
type reply struct {
	t *testing.T
	*http.Response
	body []byte
}

func (r *rig) do(method, path, body string, header ...string) *reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.web.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	if body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return r.send(req)
}

func (r *rig) send(req *http.Request) *reply {
	r.t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: read the answer: %v", req.Method, req.URL, err)
	}
	got := &reply{r.t, resp, body}
	if resp.Header.Get("X-Request-Id") == "" {
		r.t.Errorf("%s %s: no X-Request-Id", req.Method, req.URL)
	}
	r.checkAgainstDocument(req, got)
	return got
}

// checkAgainstDocument validates status, headers and body of an answer. Keys
// that the document's router cannot match are left out: it decodes too early.
func (r *rig) checkAgainstDocument(req *http.Request, got *reply) {
	r.t.Helper()
	if got.StatusCode == http.StatusMethodNotAllowed {
		return
	}
	plain := req.Clone(context.Background())
	plain.URL, _ = url.Parse(simplePath(req.URL.EscapedPath()) + "?" + req.URL.RawQuery)
	route, params, err := r.router.FindRoute(plain)
	if err != nil {
		if got.StatusCode != http.StatusNotFound && !strings.HasPrefix(plain.URL.Path, "/internal") {
			r.t.Errorf("%s %s: answered %d, not in the document: %v", req.Method, req.URL, got.StatusCode, err)
		}
		return
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: plain, PathParams: params, Route: route},
		Status:                 got.StatusCode, Header: got.Header, Body: io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: !isJSON(got.Header)},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		r.t.Errorf("%s %s: answer %d does not fit the document: %v", req.Method, req.URL, got.StatusCode, err)
	}
}

func isJSON(h http.Header) bool {
	ct := h.Get("Content-Type")
	return ct == jsonType || ct == problemType
}

// simplePath puts a plain key in place of one that the document's router
// would trip over.
func simplePath(path string) string {
	if i := strings.Index(path, "/keys/"); i >= 0 && strings.HasPrefix(path, "/v1/trees/") {
		return path[:i] + "/keys/k"
	}
	return path
}

func (a *reply) wantStatus(status int) *reply {
	a.t.Helper()
	if a.StatusCode != status {
		a.t.Fatalf("%s %s: status %d, want %d; body %.300s", a.Request.Method, a.Request.URL, a.StatusCode, status, a.body)
	}
	return a
}

func (a *reply) wantProblem(status int, code Code) Problem {
	a.t.Helper()
	a.wantStatus(status)
	if ct := a.Header.Get("Content-Type"); ct != problemType {
		a.t.Errorf("Content-Type %q of a problem", ct)
	}
	var p Problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		a.t.Fatalf("problem %s: %v", a.body, err)
	}
	if p.Code != code || p.Status != status || p.RequestID != a.Header.Get("X-Request-Id") || p.Title == "" || p.Type == "" {
		a.t.Errorf("problem %+v, want code %s and status %d", p, code, status)
	}
	// A named batch under way is waited for; a bulk load that is open is not.
	// So may a credential's limit be, and a tree's cap not.
	optional := code == CodeOperationInProgress || code == CodeQuotaExceeded
	if !optional && (a.Header.Get("Retry-After") != "") != (status == http.StatusServiceUnavailable) {
		a.t.Errorf("Retry-After %q on a %d", a.Header.Get("Retry-After"), status)
	}
	return p
}

func (a *reply) wantBody(want string) *reply {
	a.t.Helper()
	if string(a.body) != want {
		a.t.Errorf("%s %s: body %.300q, want %.300q", a.Request.Method, a.Request.URL, a.body, want)
	}
	return a
}

func (a *reply) wantHeader(name, want string) *reply {
	a.t.Helper()
	if got := a.Header.Get(name); got != want {
		a.t.Errorf("%s %s: %s is %q, want %q", a.Request.Method, a.Request.URL, name, got, want)
	}
	return a
}

func decode[T any](a *reply) T {
	a.t.Helper()
	var v T
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		a.t.Fatalf("%s %s: body %.300s: %v", a.Request.Method, a.Request.URL, a.body, err)
	}
	return v
}

// put writes a value and returns its ETag.
func (r *rig) put(path, value string, header ...string) string {
	r.t.Helper()
	got := r.do(http.MethodPut, path, value, header...)
	if got.StatusCode/100 != 2 {
		r.t.Fatalf("PUT %s: %d %s", path, got.StatusCode, got.body)
	}
	return got.Header.Get("ETag")
}
