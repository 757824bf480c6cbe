package service

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
)

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
	m := newSplitMetrics()
	m.monitored(report("a", 0, []keyspace.ShardID{1}, "", split.ReasonUniformLoad, split.ReasonCooldown, split.ReasonCooldown))
	m.monitored(&tree.MonitorReport{Passes: []tree.MonitorPass{{Tree: "a", Skipped: tree.SkippedEarly}, {Tree: "b"}}})
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

// Every reason is there before it occurs: a rate does not see the birth of a
// series.
func TestEveryReasonIsShownFromTheBeginning(t *testing.T) {
	m := newSplitMetrics()
	n := testutil.CollectAndCount(m.suppressed) + testutil.CollectAndCount(m.deferred)
	if n != len(split.Reasons()) || testutil.CollectAndCount(m.deferred) != len(admission) {
		t.Errorf("%d reasons are shown of %d", n, len(split.Reasons()))
	}
}
