package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/mux"
)

// registered returns "METHOD path" of everything that the router answers with
// anything but 404 and 405.
func registered(t *testing.T, s *Server) []string {
	t.Helper()
	methods := []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
	var all []string
	err := s.router.Walk(func(rt *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := rt.GetPathTemplate()
		if err != nil {
			return err
		}
		if template == "/internal" {
			return nil
		}
		path := strings.ReplaceAll(template, "{key:[^/]*}", "{key}")
		for _, method := range methods {
			if answers(s, method, path) {
				all = append(all, method+" "+path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func answers(s *Server, method, path string) bool {
	path = strings.NewReplacer("{tree}", "t", "{key}", "k").Replace(path)
	req, err := http.NewRequest(method, "http://x"+path, http.NoBody)
	if err != nil {
		return false
	}
	rec := &statusOnly{header: http.Header{}}
	s.ServeHTTP(rec, req)
	return rec.status != http.StatusMethodNotAllowed
}

type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header    { return s.header }
func (s *statusOnly) WriteHeader(status int) { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return len(b), nil
}

func TestDocumentAndRouterHaveTheSameRoutes(t *testing.T) {
	r := newRig(t)
	doc := loadDocument(t, r.api.Document())
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("version %s", doc.OpenAPI)
	}
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(documented)
	routed := registered(t, r.api)
	for _, op := range routed {
		if !slices.Contains(documented, op) {
			t.Errorf("%s is routed but not in the document", op)
		}
	}
	for _, op := range documented {
		if !slices.Contains(routed, op) {
			t.Errorf("%s is in the document but not routed", op)
		}
	}
	for _, want := range []string{"HEAD /v1/trees/{tree}/keys/{key}", "PATCH /v1/trees/{tree}", "POST /internal/timers/collect", "GET /openapi.json"} {
		if !slices.Contains(routed, want) {
			t.Errorf("%s is not routed", want)
		}
	}
}

func TestDocumentIsServed(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Version = "1.2.3" })
	got := r.do("GET", "/openapi.json", "").wantStatus(200).wantHeader("Content-Type", jsonType)
	if string(got.body) != string(r.api.Document()) {
		t.Error("another document is served")
	}
	var doc struct{ Info struct{ Version string } }
	if err := json.Unmarshal(got.body, &doc); err != nil || doc.Info.Version != "1.2.3" {
		t.Errorf("info %+v: %v", doc, err)
	}
}

func TestOperationIDsAreUnique(t *testing.T) {
	r := newRig(t)
	seen := map[string]string{}
	for path, item := range loadDocument(t, r.api.Document()).Paths.Map() {
		for method, op := range item.Operations() {
			if other, ok := seen[op.OperationID]; ok || op.OperationID == "" || op.Summary == "" {
				t.Errorf("%s %s and %s share the id %q", method, path, other, op.OperationID)
			}
			seen[op.OperationID] = method + " " + path
		}
	}
}

func TestEveryCodeHasItsMeaning(t *testing.T) {
	for code, m := range meanings {
		if m.status < 400 || m.status > 599 || m.title == "" {
			t.Errorf("%s means %+v", code, m)
		}
	}
	for _, c := range categories {
		if _, ok := meanings[c.code]; !ok {
			t.Errorf("%v has the code %s, which means nothing", c.err, c.code)
		}
	}
}
