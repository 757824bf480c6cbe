package tree

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
)

// movingKeys returns a key of the upper half of a shard's slots, which a split
// moves, one of the lower half, and one of another shard.
func movingKeys(t testing.TB, tr *Tree, from keyspace.ShardID) (moves, stays, other string) {
	t.Helper()
	m, err := tr.refresh(t.Context())
	must(t, err)
	var owned []uint16
	for slot := range uint16(keyspace.Slots) {
		if m.shardMap.Owner(slot) == from {
			owned = append(owned, slot)
		}
	}
	half := owned[(len(owned)+1)/2]
	for i := 0; moves == "" || stays == "" || other == ""; i++ {
		key := "key-" + strings.Repeat("x", i)
		switch slot := keyspace.Slot(key); {
		case m.shardMap.Owner(slot) != from:
			other = key
		case slot >= half:
			moves = key
		default:
			stays = key
		}
	}
	return moves, stays, other
}

// divider returns an instance without hooks, which can split shards.
func (r *rivals) divider(t testing.TB) *instance {
	t.Helper()
	db, err := New(Config{Table: r.mem.Table(), Blobs: r.mem.Blobs(), Clock: r.src, Options: options.Default()})
	must(t, err)
	return &instance{DB: db}
}

// until carries a split of a shard on, step by step, up to a phase.
func (in *instance) until(t testing.TB, from keyspace.ShardID, phase split.Phase) *split.State {
	t.Helper()
	tr := in.writer(t, "demo")
	m, err := tr.refresh(t.Context())
	must(t, err)
	x := &splitTree{t: tr, id: m.ID}
	_, err = in.splits.Begin(t.Context(), x, from, "test")
	if err != nil {
		wantErr(t, err, split.ErrBusy)
	}
	for range 100 {
		s, err := in.splits.Advance(t.Context(), x, from, 0)
		must(t, err)
		if s.Phase >= phase {
			return s
		}
	}
	t.Fatal("the split stands still")
	return nil
}

// settle lets ticks of migrations, and those of transactions by another instance,
// bring everything to its end, long enough for rows to be forgotten.
func (in *instance) settle(t testing.TB, batches *instance) {
	t.Helper()
	for range 6 {
		must(t, in.clock.Sleep(t.Context(), time.Minute))
		if _, err := in.Migrations(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		rep, err := batches.Transactions(t.Context(), 0)
		if err != nil || rep.Failed > 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
	}
}

// A shard is split from before the window until after its end while a batch is
// prepared and not decided. The new owner must hear of the decision, though the
// coordinator knows only the old one, before the decision is forgotten.
func TestTheDecisionReachesWhoeverOwnsTheKeyByThen(t *testing.T) {
	for _, phase := range []split.Phase{split.PhaseDrain, split.PhaseSwap, split.PhaseReject, split.PhaseComplete, split.PhaseDone} {
		t.Run(phase.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRivals(t)
				moves, stays, other := movingKeys(t, r.second, 0)
				keys := []string{moves, stays, other}
				mustBatch(t, r.second, setAll(keys, "old"), "")
				d := r.divider(t)
				r.meanwhile(2, func(context.Context) { d.until(t, 0, phase) })
				mustBatch(t, r.first, setAll(keys, "new"), "")
				if got := values(t, r.second, keys); got != "new new new" {
					t.Errorf("read %q", got)
				}
				d.settle(t, r.slow)
				mustBatch(t, r.first, setAll(r.keys, "a later batch takes rows away"), "")
				cold := open(t, r.mem.Table(), r.mem.Blobs())
				tr := cold.writer(t, "demo")
				if got := values(t, tr, keys); got != "new new new" {
					t.Errorf("in the end %q", got)
				}
				nothingPending(t, cold, tr)
			})
		})
	}
}

// The map has moved, and the migration is not over yet. A batch is prepared on
// source and target as owners; the source hears of the decision first, and what
// the migration brings over from its log must not end the batch on the target.
func TestWhatAMigrationBringsEndsNoBatchOfTheNewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		moves, stays, other := movingKeys(t, r.second, 0)
		keys := []string{moves, stays, other}
		mustBatch(t, r.second, setAll(keys, "old"), "")
		d := r.divider(t)
		d.until(t, 0, split.PhaseReject)
		m, err := r.second.refresh(t.Context())
		must(t, err)
		target, writes := m.partitions[m.shardMap.OwnerOf(moves)], 0
		r.other.hooks.set(func(op, partition string) error {
			if op == "write" && partition == target {
				if writes++; writes == 2 {
					return store.ErrUnavailable
				}
			}
			return nil
		})
		mustBatch(t, r.second, setAll(keys, "new"), "")
		if writes != 2 {
			t.Fatalf("%d writes to the target", writes)
		}
		r.other.hooks.set(nil)
		d.until(t, 0, split.PhaseDone)
		d.settle(t, d)
		cold := open(t, r.mem.Table(), r.mem.Blobs())
		tr := cold.writer(t, "demo")
		if got := values(t, tr, keys); got != "new new new" {
			t.Errorf("read %q", got)
		}
		nothingPending(t, cold, tr)
	})
}

// The coordinator tells a source that is sealed, which forgets the batch. A tick
// that has read the map before it moves tells the source again, when it has given
// the slots away: that is not to have told the owner.
func TestATickUnderAnOldMapHasNotToldTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		moves, stays, other := movingKeys(t, r.second, 0)
		keys := []string{moves, stays, other}
		mustBatch(t, r.second, setAll(keys, "old"), "")
		m, err := r.second.refresh(t.Context())
		must(t, err)
		d := r.divider(t)
		r.meanwhile(2, func(ctx context.Context) {
			s := d.until(t, 0, split.PhaseSwap)
			must(t, (&splitTree{t: d.writer(t, "demo"), id: m.ID}).Shard(0).Seal(ctx, s.ID))
		})
		mustBatch(t, r.first, setAll(keys, "new"), "")
		_ = r.src.Sleep(t.Context(), 11*time.Second)
		moved := false
		r.other.hooks.set(func(op, partition string) error {
			if op == "write" && partition == m.partitions[0] && !moved {
				moved = true
				d.until(t, 0, split.PhaseDone)
			}
			return nil
		})
		if rep, err := r.other.Transactions(t.Context(), 0); err != nil || rep.Failed > 0 || !moved {
			t.Fatalf("%+v, %v; map moved %v", rep, err, moved)
		}
		r.other.hooks.set(nil)
		d.settle(t, r.other)
		cold := open(t, r.mem.Table(), r.mem.Blobs())
		tr := cold.writer(t, "demo")
		if got := values(t, tr, keys); got != "new new new" {
			t.Errorf("in the end %q", got)
		}
		nothingPending(t, cold, tr)
	})
}
