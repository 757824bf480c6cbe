package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// operator is an instance that carries splits, on the same store as others.
func operator(t testing.TB, m *memory.Store, change ...func(*options.Options)) *DB {
	t.Helper()
	o := options.Default()
	for _, f := range change {
		f(&o)
	}
	db, err := New(Config{Table: m.Table(), Blobs: m.Blobs(), Clock: clock.NewSystem(), Options: o})
	must(t, err)
	return db
}

// divide splits a shard of a tree to the end.
func divide(t testing.TB, db *DB, name string, source keyspace.ShardID) {
	t.Helper()
	h, err := db.Open(t.Context(), name)
	must(t, err)
	_, err = h.BeginSplit(t.Context(), source, "test")
	must(t, err)
	migrate(t, db, h, 0)
}

// migrate carries splits on until so many are left.
func migrate(t testing.TB, db *DB, h *Tree, left int) {
	t.Helper()
	for range 1000 {
		rep, err := db.Migrations(t.Context(), time.Minute)
		must(t, err)
		if rep.Failed > 0 {
			t.Fatal(rep.Failures)
		}
		active, _, err := h.Splits(t.Context())
		must(t, err)
		if len(active) <= left {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatal("the splits do not end")
}

func TestAChunkIsSentAgainAfterSplits(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, db *DB){
		"a split of a shard that has its part":   func(t *testing.T, db *DB) { divide(t, db, "t", 0) },
		"a split of a shard that has it not yet": func(t *testing.T, db *DB) { divide(t, db, "t", 2) },
		"a reshard": func(t *testing.T, db *DB) {
			h, err := db.Open(t.Context(), "t")
			must(t, err)
			_, _, err = h.Reshard(t.Context(), 9)
			must(t, err)
			for st := (ReshardStatus{}); !st.Complete; {
				_, err = db.Migrations(t.Context(), time.Minute)
				must(t, err)
				st, err = h.ReshardStatus(t.Context())
				must(t, err)
				time.Sleep(time.Second)
			}
		},
	} {
		for as, graft := range map[string]int64{"leaves": 0, "records": 64 << 20} {
			t.Run(name+" as "+as, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tune := func(o *options.Options) { o.BulkGraftBytes = graft }
					db, m := fresh(t, tune)
					h := db.writer(t, "t")
					begin(t, h, "op")
					want := noise(0, 1000, 50)
					appendChunk(t, h, 0, want[:500])
					broken := errors.New("out of order")
					db.fails("-2", broken)
					_, err := h.AppendBulkLoad(t.Context(), "op", 1, from(want[500:]), BulkOptions{})
					wantErr(t, err, broken)
					db.hooks.set(nil)
					change(t, operator(t, m, tune))
					appendChunk(t, h, 1, want[500:])
					holds(t, h, want)
					if v := versionsOf(t, h); len(v) != 2 {
						t.Errorf("%d versions for two chunks", len(v))
					}
				})
			})
		}
	}
}

// A shard moves slots away after a load was divided by shards and before the
// slice arrives.
func TestALoadThatASplitOvertakes(t *testing.T) {
	for name, load := range map[string]func(t *testing.T, h *Tree, want []BulkEntry) error{
		"one-shot": func(t *testing.T, h *Tree, want []BulkEntry) error {
			_, err := h.BulkLoad(t.Context(), from(shuffled(want, 1)), BulkOptions{})
			return err
		},
		"stream": func(t *testing.T, h *Tree, want []BulkEntry) error {
			_, err := h.BulkStream(t.Context(), from(want), BulkOptions{})
			return err
		},
	} {
		for when, sizes := range map[string][]int{"write": {20}, "stage": {300, 4000}, "graft": {300, 4000}} {
			for _, n := range sizes {
				t.Run(fmt.Sprintf("%s of %d, before it is to %s", name, n, when), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						db, m := fresh(t, smallBulk, func(o *options.Options) { o.InlineValueBytes, o.BulkGraftBytes = 2000, 2000 })
						h := db.writer(t, "t")
						op := operator(t, m, smallBulk)
						var once sync.Once
						db.hooks.set(func(what, partition string) error {
							if what == when && strings.HasSuffix(partition, "-1") {
								once.Do(func() { divide(t, op, "t", 1) })
							}
							return nil
						})
						want := noise(0, n, 100)
						if n > 20 {
							want[n/2].Value = make([]byte, 3000)
							want[n/3].Value = make([]byte, 4000)
						}
						must(t, load(t, h, want))
						holds(t, h, want)
						if n := len(h.ShardMap().Shards()); n != 5 {
							t.Errorf("%d shards: no split came in between", n)
						}
					})
				})
			}
		}
	}
}

