package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
)

func TestRequestIDs(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "A.b_c-9", strings.Repeat("x", 128)} {
		r.do("GET", "/healthz", "", "X-Request-Id", id).wantHeader("X-Request-Id", id)
	}
	generated := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for _, id := range []string{"", " ", "a b", "a/b", "é", strings.Repeat("x", 129), "<script>", "a,b"} {
		got := r.do("GET", "/healthz", "", "X-Request-Id", id).Header.Get("X-Request-Id")
		if !generated.MatchString(got) {
			t.Errorf("id %q was answered with %q", id, got)
		}
	}
	got := r.do("GET", "/healthz", "", "X-Request-Id", "a", "X-Request-Id", "b").Header.Values("X-Request-Id")
	if len(got) != 1 || !generated.MatchString(got[0]) {
		t.Errorf("two ids were answered with %q", got)
	}
}

func TestUnknownPathsAreProblems(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/trees", "/v1/trees/", "/v1/trees/t/", "/v1/trees/t/keys", "/v1/trees/t/nope", "//v1/trees", "/v1//trees",
		"/v1/trees/../trees", "/v1/./trees", "/healthz/", "/healthz%2F", "/v1/trees/t/cursors/", "/v1/trees/t/cursors/x/y", "/v1/trees/t/bulk-load/x", "/v1/trees/t/splits/0a",
		"/v1/trees/t/reshard/", "/v1/trees/t/diagnostics/x", "/v1/cluster", "/explorer/", "/v1/trees//keys/a", "/internals",
	} {
		r.do("GET", path, "").wantProblem(404, CodeRouteNotFound)
		r.do("POST", path, "{}").wantProblem(404, CodeRouteNotFound)
	}
}

func TestOtherMethodsNameTheAllowedOnes(t *testing.T) {
	r := newRig(t)
	tests := map[string]string{
		k + "a": "DELETE, GET, HEAD, PUT", "/v1/trees/t/key?key=a": "DELETE, GET, HEAD, PUT", tr: "DELETE, GET, HEAD, PATCH, PUT",
		tr + "/entries": "DELETE, GET, HEAD", tr + "/batch": "POST", tr + "/batch-get": "POST", tr + "/count": "GET, HEAD",
		"/v1/trees": "GET, HEAD", "/healthz": "GET, HEAD", "/internal/timers/collect": "POST",
	}
	for path, allow := range tests {
		for _, method := range []string{"OPTIONS", "TRACE", "BREW"} {
			got := r.do(method, path, "")
			got.wantHeader("Allow", allow)
			got.wantProblem(405, CodeMethodNotAllowed)
		}
	}
	r.do("POST", k+"a", "x").wantProblem(405, CodeMethodNotAllowed)
	r.do("PUT", "/healthz", "x").wantProblem(405, CodeMethodNotAllowed)
}

