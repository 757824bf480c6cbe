package tree

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// late is a reader whose view of one shard is taken long after those of the
// others, and what happens in between.
func late(t *testing.T, r *rivals, key string, between func(ctx context.Context)) *Tree {
	t.Helper()
	in := open(t, r.mem.Table(), r.mem.Blobs())
	tr := in.writer(t, "demo")
	if got := values(t, tr, r.keys); got != "old old old old" {
		t.Fatalf("before: %q", got)
	}
	m, fired := tr.entry.last.Load(), false
	slow := m.partitions[m.shardMap.OwnerOf(key)]
	in.hooks.set(func(op, partition string) error {
		if op == "view" && partition == slow && !fired {
			fired = true
			_ = r.src.Sleep(t.Context(), time.Second)
			between(t.Context())
		}
		return nil
	})
	t.Cleanup(func() {
		if !fired {
			t.Error("nothing happened between the views")
		}
	})
	return tr
}

// A batch happens between the views of two shards: it is seen whole or not at all,
// whether the later view has its parts as they were prepared or as entries, and
// whoever's clock is ahead.
func TestABatchBetweenTwoViewsIsSeenWhole(t *testing.T) {
	for _, done := range []bool{true, false} {
		for name, read := range readers {
			if name == "get" || name == "of one shard" {
				continue // each of them is a read of its own
			}
			for place := range 4 {
				t.Run(fmt.Sprintf("%s, decided %v, late %d", name, done, place), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRivals(t)
						tr := late(t, r, r.keys[place], func(ctx context.Context) {
							if done {
								mustBatch(t, r.second, setAll(r.keys, "new"), "")
								return
							}
							r.faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-")), Skip: 1, Times: 1, Do: faulty.Crash(faulty.AfterEffect)})
							ctx, cancel := r.faults.Context(ctx)
							defer cancel()
							_, _ = r.first.AtomicBatch(ctx, setAll(r.keys, "new"), "")
						})
						got, err := read(t.Context(), tr, r.keys, ReadOptions{})
						if err != nil || got != "new new new new" && got != "old old old old" {
							t.Errorf("read %q, %v", got, err)
						}
					})
				})
			}
		}
	}
}

// The same for a count, by a batch that deletes.
func TestABatchBetweenTwoViewsIsCountedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		tr := late(t, r, r.keys[2], func(context.Context) {
			var ops []BatchOp
			for _, key := range r.keys {
				ops = append(ops, BatchOp{Delete: true, Key: key})
			}
			mustBatch(t, r.second, ops, "")
		})
		if c, err := tr.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 0 && c.Total != 4 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// A reader that has never seen the shards, and one to whom old views will do,
// cannot know what is new to them: they compare all the same.
func TestColdAndOldReadersSeeBatchesWhole(t *testing.T) {
	for _, maxAge := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("age up to ", maxAge), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := clock.NewSystem()
				mem := memory.New(memory.Options{Clock: src})
				writer := open(t, mem.Table(), mem.Blobs()).writer(t, "demo")
				keys := spread(t, writer, 4)
				mustBatch(t, writer, setAll(keys, "old"), "")
				reader := open(t, mem.Table(), mem.Blobs()).writer(t, "demo")
				if got := values(t, reader, keys[:2]); got != "old old" { // of these it will have old views
					t.Fatal(got)
				}
				mustBatch(t, writer, setAll(keys, "new"), "")
				items, err := reader.GetMany(t.Context(), keys, ReadOptions{MaxAge: maxAge})
				if got := joined(items); err != nil || got != "new new new new" && got != "old old old old" {
					t.Errorf("read %q, %v", got, err)
				}
			})
		})
	}
}
