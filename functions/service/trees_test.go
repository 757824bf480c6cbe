package service

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// manual is a clock that stands still unless it is told.
type manual struct {
	*clock.System
	now clock.Instant
}

func (m *manual) Now() clock.Instant { return m.now }

// shows checks the series of one metric.
func shows(t *testing.T, c prometheus.Collector, name string, lines ...string) {
	t.Helper()
	text := ""
	if len(lines) > 0 {
		text = strings.Join(lines, "\n") + "\n"
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += fmt.Sprintf(",%s=%q", l.GetName(), l.GetValue())
			}
			got += fmt.Sprintf("{%s} %v\n", strings.TrimPrefix(labels, ","), m.GetGauge().GetValue())
		}
	}
	if got != text {
		t.Errorf("%s is\n%swant\n%s", name, got, text)
	}
}

func newSeen(c clock.Source) *treeMetrics {
	o := options.Default()
	return newTreeMetrics(c, &o)
}

// What the monitor saw of a tree is shown, zeros too, until nobody sees it any
// more.
func TestTreesAreShownAsTheMonitorSawThem(t *testing.T) {
	c := &manual{System: clock.NewSystem()}
	m := newSeen(c)
	rep := report("a", 1, []keyspace.ShardID{1}, split.ReasonSingleSlot, split.ReasonSingleSlot, split.ReasonCooldown)
	p := &rep.Passes[0]
	for i := range p.Candidates {
		p.Candidates[i].Slots = 1 + i/2
	}
	p.Shards = []tree.ShardRate{
		{Bytes: 100, TailRows: 3, ShardSample: split.ShardSample{Live: 10, Rate: 7, Known: true}},
		{Bytes: 50, TailRows: 9, ShardSample: split.ShardSample{Shard: 1, Live: -2, Rate: 8, Known: true}},
		{Bytes: -50, ShardSample: split.ShardSample{Shard: 2, Live: 1, Rate: 9}},
	}
	p.Snapshots, p.OldestSnapshot, p.OldestSplit = 2, time.Minute, time.Second
	m.monitored(rep)
	m.monitored(&tree.MonitorReport{Passes: []tree.MonitorPass{{Tree: "a", Skipped: tree.SkippedEarly}, {Tree: "b"}}})
	for name, want := range map[string]int{
		"split_in_flight": 2, "split_oldest_age_seconds": 1, "hot_key_shards": 2, "tree_shards": 3, "tree_live_keys": 11,
		"tree_bytes": 150, "tree_log_rows": 9, "snapshots_open": 2, "snapshot_oldest_age_seconds": 60,
	} {
		shows(t, m.seen, "lattice_"+name, fmt.Sprintf(`{tree="a"} %d`, want))
	}
	shows(t, newHottestShards(m.seen), "lattice_shard_operations_per_second", `{shard="0",tree="a"} 7`, `{shard="1",tree="a"} 8`)
	m.monitored(report("a", 0, nil))
	shows(t, m.seen, "lattice_split_in_flight", `{tree="a"} 0`)
	c.now.Mono += 3*time.Minute - 1
	m.monitored(report("b", 0, nil))
	shows(t, m.seen, "lattice_tree_shards", `{tree="a"} 2`, `{tree="b"} 2`)
	c.now.Mono++
	shows(t, m.seen, "lattice_tree_shards", `{tree="b"} 2`)
}

func TestOpenWorkIsShownAsTheCollectorSawIt(t *testing.T) {
	c := &manual{System: clock.NewSystem()}
	m := newSeen(c)
	m.collected(&tree.Report{Open: []tree.OpenWork{{Tree: "a", Cursors: 3, Loads: 1}, {Tree: "b"}}})
	shows(t, m.open, "lattice_cursors_open", `{tree="a"} 3`, `{tree="b"} 0`)
	shows(t, m.open, "lattice_loads_open", `{tree="a"} 1`, `{tree="b"} 0`)
	c.now.Mono += 10*time.Minute - 1
	shows(t, m.open, "lattice_cursors_open", `{tree="a"} 3`, `{tree="b"} 0`)
	c.now.Mono++
	shows(t, m.open, "lattice_cursors_open")
}

// Where the options wish for less often than the slowest scheduler can, they
// count.
func TestFiguresLiveAsLongAsTheirTicksAreApart(t *testing.T) {
	c, o := &manual{System: clock.NewSystem()}, options.Default()
	o.HotShardSampleInterval = 5 * time.Minute
	m := newTreeMetrics(c, &o)
	m.monitored(report("a", 0, nil))
	c.now.Mono += 15*time.Minute - 1
	shows(t, m.seen, "lattice_tree_shards", `{tree="a"} 2`)
	c.now.Mono++
	shows(t, m.seen, "lattice_tree_shards")
}

// Of too many trees, those where something goes on are shown.
func TestTreesAtRestGiveWay(t *testing.T) {
	m := newSeen(&manual{System: clock.NewSystem()})
	for n := range maxShownTrees + 10 {
		m.monitored(report(fmt.Sprintf("idle-%d", n), 0, nil))
	}
	if n := len(m.seen.rows); n != maxShownTrees {
		t.Fatalf("%d trees are shown", n)
	}
	for n := range 3 {
		m.monitored(report(fmt.Sprintf("busy-%d", n), 1, nil))
	}
	busy := 0
	m.seen.each(func(_ string, s *treeSeen) { busy += s.inFlight })
	if n := len(m.seen.rows); n != maxShownTrees || busy != 3 {
		t.Errorf("%d trees are shown, %d of the 3 that are busy", n, busy)
	}
}

// However many shards are hot, the hottest of all trees are shown.
func TestHottestShardsAreBounded(t *testing.T) {
	m := newSeen(&manual{System: clock.NewSystem()})
	for n := range 4 {
		rep := report(fmt.Sprint("t", n), 0, nil)
		rep.Passes[0].Shards = nil
		for id := range 40 {
			rep.Passes[0].Shards = append(rep.Passes[0].Shards, tree.ShardRate{ShardSample: split.ShardSample{
				Shard: keyspace.ShardID(id), Rate: float64(10*id + n + 1), Known: true,
			}})
		}
		m.monitored(rep)
	}
	families := prometheus.NewPedanticRegistry()
	families.MustRegister(newHottestShards(m.seen))
	got, err := families.Gather()
	if err != nil {
		t.Fatal(err)
	}
	least := 1e9
	for _, x := range got[0].GetMetric() {
		least = min(least, x.GetGauge().GetValue())
	}
	// 12 shards of each tree, and of the thirteenth those of two trees.
	if n := len(got[0].GetMetric()); n != maxHottest || least != 10*27+3 {
		t.Errorf("%d shards, the coldest has %v", n, least)
	}
}

func TestFaultsAreShownFromTheBeginning(t *testing.T) {
	m := newFaultMetrics()
	if n := testutil.CollectAndCount(m.problems); n < 20 {
		t.Errorf("%d codes", n)
	}
	if n := testutil.CollectAndCount(m.corrupt); n != 2 {
		t.Errorf("%d sources of corrupt data", n)
	}
	s := newStorageMetrics(clock.NewSystem())
	if n := testutil.CollectAndCount(s.operations); n != len(storageKinds)*len(outcomes) {
		t.Errorf("%d outcomes", n)
	}
}