func TestEveryCategoryHasItsStatus(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("read shard: %w", err) }
	tests := map[string]struct {
		err    error
		status int
		code   Code
	}{
		"argument":        {&tree.ArgumentError{Field: "limit", Reason: "bad"}, 400, CodeInvalidArgument},
		"tree not found":  {tree.ErrTreeNotFound, 404, CodeTreeNotFound},
		"tree exists":     {tree.ErrTreeExists, 409, CodeTreeExists},
		"tree deleted":    {tree.ErrTreeDeleted, 409, CodeTreeDeleted},
		"not deleted":     {tree.ErrTreeNotDeleted, 409, CodeTreeExists},
		"mismatch":        {&tree.MismatchError{}, 412, CodeVersionMismatch},
		"key limit":       {&tree.LimitError{What: "key", Key: "k", Size: 9, Limit: 5}, 413, CodeKeyTooLong},
		"value limit":     {&tree.LimitError{What: "value", Key: "k", Size: 9, Limit: 5}, 413, CodeValueTooLarge},
		"storage limit":   {store.ErrTooLarge, 413, CodeRequestTooLarge},
		"routing":         {tree.ErrRoutingUnstable, 503, CodeRoutingUnstable},
		"topology":        {tree.ErrTopologyUnstable, 503, CodeTopologyUnstable},
		"throttled":       {store.ErrThrottled, 503, CodeStorageThrottled},
		"unavailable":     {store.ErrUnavailable, 503, CodeUnavailable},
		"outcome unknown": {store.ErrOutcomeUnknown, 503, CodeUnavailable},
		"deadline":        {context.DeadlineExceeded, 503, CodeUnavailable},
		"cancelled":       {context.Canceled, 503, CodeUnavailable},
		"corrupt":         {store.Corruptf("row 7 of shard x"), 500, CodeInternal},
		"invalid":         {store.ErrInvalid, 500, CodeInternal},
		"unexpected":      {errors.New("password=hunter2"), 500, CodeInternal},
	}
	r := newRig(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r.db.setFail(wrap(tt.err))
			p := r.do("GET", k+"a", "").wantProblem(tt.status, tt.code)
			if strings.Contains(p.Detail, "hunter2") {
				t.Errorf("the detail tells too much: %s", p.Detail)
			}
			if (name == "outcome unknown") != p.OutcomeUnknown {
				t.Errorf("outcomeUnknown is %t", p.OutcomeUnknown)
			}
			if name == "corrupt" && !strings.Contains(p.Detail, "row 7 of shard x") {
				t.Errorf("the detail does not name what is corrupt: %s", p.Detail)
			}
		})
	}
	r.db.setFail(errors.Join(store.ErrOutcomeUnknown, context.DeadlineExceeded))
	if p := r.do("PUT", k+"a", "1").wantProblem(503, CodeUnavailable); !p.OutcomeUnknown {
		t.Error("a lost reply at the deadline is not told")
	}
}

func TestRetryAfterIsTheStoragesAdvice(t *testing.T) {
	r := newRig(t)
	for wait, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", 1500 * time.Millisecond: "2", 7 * time.Second: "7"} {
		r.db.setFail(fmt.Errorf("append: %w", &store.ThrottledError{RetryAfter: wait, Err: errors.New("busy")}))
		got := r.do("GET", k+"a", "").wantHeader("Retry-After", want)
		if p := got.wantProblem(503, CodeStorageThrottled); fmt.Sprint(p.RetryAfter) != want {
			t.Errorf("retryAfter %d, want %s", p.RetryAfter, want)
		}
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	r := newRig(t)
	r.db.setHook(func(_ context.Context, call string) {
		if call == "get" || call == "step" {
			panic("value of a secret")
		}
	})
	r.put(k+"a", "1")
	p := r.do("GET", k+"a", "").wantProblem(500, CodeInternal)
	if strings.Contains(p.Detail, "secret") || p.Tree != "t" {
		t.Errorf("problem %+v", p)
	}
	if !strings.Contains(r.logs.String(), "handler panicked") {
		t.Error("the log does not tell of the panic")
	}
	r.db.setHook(nil)
	r.do("GET", k+"a", "").wantStatus(200)
	if n := r.api.InFlight(); n != 0 {
		t.Errorf("%d requests still count as in work", n)
	}
}

