package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// traced is a service whose spans are kept, spoken to without a connection: when
// a call returns, its spans have ended.
type traced struct {
	t     *testing.T
	svc   *Service
	spans *tracetest.InMemoryExporter
}

// unconnected is newTraced without a server, which a bubble of virtual time cannot
// have.
func newTraced(t *testing.T, table store.Table, blobs store.BlobStore, change ...func(*Config)) *traced {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	cfg := Config{
		Table: table, Blobs: blobs, Options: options.Default(), InternalToken: token, Version: "test",
		Logger: slog.New(slog.DiscardHandler), Telemetry: telemetry.Through(provider),
	}
	for _, f := range change {
		f(&cfg)
	}
	svc, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &traced{t, svc, spans}
}

func tracedOnMemory(t *testing.T, change ...func(*Config)) *traced {
	m := memory.New(memory.Options{})
	return newTraced(t, m.Table(), m.Blobs(), change...)
}

func (x *traced) call(method, path, body string, header ...string) (int, string) {
	req := httptest.NewRequest(method, "http://lattice.test"+path, strings.NewReader(body))
	for h := 0; h+1 < len(header); h += 2 {
		req.Header.Add(header[h], header[h+1])
	}
	w := httptest.NewRecorder()
	x.svc.Handler().ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

func (x *traced) want(status int, method, path, body string, header ...string) {
	x.t.Helper()
	if got, answer := x.call(method, path, body, header...); got != status {
		x.t.Fatalf("%s %s: status %d, want %d: %.300s", method, path, got, status, answer)
	}
}

func (x *traced) tick(timer string) {
	x.t.Helper()
	x.want(200, "POST", "/internal/timers/"+timer, "", "Authorization", "Bearer "+token)
}

// named returns the spans of a name.
func (x *traced) named(name string) []tracetest.SpanStub {
	var found []tracetest.SpanStub
	for _, s := range x.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// only returns the one span of a name.
func (x *traced) only(name string) tracetest.SpanStub {
	x.t.Helper()
	found := x.named(name)
	if len(found) != 1 {
		x.t.Fatalf("%d spans %q among %s", len(found), name, x.names())
	}
	return found[0]
}

func (x *traced) names() []string {
	var names []string
	for _, s := range x.spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

func attributes(s *tracetest.SpanStub) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

func within(child, parent *tracetest.SpanStub) bool {
	return child.SpanContext.TraceID() == parent.SpanContext.TraceID() && child.Parent.SpanID() == parent.SpanContext.SpanID()
}

func expectAttributes(t *testing.T, s *tracetest.SpanStub, want map[attribute.Key]any) {
	t.Helper()
	got := attributes(s)
	for key, value := range want {
		if got[key] != value {
			t.Errorf("span %s: %s is %v, want %v", s.Name, key, got[key], value)
		}
	}
}

const callersTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestThePutOfAKeyIsATreeOfSpans(t *testing.T) {
	x := tracedOnMemory(t)
	x.want(201, "PUT", "/v1/trees/t/keys/first", "v")
	x.spans.Reset()
	x.want(201, "PUT", "/v1/trees/t/keys/second", "value", "X-Request-Id", "id-7", "Traceparent", callersTrace)
	request := x.only("PUT /v1/trees/{tree}/keys/{key}")
	if request.SpanKind != trace.SpanKindServer || request.Status.Code != codes.Unset {
		t.Errorf("kind %s, status %v", request.SpanKind, request.Status)
	}
	if request.SpanContext.TraceID().String() != callersTrace[3:35] || request.Parent.SpanID().String() != callersTrace[36:52] || !request.Parent.IsRemote() {
		t.Errorf("the caller's trace is not continued: %s below %s", request.SpanContext.TraceID(), request.Parent.SpanID())
	}
	expectAttributes(t, &request, map[attribute.Key]any{
		"http.request.method": "PUT", "http.route": "/v1/trees/{tree}/keys/{key}", "http.response.status_code": int64(201),
		"lattice.tree": "t", "lattice.request_id": "id-7",
	})
	appended := x.only("shard append")
	if !within(&appended, &request) || len(appended.Links) != 0 {
		t.Errorf("the append is below %s, with the links %v", appended.Parent.SpanID(), appended.Links)
	}
	expectAttributes(t, &appended, map[attribute.Key]any{
		"lattice.tree": "t", "lattice.append.records": int64(1), "lattice.append.requests": int64(1), "lattice.append.outcome": "landed",
	})
	if a := attributes(&appended); a["lattice.append.bytes"].(int64) < 10 || a["lattice.shard"] == nil {
		t.Errorf("attributes %v", a)
	}
	apply := x.only("storage table_apply")
	if !within(&apply, &appended) || apply.SpanKind != trace.SpanKindClient {
		t.Errorf("the storage operation is below %s", apply.Parent.SpanID())
	}
	expectAttributes(t, &apply, map[attribute.Key]any{
		"db.operation.name": "table_apply", "lattice.storage.outcome": "ok",
		"lattice.storage.bytes": attributes(&appended)["lattice.append.bytes"], "lattice.shard": attributes(&appended)["lattice.shard"],
	})
}

func TestTheSpanOfARequestTellsHowItEnded(t *testing.T) {
	x := tracedOnMemory(t)
	x.want(201, "PUT", "/v1/trees/t", `{"shardCount":1}`)
	for _, c := range []struct {
		method, path, name string
		status             int
		code               any
	}{
		{"GET", "/v1/trees/t/keys/a", "GET /v1/trees/{tree}/keys/{key}", 404, "key_not_found"},
		{"GET", "/nowhere", "GET", 404, "route_not_found"},
		{"FROB", "/v1/trees/t", "_OTHER /v1/trees/{tree}", 405, "method_not_allowed"},
		{"GET", "/v1/trees/t%20t/keys/a", "GET /v1/trees/{tree}/keys/{key}", 400, "invalid_argument"},
		{"GET", "/healthz", "GET /healthz", 200, nil},
	} {
		x.spans.Reset()
		x.want(c.status, c.method, c.path, "")
		s := x.only(c.name)
		expectAttributes(t, &s, map[attribute.Key]any{"http.response.status_code": int64(c.status), "error.type": c.code})
		if s.Status.Code != codes.Unset {
			t.Errorf("%s %s: status %v; the fault is the caller's", c.method, c.path, s.Status)
		}
	}
}

func TestFaultsOfTheStorageShowInSpans(t *testing.T) {
	m := memory.New(memory.Options{})
	in := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	x := newTraced(t, in.Table(), in.Blobs(), func(c *Config) {
		c.Options.RequestTimeout, c.Options.RoutingRetryBudget = 200*time.Millisecond, 100*time.Millisecond
	})
	x.want(201, "PUT", "/v1/trees/t/keys/a", "v")
	x.spans.Reset()
	in.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Do: faulty.Fail(store.ErrThrottled)})
	x.want(503, "PUT", "/v1/trees/t/keys/a", "w")
	request, appended := x.only("PUT /v1/trees/{tree}/keys/{key}"), x.only("shard append")
	expectAttributes(t, &request, map[attribute.Key]any{"error.type": "storage_throttled", "http.response.status_code": int64(503)})
	expectAttributes(t, &appended, map[attribute.Key]any{"error.type": "failed", "lattice.append.outcome": "failed"})
	tries := x.named("storage table_apply")
	if len(tries) < 2 {
		t.Fatalf("%d tries: %s", len(tries), x.names())
	}
	for _, try := range tries {
		expectAttributes(t, &try, map[attribute.Key]any{"error.type": "throttled", "lattice.storage.outcome": "throttled"})
		if !within(&try, &appended) || try.Status.Code != codes.Error {
			t.Errorf("a try is below %s, with the status %v", try.Parent.SpanID(), try.Status)
		}
	}
	if request.Status.Code != codes.Error || appended.Status.Code != codes.Error {
		t.Errorf("the statuses are %v and %v", request.Status, appended.Status)
	}
}

func TestATickIsATreeOfSpans(t *testing.T) {
	x := tracedOnMemory(t, func(c *Config) { c.Options.CheckpointTailRows = 1 })
	x.want(201, "PUT", "/v1/trees/t/keys/a", "v")
	x.spans.Reset()
	x.tick("checkpoint")
	request, tick := x.only("POST /internal/timers/checkpoint"), x.only("tick checkpoint")
	if !within(&tick, &request) {
		t.Errorf("the tick is below %s", tick.Parent.SpanID())
	}
	expectAttributes(t, &tick, map[attribute.Key]any{"lattice.timer": "checkpoint", "lattice.tick.failed": int64(0)})
	appended, put := x.named("shard append"), x.named("storage blob_put")
	if len(appended) == 0 || !within(&appended[0], &tick) || len(put) < 2 || !within(&put[0], &tick) {
		t.Errorf("%d appends and %d blobs below the tick: %s", len(appended), len(put), x.names())
	}
	for _, s := range x.spans.GetSpans() {
		if s.SpanContext.TraceID() != request.SpanContext.TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
	}
}

func TestASplitIsASpanForEachPhase(t *testing.T) {
	log := &lines{}
	x := tracedOnMemory(t, func(c *Config) { c.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	x.want(201, "PUT", "/v1/trees/t", `{"shardCount":1}`)
	for n := range 20 {
		x.want(201, "PUT", fmt.Sprintf("/v1/trees/t/keys/%d", n), "v")
	}
	x.want(202, "POST", "/v1/trees/t/reshard", `{"shardCount":2}`)
	x.spans.Reset()
	phases := []string{"BeginShadowWrite", "Drain", "Swap", "Reject", "Complete"}
	for range 20 {
		x.tick("migrations")
		if len(x.named("split Complete")) > 0 {
			break
		}
	}
	for _, phase := range phases {
		s := x.only("split " + phase)
		expectAttributes(t, &s, map[attribute.Key]any{
			"lattice.tree": "t", "lattice.split.phase": phase, "lattice.split.source": int64(0), "lattice.split.target": int64(1), "lattice.split.phase_over": true,
		})
		ticks := x.named("tick migrations")
		if !slices.ContainsFunc(ticks, func(tick tracetest.SpanStub) bool { return within(&s, &tick) }) {
			t.Errorf("%s is not below a tick", s.Name)
		}
	}
	swap, below := x.only("split Swap"), 0
	for _, s := range x.named("shard append") {
		if within(&s, &swap) {
			below++
		}
	}
	if below == 0 {
		t.Error("the append that seals the slots is not below its phase")
	}
	var logged []string
	for _, line := range log.about(t, "split phase is over") {
		logged = append(logged, fmt.Sprint(line["phase"]))
		if line["tree"] != "t" || line["source"] != 0.0 || line["target"] != 1.0 || line["took"] == nil || line["timer"] != "migrations" || line["requestId"] == nil || line["traceId"] == nil || line["level"] != "INFO" {
			t.Errorf("line %v", line)
		}
	}
	if !slices.Equal(logged, phases) {
		t.Errorf("logged the phases %v", logged)
	}
}

// turnstile holds the appends of one table until it is opened.
type turnstile struct {
	store.Table
	closed bool
	open   chan struct{}
}

func (g *turnstile) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	if g.closed && strings.HasPrefix(partition, "s-") {
		<-g.open
	}
	return g.Table.Apply(ctx, partition, ops)
}

// parentOf names a trace by a digit; a lower-case s says that it is kept.
func parentOf(digit int, kept bool) string {
	flags := "00"
	if kept {
		flags = "01"
	}
	return fmt.Sprintf("00-%032x-%016x-%s", digit, digit, flags)
}

func TestAGroupCommitIsLinkedToAllItServes(t *testing.T) {
	for name, c := range map[string]struct {
		kept   []bool // of the first, who goes alone, and then of the group
		leader int
		links  []int
	}{
		"all are kept":           {[]bool{true, true, true, true}, 2, []int{3, 4}},
		"the leader is not kept": {[]bool{true, false, true, true}, 3, []int{4}},
		"only the leader is":     {[]bool{true, true, false, false}, 2, nil},
		"nobody in the group is": {[]bool{true, false, false, false}, 0, nil},
		"one that is led is not": {[]bool{true, true, false, true}, 2, []int{4}},
		"only the last one is":   {[]bool{true, false, false, true}, 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory.New(memory.Options{})
				g := &turnstile{Table: m.Table(), open: make(chan struct{})}
				x := newTraced(t, g, m.Blobs())
				x.want(201, "PUT", "/v1/trees/t", `{"shardCount":1}`)
				x.want(201, "PUT", "/v1/trees/t/keys/a", "v")
				x.spans.Reset()
				g.closed = true
				var callers sync.WaitGroup
				for i, kept := range c.kept {
					callers.Go(func() {
						if status, answer := x.call("PUT", fmt.Sprintf("/v1/trees/t/keys/b%d", i), "v", "Traceparent", parentOf(i+1, kept)); status != 201 {
							t.Errorf("status %d: %s", status, answer)
						}
					})
					synctest.Wait() // so they queue in this order
				}
				close(g.open)
				callers.Wait()
				var group []tracetest.SpanStub
				for _, s := range x.named("shard append") {
					if attributes(&s)["lattice.append.requests"] == int64(3) {
						group = append(group, s)
					}
				}
				if c.leader == 0 {
					if len(group) != 0 {
						t.Errorf("the append of those who are not kept has a span")
					}
					return
				}
				if len(group) != 1 {
					t.Fatalf("%d spans of the group: %s", len(group), x.names())
				}
				checkGroup(t, x, &group[0], c.leader, c.links)
			})
		})
	}
}

