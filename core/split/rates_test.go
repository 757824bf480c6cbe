package split_test

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

type counts = map[keyspace.ShardID]split.Count

func TestRatesComeFromTwoSamples(t *testing.T) {
	const at = 1_000_000
	tests := []struct {
		name        string
		first, next counts
		want        map[keyspace.ShardID]float64
	}{
		{"the first sample gives none", nil, counts{1: {Reads: 5, At: at}}, nil},
		{"reads and writes add up", counts{1: {Reads: 100, Writes: 10, At: at}}, counts{1: {Reads: 400, Writes: 110, At: at + 2000}}, map[keyspace.ShardID]float64{1: 200}},
		{"an idle shard has a rate of 0", counts{1: {Reads: 7, At: at}}, counts{1: {Reads: 7, At: at + 1}}, map[keyspace.ShardID]float64{1: 0}},
		{"a shard that is new has none", counts{1: {At: at}}, counts{1: {Writes: 10, At: at + 1000}, 2: {Writes: 9000, At: at + 1000}}, map[keyspace.ShardID]float64{1: 10}},
		{"reads that fell add nothing", counts{1: {Reads: 1000, Writes: 10, At: at}}, counts{1: {Reads: 900, Writes: 40, At: at + 1000}}, map[keyspace.ShardID]float64{1: 30}},
		{"writes that fell add nothing", counts{1: {Reads: 10, Writes: 10, At: at}}, counts{1: {Reads: 20, Writes: 9, At: at + 1000}}, map[keyspace.ShardID]float64{1: 10}},
		{"no time has passed", counts{1: {At: at}}, counts{1: {Writes: 10, At: at}}, nil},
		{"the clock went back", counts{1: {At: at}}, counts{1: {Writes: 10, At: at - 5000}}, nil},
		{"it could not be counted before", counts{1: {}}, counts{1: {Writes: 10, At: at}}, nil},
		{"each over its own time", counts{1: {At: at}, 2: {At: at - 1000}}, counts{1: {Writes: 10, At: at + 1000}, 2: {Writes: 10, At: at + 1000}}, map[keyspace.ShardID]float64{1: 10, 2: 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &split.MonitorState{}
			m.Observe(at, tt.first)
			got := m.Observe(at+1000, tt.next)
			if !maps.Equal(got, tt.want) {
				t.Errorf("rates %v, want %v", got, tt.want)
			}
			if m.At != at+1000 || !maps.Equal(m.Counts, tt.next) {
				t.Errorf("remembered %+v", m)
			}
		})
	}
}

func TestAPassIsDueAfterHalfAnInterval(t *testing.T) {
	m := &split.MonitorState{At: 100_000}
	for since, want := range map[int64]bool{0: false, 14_999: false, 15_000: true, 60_000: true, -1: false, -15_000: true} {
		if got := m.Due(100_000+since, 30*time.Second); got != want {
			t.Errorf("after %d ms: due %v", since, got)
		}
	}
}

func TestACooldownEndsWithItsTime(t *testing.T) {
	m := &split.MonitorState{Split: map[keyspace.ShardID]int64{1: 100_000, 2: 100_000}}
	for since, want := range map[int64]bool{-10: true, 0: true, 119_999: true, 120_000: false} {
		if got := m.CoolingDown(1, 100_000+since, 2*time.Minute); got != want {
			t.Errorf("after %d ms: cooling down %v", since, got)
		}
	}
	if m.CoolingDown(7, 100_000, 2*time.Minute) {
		t.Error("a shard that was never split cools down")
	}
	if m.CoolingDown(1, 100_000, 0) {
		t.Error("no cooldown is asked for, and yet there is one")
	}
	m.Observe(100_001, counts{1: {}})
	if !m.CoolingDown(1, 100_001, time.Minute) || m.CoolingDown(2, 100_001, time.Minute) {
		t.Errorf("remembered %v, want shard 1 alone", m.Split)
	}
}

