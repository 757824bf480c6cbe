package shard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

// costed is a shard whose storage takes 5 ms a call and is counted.
type costed struct {
	*shard.Shard
	meter *metered.Store
	mem   *memory.Store
}

func newCosted(t *testing.T, edit func(*shard.Config)) costed {
	t.Helper()
	src := clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src})
	slow := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
	slow.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(5*time.Millisecond, 0)})
	meter := metered.New(slow.Table(), slow.Blobs())
	s := instance(t, meter.Table(), meter.Blobs(), edit).Shard("s-test-0")
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return costed{Shard: s, meter: meter, mem: mem}
}

// spend returns what f costs.
func (c costed) spend(f func()) metered.Snapshot {
	before := c.meter.Snapshot()
	f()
	return c.meter.Snapshot().Sub(before)
}

// together runs f in n goroutines at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func TestCostOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, nil)
		put(t, c.Shard, "warm", "up")
		if got := c.spend(func() { put(t, c.Shard, "a", "1") }); got.Calls() != 1 || got.Applies != 1 {
			t.Errorf("a warm put costs %+v, not one transaction", got)
		}
		got := c.spend(func() {
			together(64, func(i int) { put(t, c.Shard, fmt.Sprint("key", i), "v") })
		})
		if got.Calls() != got.Applies || got.Applies > 4 {
			t.Errorf("64 concurrent puts cost %+v, not at most 4 transactions", got)
		}
		got = c.spend(func() { write(t, c.Shard, shard.Write{Op: shard.OpDelete, Key: "absent"}) })
		if got.Calls() != 1 || got.Ranges != 1 {
			t.Errorf("a delete of nothing costs %+v, not one query", got)
		}
	})
}

// Writers that write again as soon as they are answered end up in one group,
// not in two halves that wait for each other's appends.
func TestWritersGatherInOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, nil)
		put(t, c.Shard, "warm", "up")
		const writers, each = 64, 20
		got := c.spend(func() {
			together(writers, func(i int) {
				for range each {
					put(t, c.Shard, fmt.Sprint("key", i), "v")
				}
			})
		})
		if most := int64(each + each/4); got.Applies > most || got.Calls() != got.Applies {
			t.Errorf("%d writers of %d puts each need %d transactions, more than %d", writers, each, got.Applies, most)
		}
	})
}

func TestCostOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, nil)
		put(t, c.Shard, "a", "1")
		if got := c.spend(func() { get(t, c.Shard, "a") }); got.Calls() != 1 || got.Ranges != 1 {
			t.Errorf("a warm strong get costs %+v, not one query", got)
		}
		// The first reader begins a check at once; the others share the next.
		if got := c.spend(func() { together(64, func(int) { get(t, c.Shard, "a") }) }); got.Ranges > 2 || got.Calls() != got.Ranges {
			t.Errorf("64 concurrent strong gets cost %+v, not two queries", got)
		}
		aged := shard.ReadOptions{MaxAge: time.Minute}
		got := c.spend(func() {
			if _, ok, err := c.Get(t.Context(), "a", aged); !ok || err != nil {
				t.Errorf("aged get: %v, %v", ok, err)
			}
		})
		if got.Calls() != 0 {
			t.Errorf("a get of an accepted age costs %+v", got)
		}
		_ = clock.NewSystem().Sleep(t.Context(), 2*time.Minute)
		if got := c.spend(func() { _, _, _ = c.Get(context.Background(), "a", aged) }); got.Ranges != 1 {
			t.Errorf("a get beyond the accepted age costs %+v, not one query", got)
		}
	})
}

func TestCostUnderLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, withLeases)
		put(t, c.Shard, "a", "1")
		if got := c.spend(func() { together(64, func(int) { get(t, c.Shard, "a") }) }); got.Calls() != 0 {
			t.Errorf("64 strong gets under the lease cost %+v", got)
		}
		_ = clock.NewSystem().Sleep(t.Context(), 3*time.Second)
		if got := c.spend(func() { get(t, c.Shard, "a") }); got.Calls() != 1 || got.Applies != 1 {
			t.Errorf("the get that renews the lease costs %+v, not one transaction", got)
		}
		if got := c.spend(func() { get(t, c.Shard, "a") }); got.Calls() != 0 {
			t.Errorf("the get after it costs %+v", got)
		}
	})
}

func TestCostOfColdGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := func(cfg *shard.Config) { cfg.LeafTargetBytes = 4 << 10 }
		c := newCosted(t, small)
		for round := range 3 {
			for i := range 400 {
				put(t, c.Shard, fmt.Sprintf("key-%04d", i), fmt.Sprint("value ", round))
			}
			if _, err := c.Checkpoint(t.Context(), shard.CheckpointOptions{Force: true, Budget: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range []string{"key-0000", "key-0200", "key-0399", "absent"} {
			cold := instance(t, c.meter.Table(), c.meter.Blobs(), small).Shard("s-test-0")
			got := c.spend(func() {
				if e, ok := get(t, cold, key); ok != (key != "absent") || ok && string(e.Value) != "value 2" {
					t.Errorf("cold get of %s: %v, %q", key, ok, e.Value)
				}
			})
			if got.Calls() > 4 {
				t.Errorf("a cold get of %s costs %+v, not at most 4 operations", key, got)
			}
			t.Logf("cold get of %s: %d operations", key, got.Calls())
		}
	})
}

// A cold instance reads a log longer than one page, and longer than the rows
// that the last checkpoint left behind.
func TestColdOpenOfLongLog(t *testing.T) {
	m := memory.New(memory.Options{})
	long := func(c *shard.Config) { c.Tuning.CheckpointTailRows, c.Tuning.CheckpointTailBytes = 1<<20, 1<<40 }
	s := instance(t, m.Table(), m.Blobs(), long).Shard("s-test-0")
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	const rows = 2500
	for i := range rows {
		put(t, s, fmt.Sprintf("key-%04d", i), "v")
	}
	check := func(when string) {
		cold := instance(t, m.Table(), m.Blobs(), long).Shard("s-test-0")
		v, err := cold.View(t.Context(), shard.ReadOptions{})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if n, err := v.Count(t.Context(), shard.Bounds{}, nil); n != rows || err != nil {
			t.Fatalf("%s: count %d, %v", when, n, err)
		}
	}
	check("no checkpoint")
	if _, err := s.Checkpoint(t.Context(), shard.CheckpointOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	check("all rows checkpointed and none collected")
	for i := range 1200 {
		put(t, s, fmt.Sprintf("key-%04d", i), "w")
	}
	check("rows above and below the checkpoint fill pages")
}