func checkGroup(t *testing.T, x *traced, s *tracetest.SpanStub, leader int, links []int) {
	t.Helper()
	requests := map[string]tracetest.SpanStub{}
	for _, r := range x.named("PUT /v1/trees/{tree}/keys/{key}") {
		requests[r.SpanContext.TraceID().String()] = r
	}
	at := requests[fmt.Sprintf("%032x", leader)]
	if !within(s, &at) {
		t.Errorf("the append is in trace %s, want that of %d", s.SpanContext.TraceID(), leader)
	}
	if len(s.Links) != len(links) {
		t.Fatalf("%d links, want %v", len(s.Links), links)
	}
	for i, want := range links {
		request := requests[fmt.Sprintf("%032x", want)]
		if got := s.Links[i].SpanContext; got.SpanID() != request.SpanContext.SpanID() || got.TraceID() != request.SpanContext.TraceID() {
			t.Errorf("link %d leads to %s, want the request of %d", i, got.TraceID(), want)
		}
	}
}

func TestACallersTraceIsTakenOnlyIfItIsSane(t *testing.T) {
	x := tracedOnMemory(t)
	for name, header := range map[string][]string{
		"malformed":      {"Traceparent", "00-xyz"},
		"all zero":       {"Traceparent", "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01"},
		"given twice":    {"Traceparent", callersTrace, "Traceparent", callersTrace},
		"overlong":       {"Traceparent", "01" + callersTrace[2:] + "-" + strings.Repeat("0", 4000)},
		"unknown future": {"Traceparent", "ff" + callersTrace[2:]},
	} {
		x.spans.Reset()
		x.want(200, "GET", "/healthz", "", header...)
		if s := x.only("GET /healthz"); s.Parent.IsValid() {
			t.Errorf("%s: the parent is %s", name, s.Parent.TraceID())
		}
	}
	// Four members of 200 bytes are as the standard has it, and more than is read.
	for members, want := range map[int]bool{1: true, 4: false} {
		var state []string
		for n := range members {
			state = append(state, fmt.Sprintf("vendor%d=%s", n, strings.Repeat("x", 200)))
		}
		x.spans.Reset()
		x.want(200, "GET", "/healthz", "", "Traceparent", callersTrace, "Tracestate", strings.Join(state, ","))
		if s := x.only("GET /healthz"); !s.Parent.IsValid() || (s.SpanContext.TraceState().Len() > 0) != want {
			t.Errorf("a state of %d members: parent %s, state %q", members, s.Parent.TraceID(), s.SpanContext.TraceState())
		}
	}
}
