package tree_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/metered"
)

// TestAMonitorThatDiesAnywhereStartsNothingTwice kills the instance at every
// storage operation of the pass that splits a hot shard. Whatever it did, the
// shard is split once within its cooldown, under the cluster's ceiling, and the
// cooldown is recorded with the split.
func TestAMonitorThatDiesAnywhereStartsNothingTwice(t *testing.T) {
	points := 0
	for at, over := uint64(1), false; !over; at++ {
		for _, point := range faulty.Points {
			synctest.Test(t, func(t *testing.T) { over = crashMonitor(t, at, point) })
			if over {
				break
			}
			points++
		}
	}
	t.Logf("%d crash points", points)
	if points < 16 {
		t.Errorf("%d crash points: the pass is too short", points)
	}
}

// crashMonitor reports whether the pass was over before its instance died.
func crashMonitor(t *testing.T, at uint64, point faulty.Point) bool {
	const keys, cooldown = 400, time.Minute
	s := newStage(t, func(o *options.Options) {
		o.HotShardSplitCooldown, o.MaxClusterConcurrentAutoSplits = cooldown, 1
	})
	s.still = true
	h := s.plant("tree", keys)
	hot := owned(h, keys, 2)
	load := func(second int) { s.heat(h, hot, 40, second) }
	s.watch()
	for second := range 10 {
		load(second)
		time.Sleep(time.Second)
	}

	in := faulty.New(s.mem.Table(), s.mem.Blobs(), faulty.Options{Clock: s.src})
	o := s.db.Options()
	victim, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: s.src, Options: o})
	s.ok(err)
	in.KillAt(at, point)
	ctx, cancel := in.Context(t.Context())
	_, _ = victim.Monitor(ctx, time.Minute)
	cancel()
	if !in.Killed() {
		return true
	}

	s.replaced = true
	s.play(40*time.Second, load)
	all := s.splits(h)
	if len(all) != 1 || all[0].Source != 2 {
		t.Fatalf("killed at %d %s: %d splits, told %v", at, point, len(all), s.told("tree"))
	}
	c := &split.Coordinator{Table: s.mem.Table(), Clock: s.src}
	sv, err := c.Survey(t.Context(), treeIDOf(t, s))
	s.ok(err)
	if since := all[0].Started - sv.Monitor.Split[keyspace.ShardID(2)]; since < 0 || since > 1000 {
		t.Fatalf("killed at %d %s: the cooldown began %d ms before the split", at, point, since)
	}
	a, err := s.db.SplitActivity(t.Context())
	s.ok(err)
	if a.InFlight != 1 {
		t.Fatalf("killed at %d %s: activity %+v", at, point, a)
	}
	return false
}

// treeIDOf finds the tree's id in the partition that a look at its splits reads.
func treeIDOf(t *testing.T, s *stage) (id string) {
	t.Helper()
	in := faulty.New(s.mem.Table(), s.mem.Blobs(), faulty.Options{Clock: s.src})
	in.Add(faulty.Rule{When: faulty.InPartition("t-"), Do: faulty.Do(func(_ context.Context, c *faulty.Call) error {
		id = strings.TrimPrefix(c.Partition, "t-")
		return nil
	})})
	db, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: s.src, Options: s.db.Options()})
	s.ok(err)
	h, err := db.Open(t.Context(), "tree")
	s.ok(err)
	s.splits(h)
	return id
}

// TestAPassCostsOneOperationForEachShardAndFour counts them.
func TestAPassCostsOneOperationForEachShardAndFour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		s.plant("tree", 100)
		meter := metered.New(s.mem.Table(), s.mem.Blobs())
		db, err := tree.New(tree.Config{Table: meter.Table(), Blobs: meter.Blobs(), Clock: s.src, Options: s.db.Options()})
		s.ok(err)
		for range 3 {
			before := meter.Snapshot()
			_, err := db.Monitor(t.Context(), time.Minute)
			s.ok(err)
			spent := meter.Snapshot().Sub(before)
			// The walk reads its place and lists the trees, twice around; the tree
			// costs a survey, a look for bulk loads, its row, a sample of each of 4
			// shards, and the save.
			if got, walk := spent.Calls(), int64(3); got > walk+4+4 {
				t.Errorf("a pass over 4 shards made %d operations: %+v", got, spent)
			}
			time.Sleep(sampleEvery)
		}
	})
}
