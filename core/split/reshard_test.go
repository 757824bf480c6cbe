package split_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
)

// grown is one tick of a reshard: begin what is needed, and carry everything
// on to its end. It reports whether a reshard is still recorded.
func grown(ctx context.Context, n *node, atOnce int) (begun int, running bool, err error) {
	s, err := n.c.Survey(ctx, treeID)
	if err != nil {
		return 0, true, err
	}
	if s.Reshard != nil {
		m, err := n.Map(ctx)
		if err != nil {
			return 0, true, err
		}
		started, err := n.c.Grow(ctx, n, s, m, atOnce)
		if err != nil {
			return len(started), true, err
		}
		s.Active, begun = append(s.Active, started...), len(started)
	}
	for _, st := range s.Active {
		if _, err := n.c.Advance(ctx, n, st.Source, time.Minute); err != nil && !errors.Is(err, split.ErrDriven) {
			return begun, true, err
		}
	}
	return begun, s.Reshard != nil, nil
}

func owners(t *testing.T, n *node) int {
	t.Helper()
	m, err := n.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(m.Shards())
}

func TestAReshardGrowsInRoundsToItsTarget(t *testing.T) {
	n, _ := mapped(t, 3)
	r, err := n.c.BeginReshard(t.Context(), treeID, 3, 17)
	if err != nil || r.Start != 3 || r.Target != 17 {
		t.Fatalf("%+v, %v", r, err)
	}
	var rounds []int
	for running := true; running; {
		var begun int
		if begun, running, err = grown(t.Context(), n, 4); err != nil {
			t.Fatal(err)
		}
		if begun > 4 {
			t.Fatalf("%d begun in a round", begun)
		}
		rounds = append(rounds, begun)
	}
	if got := owners(t, n); got != 17 {
		t.Errorf("%d shards after rounds %v, want 17", got, rounds)
	}
	m, _ := n.Map(t.Context())
	for id, slots := range split.SlotCounts(m) {
		if slots < keyspace.Slots/32 || slots > keyspace.Slots/8 {
			t.Errorf("shard %d owns %d slots", id, slots)
		}
	}
}

