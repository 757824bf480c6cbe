package shard_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
)

// A count of a shard that holds only what it owns reads the leaves that the
// index does not answer for, and no others.
func TestCostOfACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := func(cfg *shard.Config) { cfg.LeafTargetBytes = 4 << 10 }
		c := newCosted(t, small)
		const n = 4_000
		fill(t, c.Shard, n)
		if s, err := c.Stats(t.Context()); err != nil || s.Leaves < 20 {
			t.Fatalf("%d leaves, %v: not the case to be tested", s.Leaves, err)
		}
		for _, w := range []struct {
			name   string
			change func()
			bounds shard.Bounds
			want   int64
			reads  int64
		}{
			{"all in leaves", func() {}, shard.Bounds{}, n, 0},
			{"a range", func() {}, shard.Bounds{From: "key-01000", To: "key-03000"}, 2_000, 2},
			{"a key in the tail", func() { put(t, c.Shard, "key-00500", "w") }, shard.Bounds{}, n, 1},
			{"two keys far apart", func() { write(t, c.Shard, shard.Write{Op: shard.OpDelete, Key: "key-03500"}) }, shard.Bounds{}, n - 1, 2},
		} {
			w.change()
			cold := instance(t, c.meter.Table(), c.meter.Blobs(), small).Shard("s-test-0")
			v, err := cold.View(t.Context(), shard.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			cost := c.spend(func() {
				if got, err := v.Count(t.Context(), w.bounds, nil); got != w.want || err != nil {
					t.Errorf("%s: count %d, %v, want %d", w.name, got, err, w.want)
				}
			})
			if cost.Calls() > w.reads {
				t.Errorf("%s: the count costs %+v, more than %d reads", w.name, cost, w.reads)
			}
		}
	})
}

// fill writes n keys and leaves them all in the base.
func fill(t *testing.T, s *shard.Shard, n int) {
	t.Helper()
	writes := make([]shard.Write, n)
	for i := range writes {
		writes[i] = shard.Write{Op: shard.OpPut, Key: fmt.Sprintf("key-%05d", i), Value: []byte(fmt.Sprint("value ", i)), Blind: true}
	}
	if _, err := s.Write(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Checkpoint(t.Context(), shard.CheckpointOptions{Force: true, Budget: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// From the moment at which a shard takes part in a migration, and ever after,
// it may hold keys that it does not own: a count asks for each of them.
func TestCountOfAShardThatTookPartInAMigration(t *testing.T) {
	const n = 500
	for name, migrate := range map[string]func(s *shard.Shard) error{
		"incoming": func(s *shard.Shard) error { return s.BeginIncoming(t.Context(), shard.Incoming{ID: "m"}) },
		"outgoing": func(s *shard.Shard) error {
			return s.BeginOutgoing(t.Context(), shard.Outgoing{ID: "m", Target: "s-test-1"})
		},
		"ended": func(s *shard.Shard) error { return ended(t, s) },
		"none":  func(*shard.Shard) error { return nil },
	} {
		s := fresh(t, func(cfg *shard.Config) { cfg.LeafTargetBytes = 1 << 10 })
		fill(t, s, n)
		if err := migrate(s); err != nil {
			t.Fatal(err)
		}
		even := func(slot uint16) bool { return slot%2 == 0 }
		want := int64(n)
		if name != "none" {
			want = 0
			for i := range n {
				if even(keyspace.Slot(fmt.Sprintf("key-%05d", i))) {
					want++
				}
			}
		}
		v, err := s.View(t.Context(), shard.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Count(t.Context(), shard.Bounds{}, even); got != want || err != nil {
			t.Errorf("%s: count %d, %v, want %d", name, got, err, want)
		}
	}
}

func ended(t *testing.T, s *shard.Shard) error {
	if err := s.BeginIncoming(t.Context(), shard.Incoming{ID: "m"}); err != nil {
		return err
	}
	return s.EndIncoming(t.Context(), "m")
}

// What moved away is not counted, though its leaves are still there.
func TestCountLeavesOutWhatMovedAway(t *testing.T) {
	const n = 500
	s := fresh(t, func(cfg *shard.Config) { cfg.LeafTargetBytes = 1 << 10 })
	fill(t, s, n)
	var moved keyspace.SlotSet
	for slot := uint16(0); slot < keyspace.Slots; slot += 2 {
		moved.Add(slot)
	}
	if err := s.MoveAway(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for i := range n {
		if !moved.Has(keyspace.Slot(fmt.Sprintf("key-%05d", i))) {
			want++
		}
	}
	v, err := s.View(t.Context(), shard.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Count(t.Context(), shard.Bounds{}, nil); got != want || err != nil || want == n {
		t.Errorf("count %d, %v, want %d", got, err, want)
	}
}
