package service

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// Why requests and ticks failed is counted, and damaged data by itself.
func TestFaultsAreCountedByWhatTheyAre(t *testing.T) {
	m := memory.New(memory.Options{})
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	i := newInstance(t, f.Table(), f.Blobs(), func(c *Config) {
		c.Options.RequestTimeout, c.Options.RoutingRetryBudget = 200*time.Millisecond, 200*time.Millisecond
	})
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":1}`)
	i.want(404, "GET", "/v1/trees/t/keys/none", "")
	i.want(412, "PUT", "/v1/trees/t/keys/none", "v", "If-Match", `"0123456789abcdef01234567"`)
	text := i.want(200, "GET", "/metrics", "")
	answered := metricOf(t, text, "lattice_storage_last_answer_timestamp_seconds")
	if now := float64(time.Now().UnixMilli()) / 1000; answered < now-60 || answered > now+1 {
		t.Errorf("the storage answered at %v", answered)
	}
	f.Add(faulty.Rule{When: faulty.Kinds(faulty.Range), Do: faulty.Fail(store.Corruptf("row 7"))})
	i.want(500, "GET", "/v1/trees/t/keys/none", "")
	// A tick that fails as a whole is a request that fails as well.
	i.want(500, "POST", "/internal/timers/checkpoint", "", "Authorization", "Bearer "+token)
	f.Clear()
	f.Add(faulty.Rule{When: faulty.Any, Do: faulty.Fail(store.ErrUnavailable)})
	i.want(503, "GET", "/v1/trees/t/keys/none", "")
	text = i.want(200, "GET", "/metrics", "")
	for series, want := range map[string]float64{
		`lattice_http_problems_total{code="key_not_found"}`: 1, `lattice_http_problems_total{code="version_mismatch"}`: 1,
		`lattice_http_problems_total{code="internal"}`: 2, `lattice_http_problems_total{code="unavailable"}`: 1,
		`lattice_http_problems_total{code="storage_throttled"}`: 0, "lattice_http_unknown_outcomes_total": 0,
		`lattice_corrupt_data_total{source="request"}`: 2, `lattice_option{name="MaxConcurrentRequests"}`: 1024,
		`lattice_option{name="AutoSplitEnabled"}`: 1, `lattice_option{name="HotShardSampleInterval"}`: 30,
		`lattice_timer_late_after_seconds{timer="collect"}`: 180, `lattice_tick_runs_total{outcome="error",timer="checkpoint"}`: 1,
	} {
		if got := metricOf(t, text, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if got := metricOf(t, text, `lattice_corrupt_data_total{source="tick"}`); got < 1 {
		t.Errorf("%v failures of ticks met corrupt data", got)
	}
	if got := metricOf(t, text, `lattice_storage_operations_total{kind="table_range",outcome="corrupt"}`); got < 2 {
		t.Errorf("%v ranges met corrupt data", got)
	}
}

func TestUnknownOutcomesOfRequestsAreCounted(t *testing.T) {
	m := memory.New(memory.Options{})
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	i := newInstance(t, f.Table(), f.Blobs(), func(c *Config) {
		c.Options.RequestTimeout, c.Options.RoutingRetryBudget = 200*time.Millisecond, 200*time.Millisecond
	})
	i.want(201, "PUT", "/v1/trees/t/keys/a", "v")
	f.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Do: faulty.Fail(store.ErrOutcomeUnknown)})
	f.Add(faulty.Rule{When: faulty.Kinds(faulty.Range, faulty.Get), Do: faulty.Fail(store.ErrUnavailable)})
	i.want(503, "PUT", "/v1/trees/t/keys/a", "w")
	text := i.want(200, "GET", "/metrics", "")
	if got := metricOf(t, text, "lattice_http_unknown_outcomes_total"); got != 1 {
		t.Errorf("%v outcomes are unknown", got)
	}
}

// That the storage refuses something is an answer, that it is throttled is none.
func TestLastAnswerOfTheStorage(t *testing.T) {
	c := newManual()
	s := newStorageMetrics(c)
	m := memory.New(memory.Options{})
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	table := meteredTable{f.Table(), newStorageWatch(c, s, nil, slog.New(slog.DiscardHandler))}
	at := func(want clock.Instant) {
		t.Helper()
		_, _ = table.Get(t.Context(), "p", "none")
		if got := testutil.ToFloat64(s.lastAnswer()); got != float64(want.Wall)/1e9 {
			t.Errorf("the last answer is of %v, want %v", got, float64(want.Wall)/1e9)
		}
	}
	if got := testutil.ToFloat64(s.lastAnswer()); got != 0 {
		t.Errorf("before the first: %v", got)
	}
	first := c.Now()
	at(first)
	c.pass(time.Minute)
	f.Add(faulty.Rule{When: faulty.Any, Do: faulty.Fail(&store.ThrottledError{Err: store.ErrThrottled})})
	at(first)
	f.Clear()
	at(c.Now())
}