func TestTheSplitsOfOthersCountForAReshard(t *testing.T) {
	n, _ := mapped(t, 4)
	for _, id := range []keyspace.ShardID{0, 1} {
		if _, err := n.c.Begin(t.Context(), n, id, split.CauseMonitor); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.c.BeginReshard(t.Context(), treeID, 4, 7); err != nil {
		t.Fatal(err)
	}
	s := survey(t, n.c)
	m, _ := n.Map(t.Context())
	if begun, err := n.c.Grow(t.Context(), n, s, m, 2); err != nil || len(begun) != 0 {
		t.Fatalf("%d begun beside 2 in flight of 2: %v", len(begun), err)
	}
	begun, err := n.c.Grow(t.Context(), n, s, m, 4)
	if err != nil || len(begun) != 1 || begun[0].Source != 2 || begun[0].Cause != split.CauseReshard {
		t.Fatalf("%v begun, %v: want one, of a shard at rest", begun, err)
	}
	if again, err := n.c.Grow(t.Context(), n, s, m, 4); err != nil || len(again) != 0 {
		t.Fatalf("%d begun by a tick that was overtaken: %v", len(again), err)
	}
	for running := true; running; {
		if _, running, err = grown(t.Context(), n, 4); err != nil {
			t.Fatal(err)
		}
	}
	if got := owners(t, n); got != 7 {
		t.Errorf("%d shards, want 7", got)
	}
}

func TestASecondReshardIsTurnedAway(t *testing.T) {
	n, _ := mapped(t, 2)
	first, err := n.c.BeginReshard(t.Context(), treeID, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []int{4, 8} {
		have, err := n.c.BeginReshard(t.Context(), treeID, 2, target)
		if !errors.Is(err, split.ErrResharding) || have.ID != first.ID || have.Target != 4 {
			t.Errorf("to %d: %+v, %v", target, have, err)
		}
	}
	old := *first
	if _, _, err := grown(t.Context(), n, 4); err != nil {
		t.Fatal(err)
	}
	if err := n.c.EndReshard(t.Context(), treeID, &old); err != nil {
		t.Errorf("ending one that has gone on: %v", err)
	}
	if survey(t, n.c).Reshard == nil {
		t.Error("an outdated view ended the reshard")
	}
}

func TestAReshardTurnsAwayTheMonitor(t *testing.T) {
	n, _ := mapped(t, 2)
	m := &split.MonitorState{}
	if err := n.c.SaveMonitor(t.Context(), treeID, m); err != nil {
		t.Fatal(err)
	}
	if _, err := n.c.BeginReshard(t.Context(), treeID, 2, 4); err != nil {
		t.Fatal(err)
	}
	if err := n.c.BeginAutomatic(t.Context(), n, m, 0); !errors.Is(err, split.ErrOutdated) {
		t.Fatalf("a split by a pass that knows of no reshard: %v", err)
	}
	if s := survey(t, n.c); len(s.Active) != 0 {
		t.Fatal("the split was recorded")
	}
}

// TestAReshardSurvivesACrashAtEveryOperation kills the instance at each storage
// operation of a reshard in turn, before and after its effect; another one ends
// it, at the very target.
func TestAReshardSurvivesACrashAtEveryOperation(t *testing.T) {
	points := 0
	for at, over := uint64(1), false; !over; at++ {
		for _, point := range faulty.Points {
			synctest.Test(t, func(t *testing.T) { over = crashReshard(t, at, point) })
			if over {
				break
			}
			points++
		}
	}
	t.Logf("%d crash points", points)
	if points < 50 {
		t.Errorf("%d crash points: the script is too short", points)
	}
}

// crashReshard reports whether the reshard was over before the victim died.
func crashReshard(t *testing.T, at uint64, point faulty.Point) bool {
	n, m := mapped(t, 2)
	in := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: n.src})
	victim := newNode(t, n.src, in.Table(), in.Blobs(), nil)
	in.KillAt(at, point)
	ctx, cancel := in.Context(t.Context())
	defer cancel()
	_, err := victim.c.BeginReshard(ctx, treeID, 2, 5)
	for running := true; running && err == nil; {
		_, running, err = grown(ctx, victim, 2)
	}
	if !in.Killed() {
		return true
	}
	if survey(t, n.c).Reshard == nil && owners(t, n) != 5 {
		if _, err := n.c.BeginReshard(t.Context(), treeID, 2, 5); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 0
	for running := true; running; rounds++ {
		if _, running, err = grown(t.Context(), n, 2); err != nil || rounds > 100 {
			t.Fatalf("killed at %d %s: %v after %d rounds", at, point, err, rounds)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if got := owners(t, n); got != 5 {
		t.Fatalf("killed at %d %s: %d shards, want 5", at, point, got)
	}
	return false
}

// TestAnyMapCanBeGrown draws maps that splits have made uneven, and targets.
func TestAnyMapCanBeGrown(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			n, _ := mapped(t, 1+rnd.IntN(4))
			for range rnd.IntN(5) {
				m, err := n.Map(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				source := m.Shards()[rnd.IntN(len(m.Shards()))]
				if _, err := n.c.Begin(t.Context(), n, source, "test"); err != nil {
					t.Fatal(err)
				}
				if _, err := n.c.Advance(t.Context(), n, source, time.Minute); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			start := owners(t, n)
			target := start + 1 + rnd.IntN(6)
			if _, err := n.c.BeginReshard(t.Context(), treeID, start, target); err != nil {
				t.Fatal(err)
			}
			for running := true; running; time.Sleep(time.Millisecond) {
				var err error
				if _, running, err = grown(t.Context(), n, 3); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if got := owners(t, n); got != target {
				t.Fatalf("seed %d: %d shards, want %d", seed, got, target)
			}
		})
	}
}

func TestDamagedRowsAreNamed(t *testing.T) {
	for _, row := range []string{"monitor", "reshard"} {
		n, m := mapped(t, 2)
		op := store.Insert(row, []byte("not an envelope at all"))
		if _, err := m.Table().Apply(t.Context(), "t-"+treeID, []store.Op{op}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.c.Survey(t.Context(), treeID); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("row %s: %v", row, err)
		}
	}
}