func TestPanicAfterTheHeaderLeavesTheEndOut(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b")
	steps := 0
	r.db.setHook(func(_ context.Context, call string) {
		if call != "step" {
			return
		}
		if steps++; steps == 2 {
			panic("late")
		}
	})
	got := r.do("GET", tr+"/entries", "", "Accept", ndjsonType).wantStatus(200)
	if strings.Contains(string(got.body), `"end"`) {
		t.Errorf("body %s", got.body)
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Options.MaxConcurrentRequests = 2 })
	r.put(k+"a", "1")
	entered, release := make(chan struct{}), make(chan struct{})
	r.db.setHook(func(_ context.Context, call string) {
		if call == "get" {
			entered <- struct{}{}
			<-release
		}
	})
	done := make(chan int, 2)
	for range 2 {
		go func() {
			resp, err := http.Get(r.web.URL + k + "a")
			if err != nil {
				done <- 0
				return
			}
			done <- resp.StatusCode
			_ = resp.Body.Close()
		}()
		<-entered
	}
	r.do("GET", tr+"/count", "").wantProblem(503, CodeUnavailable)
	r.do("GET", "/healthz", "").wantStatus(200)
	r.do("GET", "/readyz", "").wantStatus(200)
	r.do("GET", "/metrics", "").wantStatus(200)
	close(release)
	for range 2 {
		if status := <-done; status != 200 {
			t.Errorf("an admitted request got %d", status)
		}
	}
	r.do("GET", tr+"/count", "").wantStatus(200)
}

func TestServiceEndpoints(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/healthz", "").wantStatus(200).wantBody(`{"status":"ok"}`)
	r.do("GET", "/readyz", "").wantStatus(200).wantBody(`{"status":"ready"}`)
	r.do("GET", "/metrics", "").wantStatus(200).wantBody("up 1\n")
	r.do("HEAD", "/healthz", "").wantStatus(200).wantBody("")
	r.do("GET", "/healthz?x=1", "").wantProblem(400, CodeInvalidArgument)
	r.db.setFail(store.ErrUnavailable)
	r.do("GET", "/healthz", "").wantStatus(200)
	r.do("GET", "/readyz", "").wantProblem(503, CodeUnavailable)
}

func TestInternalEndpointsNeedTheCredential(t *testing.T) {
	r := newRig(t)
	const path = "/internal/timers/checkpoint"
	right := "Bearer " + internalToken
	r.do("POST", path, "", "Authorization", right).wantStatus(200).wantBody(`{"shards":3}`)
	r.do("POST", path, `{"Data":{},"Metadata":{}}`, "Authorization", right).wantStatus(200)
	r.do("POST", "/internal/timers/collect", "", "Authorization", right).wantStatus(200).wantBody(`{"blobs":1}`)
	for _, p := range []string{path, "/internal", "/internal/", "/internal/nope", "/internal/timers/monitor"} {
		r.do("POST", p, "").wantProblem(401, CodeUnauthenticated)
		got := r.do("POST", p, "", "Authorization", "Bearer wrong")
		got.wantHeader("WWW-Authenticate", `Bearer realm="lattice"`)
		got.wantProblem(401, CodeUnauthenticated)
	}
	for _, timer := range []string{"monitor", "migrations", "transactions"} {
		r.do("POST", "/internal/timers/"+timer, "", "Authorization", right).wantProblem(404, CodeRouteNotFound)
	}
	closed := newRig(t, func(c *Config) { c.Internal = auth.Internal{} })
	for _, p := range []string{path, "/internal/nope"} {
		closed.do("POST", p, "").wantProblem(403, CodeAuthorizationDenied)
		closed.do("POST", p, "", "Authorization", right).wantProblem(403, CodeAuthorizationDenied)
	}
	failing := newRig(t, func(c *Config) {
		c.Ticks["collect"] = func(context.Context) (any, error) { return nil, store.ErrThrottled }
	})
	failing.do("POST", "/internal/timers/collect", "", "Authorization", right).wantProblem(503, CodeStorageThrottled)
}

func TestScheduleDoesNotFillTheLog(t *testing.T) {
	r := newRig(t)
	internal := []string{"Authorization", "Bearer " + internalToken}
	r.do("POST", "/internal/timers/checkpoint", "", internal...).wantStatus(200)
	r.web.Close()
	if logs := r.logs.String(); logs != "" {
		t.Errorf("a tick that went well is in the log: %s", logs)
	}
	refusing := newRig(t)
	refusing.do("POST", "/internal/timers/checkpoint", "").wantStatus(401)
	refusing.web.Close()
	if logs := refusing.logs.String(); !strings.Contains(logs, "unauthenticated") {
		t.Errorf("a refused call of a timer is not in the log: %s", logs)
	}
}

