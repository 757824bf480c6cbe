package service

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/providers/memory"
)

// TestRefusedCallersLeaveNothingInTheStore asks real trees, which a first write
// creates: refusals create none, whatever the credential.
func TestRefusedCallersLeaveNothingInTheStore(t *testing.T) {
	tokens := map[string]string{"none": ""}
	lines := ""
	for name, k := range map[string]auth.Key{
		"reader": {Role: auth.RoleReader, Trees: auth.Patterns{"*"}}, "foreign": {Role: auth.RoleAdmin, Trees: auth.Patterns{"people*"}},
		"writer": {Role: auth.RoleWriter, Trees: auth.Patterns{"orders*"}}, "internal": {Role: auth.RoleInternal},
	} {
		k.Name = name
		secret, line, err := auth.NewKey(k)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = secret
		lines += line + "\n"
	}
	who, err := auth.New(auth.Config{Keys: lines}, clock.NewSystem(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := memory.New(memory.Options{})
	svc, err := New(Config{Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), Auth: who, InternalToken: "inner", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(token, method, path, body string) int {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		svc.Handler().ServeHTTP(w, r)
		_, _ = io.Copy(io.Discard, w.Body)
		return w.Code
	}
	writes := []struct{ method, path, body string }{
		{"PUT", "/v1/trees/orders-1/keys/a", "v"}, {"PUT", "/v1/trees/orders-1/key?key=a", "v"}, {"DELETE", "/v1/trees/orders-1/keys/a", ""},
		{"POST", "/v1/trees/orders-1/batch", `{"operations":[{"op":"set","key":"a","text":"v"}]}`}, {"PUT", "/v1/trees/orders-1", ""},
		{"POST", "/v1/trees/orders-1/bulk-load", `{"entries":[{"key":"a","text":"v"}]}`}, {"PUT", "/v1/trees/orders-1/bulk-loads/op", ""},
		{"POST", "/v1/trees/orders-1/cursors", `{"kind":"delete-range"}`}, {"POST", "/v1/trees/orders-1/reshard", `{"shardCount":8}`},
		{"POST", "/internal/timers/collect", ""},
	}
	for _, w := range writes {
		for name, token := range tokens {
			if name == "writer" || name == "internal" && strings.HasPrefix(w.path, "/internal") || name == "reader" && strings.HasSuffix(w.path, "/cursors") {
				continue
			}
			want := http.StatusForbidden
			if name == "none" {
				want = http.StatusUnauthorized
			}
			if got := ask(token, w.method, w.path, w.body); got != want {
				t.Errorf("%s %s as %s: %d, want %d", w.method, w.path, name, got, want)
			}
		}
	}
	if got := ask(tokens["reader"], "POST", "/v1/trees/orders-1/cursors", `{"kind":"delete-range"}`); got != http.StatusForbidden {
		t.Errorf("a reader opens a delete-range: %d", got)
	}
	if trees, _, err := svc.DB().List(t.Context(), "", 10); err != nil || len(trees) != 0 {
		t.Errorf("refused callers left %v, %v", trees, err)
	}
	if got := ask(tokens["writer"], "PUT", "/v1/trees/orders-1/keys/a", "v"); got != http.StatusCreated {
		t.Errorf("the writer's own tree: %d", got)
	}
	if got := ask(tokens["reader"], "GET", "/v1/trees/orders-1/keys/a", ""); got != http.StatusOK {
		t.Errorf("the reader: %d", got)
	}
	if got := ask(tokens["internal"], "POST", "/internal/timers/collect", ""); got != http.StatusOK {
		t.Errorf("the schedule: %d", got)
	}
}
