package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
)

// roleOf is what each operation needs, written down a second time: a change of
// the table of routes is a change of rights, and is to be made twice.
var roleOf = map[string]string{
	"healthz": "", "readyz": "", "openapi": "", "metrics": "reader of all, or internal",
	"getKey": "reader", "getKeyAlias": "reader", "putKey": "writer", "putKeyAlias": "writer", "deleteKey": "writer", "deleteKeyAlias": "writer",
	"batchGet": "reader", "batch": "writer", "listEntries": "reader", "deleteEntries": "writer", "count": "reader",
	"openCursor": "reader", "nextPage": "reader", "closeCursor": "reader",
	"listTrees": "reader of some", "createTree": "admin", "getTree": "reader", "patchTree": "admin", "deleteTree": "admin", "recoverTree": "admin", "purgeTree": "admin",
	"getShardMap": "reader", "getSplits": "reader", "reshard": "admin", "getReshard": "reader", "getSplitActivity": "reader of all", "getTimers": "reader of all", "getDiagnostics": "reader",
	"bulkLoad": "writer", "beginBulkLoad": "writer", "listBulkLoads": "reader", "getBulkLoad": "reader", "abortBulkLoad": "writer", "appendBulkLoad": "writer", "commitBulkLoad": "writer",
	"tick-checkpoint": "internal", "tick-collect": "internal",
}

// guardedRig is a rig with credentials.
type guardedRig struct {
	*rig
	tokens map[string]string
	// calls counts what reached the database, ticks what ran.
	calls, ticks atomic.Int64
}

// keyring draws a key for each name of the form ROLE TREES.
func keyring(t *testing.T, limits auth.Limits, names ...string) (tokens map[string]string, lines string) {
	t.Helper()
	tokens = map[string]string{}
	for i, name := range names {
		role, trees, _ := strings.Cut(name, " ")
		k := auth.Key{Name: fmt.Sprintf("k%d", i), Limits: limits}
		var err error
		if k.Role, err = auth.ParseRole(role); err != nil {
			t.Fatal(err)
		}
		if trees != "" {
			if k.Trees, err = auth.ParsePatterns(trees); err != nil {
				t.Fatal(err)
			}
		}
		secret, line, err := auth.NewKey(k)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = secret
		lines += line + "\n"
	}
	return tokens, lines
}