func TestLogHasOneLineAndNoSecrets(t *testing.T) {
	r := newRig(t)
	r.do("PUT", k+"hidden-key?ttl=1h", "hidden-value", "Authorization", "Bearer hidden-token", "X-Request-Id", "id-1").wantStatus(201)
	r.do("GET", tr+"/entries?start=hidden-start", "").wantStatus(200)
	r.do("GET", "/hidden-path", "").wantStatus(404)
	r.do("GET", k+"hidden-missing", "").wantStatus(404)
	r.web.Close()
	logs := r.logs.String()
	if strings.Contains(logs, "hidden") {
		t.Errorf("the log tells too much: %s", logs)
	}
	lines := strings.Split(strings.TrimSpace(logs), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines for 4 requests", len(lines))
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"msg": "request", "level": "INFO", "method": "PUT", "route": "/v1/trees/{tree}/keys/{key}", "status": 201.0,
		"tree": "t", "requestId": "id-1", "received": 12.0,
	}
	for name, w := range want {
		if line[name] != w {
			t.Errorf("%s is %v, want %v", name, line[name], w)
		}
	}
	if line["bytes"].(float64) == 0 || line["duration"].(float64) == 0 {
		t.Errorf("line %v", line)
	}
}

func TestObservationsUseRouteTemplates(t *testing.T) {
	r := newRig(t)
	r.do("PUT", k+"a", "1")
	r.do("BREW", "/made/up", "")
	r.web.Close()
	want := []Exchange{{Method: "PUT", Route: "/v1/trees/{tree}/keys/{key}", Status: 201}, {Method: "other", Route: unmatched, Status: 404, Code: CodeRouteNotFound}}
	for i, w := range want {
		got := r.seen[i]
		if got.Method != w.Method || got.Route != w.Route || got.Status != w.Status || got.Code != w.Code || got.Duration <= 0 || got.Sent == 0 {
			t.Errorf("observed %+v, want %+v", got, w)
		}
	}
}

func TestHeadersOverTheLimit(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Options.MaxHeaderBytes = 4096 })
	p := r.do("GET", "/healthz", "", "X-Filler", strings.Repeat("x", 5000)).wantProblem(413, CodeRequestTooLarge)
	if p.Limit != 4096 {
		t.Errorf("limit %d", p.Limit)
	}
	r.do("GET", "/healthz?x="+strings.Repeat("x", 5000), "").wantProblem(413, CodeRequestTooLarge)
	r.do("GET", "/healthz", "", "X-Filler", strings.Repeat("x", 3000)).wantStatus(200)
}

func TestConditionsUnderContentionGiveUpInTime(t *testing.T) {
	r := newRig(t)
	r.put(k+"a", "0")
	tree := r.db.trees["t"]
	attempts := 0
	r.db.setHook(func(_ context.Context, call string) {
		if call == "put" {
			attempts++
			r.db.mu.Lock()
			defer r.db.mu.Unlock()
			tree.set("a", []byte("rival"), defaultType, 0)
		}
	})
	r.do("PUT", k+"a", "mine", "If-Match", "*").wantProblem(503, CodeUnavailable)
	if attempts != maxConditionAttempts {
		t.Errorf("%d attempts", attempts)
	}
	attempts = 0
	r.db.setHook(func(_ context.Context, call string) {
		if attempts++; call == "put" && attempts < 10 {
			r.db.mu.Lock()
			defer r.db.mu.Unlock()
			tree.set("a", []byte("rival"), defaultType, 0)
		}
	})
	r.do("PUT", k+"a", "mine", "If-Match", "*").wantStatus(200)
	r.db.setHook(nil)
	r.do("GET", k+"a", "").wantBody("mine")
}