// While a shard takes part in a split every entry goes into its log.
func TestALoadDuringASplitGoesIntoTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, m := fresh(t, smallBulk)
		h := db.writer(t, "t")
		begin(t, h, "op")
		want := noise(0, 3000, 50)
		appendChunk(t, h, 0, want[:1000])
		op := operator(t, m, smallBulk, func(o *options.Options) { o.SplitDrainBatchSize, o.BackgroundDrainLeavesPerPass = 10, 1 })
		oh, err := op.Open(t.Context(), "t")
		must(t, err)
		for id := range keyspace.ShardID(4) {
			_, err := oh.BeginSplit(t.Context(), id, "test")
			must(t, err)
		}
		for id := range keyspace.ShardID(4) {
			// From then on both shards know of the split.
			x := &splitTree{t: oh, id: oh.entry.cur.Load().ID}
			for phase := split.PhaseBeginShadowWrite; phase != split.PhaseDrain; {
				st, err := op.splits.Advance(t.Context(), x, id, 0)
				must(t, err)
				if phase = st.Phase; phase > split.PhaseDrain {
					t.Fatalf("the split is at %v", phase)
				}
			}
		}
		grafts := db.hooks.count("graft")
		before := db.hooks.count("write")
		appendChunk(t, h, 1, want[1000:2000])
		if db.hooks.count("write") == before {
			t.Errorf("%d grafts and no write", db.hooks.count("graft")-grafts)
		}
		migrate(t, op, oh, 0)
		appendChunk(t, h, 1, want[1000:2000]) // acknowledged already
		appendChunk(t, h, 2, want[2000:])
		holds(t, h, want)
		if v := versionsOf(t, h); len(v) != 3 {
			t.Errorf("%d versions for three chunks", len(v))
		}
	})
}

func TestBeginSeesWhatASplitMovesFromUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 2 })
		h := db.writer(t, "t")
		key := ""
		for i := range 10_000 { // one in the half of shard 1 that moves
			if e := numbered(i, i+1, 1)[0]; keyspace.Slot(e.Key) >= keyspace.Slots*3/4 {
				key = e.Key
				break
			}
		}
		put(t, h, key)
		op := operator(t, m)
		var once sync.Once
		db.hooks.set(func(o, partition string) error {
			if o == "empty" && strings.HasSuffix(partition, "-1") {
				once.Do(func() { divide(t, op, "t", 1) })
			}
			return nil
		})
		_, _, err := h.BeginBulkLoad(t.Context(), "op")
		wantErr(t, err, ErrTreeNotEmpty)
	})
}

// The tree is purged and made anew while a chunk of it is on its way: nothing of
// the chunk may get into the new one.
func TestAChunkDoesNotReachANewTreeOfTheName(t *testing.T) {
	for name, graft := range map[string]int64{"as leaves": 0, "as records": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			db, m := fresh(t, func(o *options.Options) { o.BulkGraftBytes = graft })
			other := open(t, m.Table(), m.Blobs())
			h := db.writer(t, "t")
			begin(t, h, "op")
			var once sync.Once
			db.hooks.set(func(op, _ string) error {
				if op == "graft" || op == "write" {
					once.Do(func() {
						must(t, other.Delete(t.Context(), "t"))
						must(t, other.Purge(t.Context(), "t"))
						other.writer(t, "t")
					})
				}
				return nil
			})
			_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(noise(0, 400, 20)), BulkOptions{})
			wantErr(t, err, ErrOperationNotFound)
			holds(t, h, nil)
		})
	}
}

// Two attempts at one chunk at the same time agree on its version.
func TestTwoAttemptsAtOneChunk(t *testing.T) {
	m := memory.New(memory.Options{})
	tune := func(o *options.Options) { o.BulkGraftBytes = 64 << 20 }
	quick := open(t, m.Table(), m.Blobs(), tune)
	want := noise(0, 400, 20)
	var once sync.Once
	broken := errors.New("out of order")
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	begin(t, quick.writer(t, "t"), "op")
	slow := open(t, f.Table(), f.Blobs(), tune).writer(t, "t")
	// Before the slow attempt writes what it intends, the quick one has done so,
	// and half of the chunk is there.
	f.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("bulk-")), Times: 1, Do: faulty.Do(func(context.Context, *faulty.Call) error {
		once.Do(func() {
			quick.fails("-2", broken)
			_, err := quick.writer(t, "t").AppendBulkLoad(t.Context(), "op", 0, from(want), BulkOptions{})
			wantErr(t, err, broken)
		})
		return nil
	})})
	appendChunk(t, slow, 0, want)
	holds(t, slow, want)
	if v := versionsOf(t, slow); len(v) != 1 {
		t.Errorf("%d versions in one chunk", len(v))
	}
}
