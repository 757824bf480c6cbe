package service

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
)

// manual is a clock that stands still unless it is told.
type manual struct {
	*clock.System
	now clock.Instant
}

func (m *manual) Now() clock.Instant { return m.now }

func metricOf(t *testing.T, text, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestReshardOverTheRealTree(t *testing.T) {
	i := onMemory(t, func(c *Config) { c.Options.CheckpointTailRows = 1 })
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":2}`)
	for n := range 200 {
		i.want(201, "PUT", fmt.Sprintf("/v1/trees/t/keys/%03d", n), "v")
	}
	i.tick("checkpoint")
	i.want(400, "POST", "/v1/trees/t/reshard", `{"shardCount":0}`)
	i.want(202, "POST", "/v1/trees/t/reshard", `{"shardCount":4}`)
	i.want(202, "POST", "/v1/trees/t/reshard", `{"shardCount":4}`)
	if got := i.want(409, "POST", "/v1/trees/t/reshard", `{"shardCount":8}`); !strings.Contains(got, "operation_in_progress") {
		t.Errorf("another target: %s", got)
	}
	status := ""
	for range 50 {
		i.tick("migrations")
		if status = i.want(200, "GET", "/v1/trees/t/reshard", ""); strings.Contains(status, `"complete":true`) {
			break
		}
	}
	if !strings.Contains(status, `"current":4`) || !strings.Contains(status, `"complete":true`) {
		t.Fatalf("after the ticks: %s", status)
	}
	if got := i.want(200, "GET", "/v1/trees/t/count?perShard=true", ""); !strings.HasPrefix(got, `{"count":200,`) || strings.Count(got, `"shard":`) != 4 {
		t.Errorf("count: %s", got)
	}
	var splits struct {
		InFlight []json.RawMessage
		Recent   []struct {
			Source, Target, MovedSlots int
			Phase, Cause               string
			DurationsMs                map[string]int64
		}
	}
	if err := json.Unmarshal([]byte(i.want(200, "GET", "/v1/trees/t/splits", "")), &splits); err != nil {
		t.Fatal(err)
	}
	if len(splits.InFlight) != 0 || len(splits.Recent) != 2 {
		t.Fatalf("splits %+v", splits)
	}
	for _, s := range splits.Recent {
		if s.Phase != "Done" || s.MovedSlots != 1024 || s.Source > 1 || s.Target < 2 || len(s.DurationsMs) != 5 || s.Cause == "" {
			t.Errorf("split %+v", s)
		}
	}
	text := i.want(200, "GET", "/metrics", "")
	if got := metricOf(t, text, "lattice_split_drained_entries_total"); got < 50 {
		t.Errorf("%v entries drained", got)
	}
	if got := metricOf(t, text, `lattice_split_phase_duration_seconds_count{phase="Drain"}`); got != 2 {
		t.Errorf("%v drains measured", got)
	}
	for _, name := range []string{
		"lattice_split_retroactive_forward_entries_total", "lattice_split_mirrored_entries_total", "lattice_split_mirror_failures_total",
		"lattice_cache_hits_total", "lattice_cache_misses_total", "lattice_cache_pages", "lattice_cache_bytes",
	} {
		metricOf(t, text, name)
	}
}

func TestMonitorOverTheRealTreeSaysWhyNothingIsSplit(t *testing.T) {
	i := onMemory(t)
	i.want(201, "PUT", "/v1/trees/t/keys/a", "v")
	res := i.tick("monitor")
	if res["timer"] != "monitor" || res["trees"] != 1.0 || res["started"] != 0.0 {
		t.Errorf("the monitor did %v", res)
	}
	if passes := fmt.Sprint(res["passes"]); !strings.Contains(passes, "suppressed:tree_age") {
		t.Errorf("passes %s", passes)
	}
	i.want(401, "POST", "/internal/timers/monitor", "")
	i.want(401, "POST", "/internal/timers/migrations", "")
	got := i.want(200, "GET", "/v1/cluster/split-activity", "")
	if !strings.HasPrefix(got, `{"inFlight":0,"reportingTrees":0,"observedAt":"`) || !strings.HasSuffix(got, `"anyInFlight":false}`) {
		t.Errorf("activity %s", got)
	}
}

func TestShardMapIsThatOfNowOnEveryInstance(t *testing.T) {
	m := memory.New(memory.Options{})
	a, b := newInstance(t, m.Table(), m.Blobs()), newInstance(t, m.Table(), m.Blobs())
	a.want(201, "PUT", "/v1/trees/t", `{"shardCount":1}`)
	b.want(200, "GET", "/v1/trees/t/shard-map", "")
	// An empty tree is divided at once.
	if got := a.want(202, "POST", "/v1/trees/t/reshard", `{"shardCount":2}`); got != `{"complete":true,"start":1,"current":2,"target":2}` {
		t.Errorf("reshard: %s", got)
	}
	want := `{"version":1,"slots":4096,"shards":[{"shard":0,"slots":[[0,2047]]},{"shard":1,"slots":[[2048,4095]]}]}`
	for name, i := range map[string]*instance{"first": a, "second": b} {
		if got := i.want(200, "GET", "/v1/trees/t/shard-map", ""); got != want {
			t.Errorf("the %s instance shows %s", name, got)
		}
	}
}

func report(name string, inFlight int, started []keyspace.ShardID, reasons ...split.Reason) *tree.MonitorReport {
	p := tree.MonitorPass{Tree: name, Started: started, Shards: make([]tree.ShardRate, 2), Decision: split.Decision{InFlight: inFlight}}
	for _, reason := range reasons {
		p.Candidates = append(p.Candidates, split.Candidate{Reason: reason})
	}
	return &tree.MonitorReport{Passes: []tree.MonitorPass{p}}
}

func TestReasonsAreCountedByWhatTheySay(t *testing.T) {
	o := options.Default()
	m := newSplitMetrics(clock.NewSystem(), &o)
	m.monitored(report("a", 0, []keyspace.ShardID{1}, "", split.ReasonUniformLoad, split.ReasonCooldown, split.ReasonCooldown))
	if got := testutil.CollectAndCount(m.inFlight); got != 1 {
		t.Errorf("%d trees have splits in flight, want the one that began a split", got)
	}
	m.monitored(&tree.MonitorReport{Passes: []tree.MonitorPass{{Tree: "a", Skipped: tree.SkippedEarly}, {Tree: "b"}}})
	if got := testutil.CollectAndCount(m.inFlight); got != 1 {
		t.Errorf("%d trees have splits in flight after a pass that saw nothing", got)
	}
	for reason, want := range map[split.Reason][2]float64{
		split.ReasonUniformLoad: {0, 1}, split.ReasonCooldown: {2, 0}, split.ReasonClusterCap: {0, 0},
	} {
		suppressed := testutil.ToFloat64(m.suppressed.WithLabelValues(string(reason)))
		deferred := testutil.ToFloat64(m.deferred.WithLabelValues(string(reason)))
		if suppressed != want[0] || deferred != want[1] {
			t.Errorf("%s: %v suppressed, %v deferred, want %v", reason, suppressed, deferred, want)
		}
	}
}

func TestSplitsInFlightAreShownUntilNobodyReportsThem(t *testing.T) {
	c := &manual{System: clock.NewSystem()}
	g := newTreeGauge(c, 30*time.Second, "split_in_flight", "Splits in flight, as the monitor last saw them.")
	want := func(lines ...string) {
		t.Helper()
		text := ""
		if lines != nil {
			text = "# HELP lattice_split_in_flight Splits in flight, as the monitor last saw them.\n# TYPE lattice_split_in_flight gauge\n" + strings.Join(lines, "\n") + "\n"
		}
		if err := testutil.CollectAndCompare(g, strings.NewReader(text)); err != nil {
			t.Error(err)
		}
	}
	want()
	g.set("a", 2)
	g.set("b", 0)
	want(`lattice_split_in_flight{tree="a"} 2`)
	c.now.Mono += 89 * time.Second
	g.set("b", 1)
	want(`lattice_split_in_flight{tree="a"} 2`, `lattice_split_in_flight{tree="b"} 1`)
	c.now.Mono += time.Second
	want(`lattice_split_in_flight{tree="b"} 1`)
	g.set("b", 0)
	want()
	for n := range maxShownTrees + 10 {
		g.set(strconv.Itoa(n), 1)
	}
	if n := testutil.CollectAndCount(g); n != maxShownTrees {
		t.Errorf("%d trees are shown", n)
	}
}

// A hot shard of one slot is counted for as long as it is hot, and no key is
// named.
func TestHotShardsOfASingleSlotAreShown(t *testing.T) {
	o := options.Default()
	m := newSplitMetrics(clock.NewSystem(), &o)
	rep := report("a", 0, nil, split.ReasonSingleSlot, split.ReasonSingleSlot, split.ReasonCooldown)
	for i := range rep.Passes[0].Candidates {
		rep.Passes[0].Candidates[i].Slots = 1 + i/2
	}
	m.monitored(rep)
	want := "# HELP lattice_hot_key_shards Hot shards of a single slot, which no split can relieve, as the monitor last saw them.\n" +
		"# TYPE lattice_hot_key_shards gauge\nlattice_hot_key_shards{tree=\"a\"} 2\n"
	if err := testutil.CollectAndCompare(m.hotKeys, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	m.monitored(report("a", 0, nil))
	if got := testutil.CollectAndCount(m.hotKeys); got != 0 {
		t.Errorf("%d figures of a tree that has cooled down", got)
	}
}
