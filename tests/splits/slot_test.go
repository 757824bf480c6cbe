package splits

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
)

// isolate lets 20 clients ask for one key, 2,000 times a second together, for d,
// while the timers run.
func isolate(t *testing.T, db *tree.DB, h *tree.Tree, src clock.Source, d time.Duration) (last tree.MonitorReport) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for src.Sleep(ctx, 10*time.Millisecond) == nil {
				if _, err := h.Put(context.WithoutCancel(ctx), keyOf(7), []byte("hot"), tree.PutOptions{}); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
	}
	for src.Sleep(ctx, time.Second) == nil {
		var err error
		if last, err = db.Monitor(context.WithoutCancel(ctx), 0); err != nil {
			t.Error(err)
		}
		if _, err := db.Migrations(context.WithoutCancel(ctx), 0); err != nil {
			t.Error(err)
		}
		if _, err := db.Checkpoint(context.WithoutCancel(ctx), 0); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	return last
}

// Halving ends where nothing is left to halve: after 12 splits one of 4,096
// slots is alone, and the shard stays as it is, however hot.
func TestHotSlotIsIsolatedAndThenLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, src := memory.New(memory.Options{}), clock.NewSystem()
		o := options.Default()
		o.DefaultShardCount, o.HotShardMinShardEntries = 1, 0
		o.HotShardSampleInterval, o.AutoSplitMinTreeAge, o.HotShardSplitCooldown = time.Second, 0, time.Second
		db, err := tree.New(tree.Config{Table: mem.Table(), Blobs: mem.Blobs(), Clock: src, Options: o})
		if err != nil {
			t.Fatal(err)
		}
		h, err := db.OpenOrCreate(t.Context(), "slot")
		if err != nil {
			t.Fatal(err)
		}
		isolate(t, db, h, src, 40*time.Second)
		m := h.ShardMap()
		if n := split.SlotCounts(m)[m.OwnerOf(keyOf(7))]; n != 1 {
			t.Errorf("the hot slot shares its shard with %d others", n-1)
		}
		if n := len(m.Shards()); n < 12 || n > 14 {
			t.Errorf("%d shards to isolate one of %d slots", n, keyspace.Slots)
		}
		rep := isolate(t, db, h, src, 10*time.Second)
		again, err := h.ReadShardMap(t.Context())
		if err != nil || len(again.Shards()) != len(m.Shards()) || again.Version != m.Version {
			t.Errorf("%d shards become %d, %v", len(m.Shards()), len(again.Shards()), err)
		}
		if len(rep.Passes) != 1 || len(rep.Passes[0].Candidates) != 1 || rep.Passes[0].Candidates[0].Reason != split.ReasonSingleSlot {
			t.Fatalf("the monitor tells %+v", rep.Passes)
		}
		c := rep.Passes[0].Candidates[0]
		t.Logf("%d shards; the hot one serves %.0f operations/s and is left alone: %s", len(m.Shards()), c.Rate, c.Reason)
	})
}
