package shard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func TestLogStaysShortThoughNoTimerEverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, nil)
		const writes = 10_000
		for n := range writes {
			put(t, c.Shard, fmt.Sprintf("%05d", n%1000), fmt.Sprint(n))
		}
		cold := instance(t, c.meter.Table(), c.meter.Blobs(), nil).Shard("s-test-0")
		var got string
		spent := c.spend(func() {
			e, ok, err := cold.Read(t.Context(), "00999", shard.ReadOptions{})
			if err != nil || !ok {
				t.Fatalf("%v %v", ok, err)
			}
			got = string(e.Value)
		})
		// Two pages of log, the manifest, and a leaf of each run at most.
		if got != fmt.Sprint(writes-1) || spent.Calls() > 10 {
			t.Errorf("a cold read after %d writes without a tick gave %q and cost %+v", writes, got, spent)
		}
		h, err := cold.Hotness(t.Context())
		if err != nil || h.TailRows > 4*400 {
			t.Errorf("%d rows wait in the log: %v", h.TailRows, err)
		}
	})
}

func TestWriterNeitherFailsNorWaitsLongWithTheCheckpointThatItTries(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{
		"away": faulty.Fail(store.ErrUnavailable),
		"hung": faulty.Do(func(ctx context.Context, _ *faulty.Call) error {
			<-ctx.Done()
			return store.ErrUnavailable
		}),
	} {
		synctest.Test(t, func(t *testing.T) {
			m := memory.New(memory.Options{})
			f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
			s := instance(t, f.Table(), f.Blobs(), func(c *shard.Config) { c.Tuning.CheckpointTailRows = 5 }).Shard("s-test-0")
			if err := s.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			tried := f.Add(faulty.Rule{When: faulty.Kinds(faulty.BlobPut), Do: fault})
			start := time.Now()
			var longest time.Duration
			for n := range 100 {
				began := time.Now()
				put(t, s, fmt.Sprint(n), "v")
				longest = max(longest, time.Since(began))
			}
			if tried.Fired() == 0 || longest > 6*time.Second || time.Since(start) > 10*time.Second {
				t.Errorf("blobs %s: the longest of 100 writes took %s, all %s, with %d tries", name, longest, time.Since(start), tried.Fired())
			}
			f.Clear()
			time.Sleep(31 * time.Second)
			put(t, s, "last", "v")
			if h, err := s.Hotness(t.Context()); err != nil || h.TailRows > 5 {
				t.Errorf("%d rows wait in the log when the blobs are back: %v", h.TailRows, err)
			}
		})
	}
}