func newGuardedRig(t *testing.T, cfg auth.Config, names ...string) *guardedRig {
	t.Helper()
	g := &guardedRig{}
	var lines string
	g.tokens, lines = keyring(t, auth.Limits{}, names...)
	cfg.Keys += lines
	a, err := auth.New(cfg, clock.NewSystem(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.rig = newRig(t, func(c *Config) {
		c.Auth = a
		for name, tick := range c.Ticks {
			c.Ticks[name] = func(ctx context.Context) (any, error) {
				g.ticks.Add(1)
				return tick(ctx)
			}
		}
	})
	for _, name := range []string{"orders-1", "people", "Orders"} {
		if _, _, err := g.db.Create(t.Context(), name, tree.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	g.db.setHook(func(context.Context, string) { g.calls.Add(1) })
	return g
}

// ask sends a request past the network.
func (g *guardedRig) ask(method, path, token, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", jsonType)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	g.api.ServeHTTP(w, req)
	return w
}

func TestEveryRouteDeclaresItsRole(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	for _, rt := range r.api.routes() {
		for _, op := range rt.ops {
			seen[op.id] = true
			want, known := roleOf[op.id]
			if !known {
				t.Errorf("%s %s (%s) is not in the table of this test", op.method, rt.path, op.id)
				continue
			}
			role, _, _ := strings.Cut(want, " ")
			if op.access.String() != role || op.access.public != (role == "") {
				t.Errorf("%s needs %q, want %q", op.id, op.access, want)
			}
			if inTree := strings.Contains(rt.path, "{tree}"); inTree && op.access.reach != oneTree {
				t.Errorf("%s does not ask for the tree of its path", op.id)
			}
			if strings.HasPrefix(rt.path, "/internal") != (op.access == onlyInternal) {
				t.Errorf("%s is internal: %v", op.id, op.access == onlyInternal)
			}
		}
	}
	for id := range roleOf {
		if !seen[id] {
			t.Errorf("%s is not a route any more", id)
		}
	}
	if (access{}).permits(&auth.Principal{Role: auth.RoleAdmin, Trees: auth.Patterns{"*"}}) || r.api.withoutCredentials(&request{}, access{}) == nil {
		t.Error("an operation that declares nothing is open")
	}
}

func TestDocumentShowsRoles(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := newRig(t)
		if on {
			r = newGuardedRig(t, auth.Config{}, "reader *").rig
		}
		doc := loadDocument(t, r.api.Document())
		for path, item := range doc.Paths.Map() {
			for method, op := range item.Operations() {
				id := strings.TrimPrefix(op.OperationID, "head-")
				role, _, _ := strings.Cut(roleOf[id], " ")
				if role == "" {
					if op.Security == nil || len(*op.Security) != 0 {
						t.Errorf("%s %s: public, with security %v", method, path, op.Security)
					}
					continue
				}
				scheme := schemeBearer
				if role == "internal" {
					scheme = schemeInternal
				}
				if op.Security == nil || len(*op.Security) == 0 || !slices.Equal((*op.Security)[0][scheme], []string{role}) || op.Extensions["x-lattice-role"] != role {
					t.Errorf("%s %s: security %v, want %s", method, path, op.Security, role)
					continue
				}
				optional := slices.ContainsFunc(*op.Security, func(m openapi3.SecurityRequirement) bool { return len(m) == 0 })
				if want := !on && role != "internal"; optional != want {
					t.Errorf("%s %s: may be called without a credential: %v, want %v", method, path, optional, want)
				}
				for _, status := range []int{401, 403, 429} {
					if op.Responses.Status(status) == nil {
						t.Errorf("%s %s: %d is not described", method, path, status)
					}
				}
			}
		}
	}
}

// mayCall is the rule of the table.
func mayCall(needs, credential string, tree string) bool {
	role, trees, _ := strings.Cut(credential, " ")
	needed, reach, _ := strings.Cut(needs, " ")
	switch {
	case needs == "":
		return true
	case role == "internal":
		return needed == "internal" || strings.Contains(reach, "internal")
	case needed == "internal" || role == "":
		return false
	}
	ranks := []string{"reader", "writer", "admin"}
	if slices.Index(ranks, role) < slices.Index(ranks, needed) {
		return false
	}
	switch reach {
	case "of some":
		return true
	case "":
		return trees == "*" || strings.HasPrefix(tree, "orders")
	}
	return trees == "*"
}

func TestEveryRouteForEveryRoleAndTree(t *testing.T) {
	credentials := []string{"", "reader orders*", "writer orders*", "admin orders*", "reader *", "writer *", "admin *", "internal"}
	g := newGuardedRig(t, auth.Config{}, credentials[1:]...)
	granted, refused := 0, 0
	for _, rt := range g.api.routes() {
		for _, op := range rt.ops {
			methods := []string{op.method}
			if op.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			for _, name := range []string{"orders-1", "orders-none", "people", "none", "Orders"} {
				path := strings.NewReplacer("{tree}", name, "{key}", "k", "{operationId}", "op", "{cursorId}", "c", "{index}", "0").Replace(rt.path)
				for _, credential := range credentials {
					for _, method := range methods {
						call := fmt.Sprintf("%s %s as %q", method, path, credential)
						before, ticks := g.calls.Load(), g.ticks.Load()
						w := g.ask(method, path, g.tokens[credential], "{}")
						switch {
						case mayCall(roleOf[op.id], credential, name):
							granted++
							if w.Code == 401 || w.Code == 403 {
								t.Errorf("%s: %d %s", call, w.Code, w.Body)
							}
							continue
						case credential == "":
							wantChallenge(t, call, w, 401, `Bearer realm="lattice"`)
						default:
							wantChallenge(t, call, w, 403, `Bearer realm="lattice", error="insufficient_scope"`)
						}
						refused++
						if g.calls.Load() != before || g.ticks.Load() != ticks {
							t.Errorf("%s: reached the data though it is refused", call)
						}
					}
				}
			}
		}
	}
	if granted < 500 || refused < 500 {
		t.Errorf("%d grants and %d refusals are no table", granted, refused)
	}
	for _, secret := range g.tokens {
		if strings.Contains(g.logs.String(), secret) {
			t.Fatal("a token is in the log")
		}
	}
	if !strings.Contains(g.logs.String(), `"credential":"key:k0"`) {
		t.Error("the log does not name the credential")
	}
}

func wantChallenge(t *testing.T, name string, w *httptest.ResponseRecorder, status int, challenge string) {
	t.Helper()
	if w.Code != status || w.Header().Get("WWW-Authenticate") != challenge {
		t.Errorf("%s: %d with %q, want %d with %q", name, w.Code, w.Header().Get("WWW-Authenticate"), status, challenge)
	}
}

func TestForeignTreesAreAllAlike(t *testing.T) {
	g := newGuardedRig(t, auth.Config{}, "admin orders*")
	answer := func(tree string) string {
		w := g.ask("GET", "/v1/trees/"+tree, g.tokens["admin orders*"], "")
		w.Header().Del("X-Request-Id")
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		p.RequestID, p.Tree = "", ""
		return fmt.Sprint(w.Code, w.Header(), p)
	}
	// One exists, one does not; both are as long, so that all headers compare.
	if there, absent := answer("people"), answer("nobody"); there != absent || !strings.HasPrefix(there, "403") {
		t.Errorf("a tree that exists answers\n%s\nand one that does not\n%s", there, absent)
	}
}

func TestListOfTreesShowsTheCallersAlone(t *testing.T) {
	g := newGuardedRig(t, auth.Config{}, "reader orders*", "reader *", "reader zebra", "admin internal-*,o*-5")
	for i := range 10 {
		for _, prefix := range []string{"hidden", "orders", "other"} {
			if w := g.ask("PUT", fmt.Sprintf("/v1/trees/%s-%d", prefix, i), "", ""); w.Code != 401 {
				t.Fatal(w.Code)
			}
			if _, _, err := g.db.Create(t.Context(), fmt.Sprintf("%s-%d", prefix, i), tree.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func(credential, query string) (names []string, next string) {
		t.Helper()
		w := g.ask("GET", "/v1/trees"+query, g.tokens[credential], "")
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var body treesBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		for _, tree := range body.Trees {
			names = append(names, tree.Name)
		}
		return names, body.NextPageToken
	}
	walk := func(credential string, limit int) (all []string) {
		t.Helper()
		query := fmt.Sprintf("?limit=%d", limit)
		for token := ""; ; {
			names, next := list(credential, query+token)
			all = append(all, names...)
			if next == "" {
				return all
			}
			if len(names) != limit {
				t.Fatalf("a page of %d and more to come", len(names))
			}
			token = "&pageToken=" + next
		}
	}
	for _, limit := range []int{1, 3, 5, 10, 100} {
		if got := walk("reader orders*", limit); len(got) != 10 || got[0] != "orders-0" || got[9] != "orders-9" {
			t.Errorf("limit %d: %v", limit, got)
		}
		if got := walk("admin internal-*,o*-5", limit); !slices.Equal(got, []string{"orders-5", "other-5"}) {
			t.Errorf("limit %d: %v", limit, got)
		}
		if got := walk("reader *", limit); len(got) != 32 {
			t.Errorf("limit %d: %d of all", limit, len(got))
		}
	}
	// Nothing follows the last of one's own, whatever others there are.
	if names, next := list("reader orders*", "?limit=10"); len(names) != 10 || next != "" {
		t.Errorf("%d names, token %q", len(names), next)
	}
	if names, next := list("reader zebra", ""); len(names) != 0 || next != "" {
		t.Errorf("%v, token %q", names, next)
	}
}

func TestReadersCursorsDeleteNothing(t *testing.T) {
	g := newGuardedRig(t, auth.Config{}, "reader *", "writer *")
	reader, writer := g.tokens["reader *"], g.tokens["writer *"]
	const at = "/v1/trees/orders-1/"
	if w := g.ask("PUT", at+"keys/a", writer, "v"); w.Code != 201 {
		t.Fatal(w.Code, w.Body)
	}
	open := func(token, kind string) (int, string) {
		w := g.ask("POST", at+"cursors", token, `{"kind":"`+kind+`"}`)
		var body cursorBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		return w.Code, body.CursorID
	}
	if status, _ := open(reader, "delete-range"); status != 403 {
		t.Errorf("a reader opens a delete-range: %d", status)
	}
	status, id := open(writer, "delete-range")
	if status != 201 {
		t.Fatal(status)
	}
	if w := g.ask("POST", at+"cursors/"+id+"/next", reader, ""); w.Code != 403 {
		t.Errorf("a reader advances a delete-range: %d", w.Code)
	}
	if w := g.ask("POST", at+"cursors/unknown/next", reader, ""); w.Code != 404 {
		t.Errorf("an unknown cursor: %d", w.Code)
	}
	if w := g.ask("GET", at+"keys/a", reader, ""); w.Code != 200 {
		t.Fatalf("the key is gone: %d", w.Code)
	}
	if status, id := open(reader, "entries"); status != 201 {
		t.Errorf("a reader's own cursor: %d", status)
	} else if w := g.ask("POST", at+"cursors/"+id+"/next", reader, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"a"`) {
		t.Errorf("its page: %d %s", w.Code, w.Body)
	}
	if w := g.ask("POST", at+"cursors/"+id+"/next", writer, ""); w.Code != 200 {
		t.Errorf("the writer's page: %d", w.Code)
	}
	if w := g.ask("GET", at+"keys/a", reader, ""); w.Code != 404 {
		t.Errorf("the writer's cursor deleted nothing: %d", w.Code)
	}
}

func TestMetricsCanBePublic(t *testing.T) {
	g := newGuardedRig(t, auth.Config{PublicMetrics: true}, "reader *")
	if w := g.ask("GET", "/metrics", "", ""); w.Code != 200 {
		t.Errorf("metrics: %d", w.Code)
	}
	if w := g.ask("GET", "/v1/trees", "", ""); w.Code != 401 {
		t.Errorf("the rest: %d", w.Code)
	}
}

func TestProcessTokenIsForInternalEndpointsAlone(t *testing.T) {
	g := newGuardedRig(t, auth.Config{}, "admin *", "internal")
	for path, want := range map[string]int{"/internal/timers/collect": 200, "/internal/nope": 404} {
		for name, token := range map[string]string{"process": internalToken, "key": g.tokens["internal"]} {
			if w := g.ask("POST", path, token, ""); w.Code != want {
				t.Errorf("%s with the %s: %d, want %d", path, name, w.Code, want)
			}
		}
		if w := g.ask("POST", path, g.tokens["admin *"], ""); w.Code != 403 {
			t.Errorf("%s as admin: %d", path, w.Code)
		}
	}
	if w := g.ask("GET", "/v1/trees", internalToken, ""); w.Code != 401 {
		t.Errorf("the process's token lists trees: %d", w.Code)
	}
	if w := g.ask("GET", "/metrics", internalToken, ""); w.Code != 200 {
		t.Errorf("metrics: %d", w.Code)
	}
	if n := g.ticks.Load(); n != 2 {
		t.Errorf("%d ticks ran", n)
	}
}

func TestCredentialsAreLimited(t *testing.T) {
	tokens, lines := keyring(t, auth.Limits{Concurrent: 1}, "writer *")
	rates, more := keyring(t, auth.Limits{Rate: 0.01, Burst: 2}, "reader *")
	a, err := auth.New(auth.Config{Keys: lines + strings.Replace(more, "k0", "k1", 1)}, clock.NewSystem(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.Auth = a })
	with := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	for range 2 {
		r.do("GET", "/v1/trees", "", with(rates["reader *"])...).wantStatus(200)
	}
	limited := r.do("GET", "/v1/trees", "", with(rates["reader *"])...)
	if p := limited.wantProblem(429, CodeQuotaExceeded); p.RetryAfter < 90 || p.RetryAfter > 100 || limited.Header.Get("Retry-After") != fmt.Sprint(p.RetryAfter) {
		t.Errorf("try again after %d, header %q", p.RetryAfter, limited.Header.Get("Retry-After"))
	}
	r.do("GET", "/healthz", "", with(rates["reader *"])...).wantStatus(200)

	// A refusal takes no place for good.
	r.do("PUT", "/v1/trees/t", "", with(tokens["writer *"])...).wantProblem(403, CodeAuthorizationDenied)
	r.do("GET", "/v1/trees", "", with(tokens["writer *"])...).wantStatus(200)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.db.setHook(func(context.Context, string) {
		once.Do(func() {
			close(entered)
			<-release
		})
	})
	done := make(chan int)
	go func() { done <- r.do("PUT", "/v1/trees/t/keys/a", "v", with(tokens["writer *"])...).StatusCode }()
	<-entered
	r.do("PUT", "/v1/trees/t/keys/b", "v", with(tokens["writer *"])...).wantProblem(429, CodeQuotaExceeded)
	close(release)
	if status := <-done; status != 201 {
		t.Errorf("the first: %d", status)
	}
	r.do("GET", "/v1/trees/t/keys/b", "", with(tokens["writer *"])...).wantProblem(404, CodeKeyNotFound)
}