// mapped returns a node over an empty store with a map of some shards.
func mapped(t *testing.T, shards int) (*node, *memory.Store) {
	t.Helper()
	src := clock.NewSystem()
	m := memory.New(memory.Options{Clock: src})
	n := newNode(t, src, m.Table(), m.Blobs(), nil)
	if err := n.found(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	return n, m
}

func survey(t *testing.T, c *split.Coordinator) split.Survey {
	t.Helper()
	s, err := c.Survey(t.Context(), treeID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOfTwoPassesAtOnceOneWins(t *testing.T) {
	n, _ := mapped(t, 2)
	one, two := &split.MonitorState{At: 1}, &split.MonitorState{At: 2}
	if err := n.c.SaveMonitor(t.Context(), treeID, one); err != nil {
		t.Fatal(err)
	}
	if err := n.c.SaveMonitor(t.Context(), treeID, two); !errors.Is(err, split.ErrOutdated) {
		t.Fatalf("the second pass: %v", err)
	}
	a, b := survey(t, n.c).Monitor, survey(t, n.c).Monitor
	a.At, b.At = 10, 20
	if err := n.c.SaveMonitor(t.Context(), treeID, a); err != nil {
		t.Fatal(err)
	}
	if err := n.c.SaveMonitor(t.Context(), treeID, b); !errors.Is(err, split.ErrOutdated) {
		t.Fatalf("the second pass: %v", err)
	}
	if err := n.c.BeginAutomatic(t.Context(), n, b, 0); !errors.Is(err, split.ErrOutdated) {
		t.Fatalf("a split by a pass that is outdated: %v", err)
	}
	if s := survey(t, n.c); len(s.Active) != 0 || s.Monitor.At != 10 || len(s.Monitor.Split) != 0 || len(b.Split) != 0 {
		t.Fatalf("stored %+v, %d splits", s.Monitor, len(s.Active))
	}
}

func TestASplitAndItsCooldownAreStoredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := mapped(t, 4)
		m := &split.MonitorState{}
		if err := n.c.SaveMonitor(t.Context(), treeID, m); err != nil {
			t.Fatal(err)
		}
		for _, id := range []keyspace.ShardID{2, 0} {
			if err := n.c.BeginAutomatic(t.Context(), n, m, id); err != nil {
				t.Fatal(err)
			}
		}
		now := n.src.Now().Milli()
		if err := n.c.BeginAutomatic(t.Context(), n, m, 2); !errors.Is(err, split.ErrBusy) {
			t.Fatalf("a second split of one shard: %v", err)
		}
		s := survey(t, n.c)
		if len(s.Active) != 2 || s.Active[0].Cause != split.CauseMonitor {
			t.Fatalf("%d splits", len(s.Active))
		}
		if want := map[keyspace.ShardID]int64{0: now, 2: now}; !maps.Equal(s.Monitor.Split, want) || !maps.Equal(m.Split, want) {
			t.Fatalf("cooldowns %v and %v, want %v", s.Monitor.Split, m.Split, want)
		}
	})
}

func TestALostReplyOfABeginIsFound(t *testing.T) {
	n, m := mapped(t, 4)
	state := &split.MonitorState{}
	if err := n.c.SaveMonitor(t.Context(), treeID, state); err != nil {
		t.Fatal(err)
	}
	lossy := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: n.src})
	lossy.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Do: faulty.Lose(), Times: 1})
	c := &split.Coordinator{Table: lossy.Table(), Clock: n.src, Driver: 1}
	if err := c.BeginAutomatic(t.Context(), n, state, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.BeginAutomatic(t.Context(), n, state, 2); err != nil {
		t.Fatalf("the next one: %v", err)
	}
	if s := survey(t, n.c); len(s.Active) != 2 || len(s.Monitor.Split) != 2 {
		t.Fatalf("%d splits, cooldowns %v", len(s.Active), s.Monitor.Split)
	}
}
