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
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func diagnose(t testing.TB, h *Tree, deep bool) Diagnostics {
	t.Helper()
	d, err := h.Diagnostics(t.Context(), deep)
	must(t, err)
	if d.Deep != deep || d.Tree != h.name {
		t.Fatalf("diagnostics of %q, deep %v", d.Tree, d.Deep)
	}
	return d
}

// Deep diagnostics count what is there, in leaves and tail; shallow ones
// estimate it.
func TestDiagnosticsOfATree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t, func(o *options.Options) { o.CheckpointTailRows = 10 })
		h, ctx := in.writer(t, "t"), t.Context()
		load(t, h, 400)
		for i := range 30 {
			_, err := h.Put(ctx, fmt.Sprintf("mortal-%02d", i), []byte("v"), PutOptions{TTL: time.Minute})
			must(t, err)
		}
		for i := range 40 {
			_, err := h.Delete(ctx, fmt.Sprintf("key-%06d", i), clock.Version{})
			must(t, err)
		}
		time.Sleep(time.Minute)
		for deleted := 40; deleted <= 60; deleted += 20 {
			deep, shallow := diagnose(t, h, true), diagnose(t, h, false)
			bytes := int64(0)
			for i := deleted; i < 400; i++ {
				bytes += 2*int64(len("key-000000")) + int64(len("value of "))
			}
			if deep.LiveKeys != int64(400-deleted) || deep.Tombstones != int64(deleted) || deep.Expired != 30 {
				t.Errorf("deep: %d live, %d tombstones, %d expired; want %d, %d, 30",
					deep.LiveKeys, deep.Tombstones, deep.Expired, 400-deleted, deleted)
			}
			if deep.Bytes != shallow.Bytes {
				t.Errorf("deep: %d bytes, shallow: %d", deep.Bytes, shallow.Bytes)
			}
			if shallow.LiveKeys != int64(430-deleted) || shallow.Tombstones != int64(deleted) || shallow.Bytes <= bytes {
				t.Errorf("shallow: %d live of %d bytes, %d tombstones", shallow.LiveKeys, shallow.Bytes, shallow.Tombstones)
			}
			checkShards(t, deep, deleted > 40)
			checkShards(t, shallow, deleted > 40)
			_, err := in.Checkpoint(ctx, 0)
			must(t, err)
			for i := 40; i < 60; i++ {
				_, err := h.Delete(ctx, fmt.Sprintf("key-%06d", i), clock.Version{})
				must(t, err)
			}
			h.dropDiagnostics()
		}
	})
}

// checkShards checks what every shard of a quiet tree of 4 shows, with a
// checkpoint or without.
func checkShards(t *testing.T, d Diagnostics, checkpoint bool) {
	t.Helper()
	var live int64
	for i, s := range d.Shards {
		live += s.LiveKeys
		shape := s.Depth > 0 && s.Leaves > 0 && s.StoredBytes > 0
		quiet := s.Splitting == nil && !s.BulkPending && s.HotKeys == nil && !s.RateKnown && !s.Lease.Held && s.Error == ""
		if int(s.Shard) != i || s.Slots != 1024 || shape != checkpoint || !quiet || s.TailRows == 0 || s.TailBytes == 0 || s.SampledAt.IsZero() {
			t.Errorf("checkpoint %v, shard %d: %+v", checkpoint, i, s)
		}
	}
	if live != d.LiveKeys || len(d.Shards) != 4 || d.Incomplete || d.Instance == 0 || d.SampledAt.IsZero() {
		t.Errorf("%d live keys in %d shards, incomplete %v, instance %d", live, len(d.Shards), d.Incomplete, d.Instance)
	}
}

func TestDiagnosticsAreSharedAndRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := meteredStore()
		in := open(t, s.Table(), s.Blobs())
		h := in.writer(t, "t")
		load(t, h, 100)
		ask := func(deep bool) int64 {
			return cost(s, func() {
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						if _, err := h.Diagnostics(t.Context(), deep); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			}).Calls()
		}
		// The registry, the splits, the bulk loads, and a query a shard.
		if n := ask(false); n < 4 || n > 3+4 {
			t.Errorf("20 shallow diagnostics at once cost %d calls", n)
		}
		if n := ask(true); n < 8 || n > 4+8 {
			t.Errorf("20 deep diagnostics at once cost %d calls", n)
		}
		time.Sleep(4900 * time.Millisecond)
		if n := ask(false) + ask(true); n != 0 {
			t.Errorf("diagnostics within DiagnosticsCacheTtl cost %d calls", n)
		}
		put(t, h, "new")
		h.dropDiagnostics()
		if n := diagnose(t, h, true).LiveKeys; n != 101 {
			t.Errorf("%d live keys after the cache was dropped", n)
		}
		put(t, h, "newer")
		time.Sleep(5 * time.Second)
		if n := diagnose(t, h, true).LiveKeys; n != 102 {
			t.Errorf("%d live keys after DiagnosticsCacheTtl", n)
		}
	})
}

// One shard does not answer: shallow diagnostics say so and tell of the others,
// deep ones fail. A caller who gives up is told that, and not that shards fail.
func TestDiagnosticsWithAShardThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		faults := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		in := open(t, faults.Table(), faults.Blobs(), func(o *options.Options) { o.DiagnosticsCacheTtl = 0 })
		h := in.writer(t, "t")
		load(t, h, 400)
		whole := diagnose(t, h, false)
		faults.Add(faulty.Rule{When: faulty.InPartition(h.entry.cur.Load().partitions[2]), Do: faulty.Fail(store.ErrUnavailable)})
		soon, cancel := context.WithTimeout(t.Context(), 2*sampleTimeout)
		defer cancel()
		d, err := h.Diagnostics(soon, false)
		must(t, err)
		if !d.Incomplete || d.LiveKeys != whole.LiveKeys-whole.Shards[2].LiveKeys || d.LiveKeys == 0 {
			t.Errorf("incomplete %v, %d live keys of %d", d.Incomplete, d.LiveKeys, whole.LiveKeys)
		}
		for i, s := range d.Shards {
			if failed := i == 2; (s.Error != "") != failed || (s.LiveKeys == 0) != failed || s.Slots != 1024 {
				t.Errorf("shard %d: %+v", i, s)
			}
		}
		if _, err := h.Diagnostics(t.Context(), true); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("deep diagnostics: error %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if d, err := h.Diagnostics(ctx, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller without time gets %+v, %v", d, err)
		}
	})
}

// Deep diagnostics are of one shard map, also while slots move.
func TestDeepDiagnosticsWhileSlotsMove(t *testing.T) {
	in, m := fresh(t, func(o *options.Options) { o.DiagnosticsCacheTtl = 0 })
	other := open(t, m.Table(), m.Blobs())
	h := in.writer(t, "t")
	load(t, h, 500)
	moves := 0
	in.hooks.set(func(op, partition string) error {
		if op == "view" && strings.HasSuffix(partition, "-3") && moves > 0 {
			moves--
			other.split(t, "t", 0, nil)
		}
		return nil
	})
	moves = 1
	if d := diagnose(t, h, true); d.LiveKeys != 500 || len(d.Shards) != 5 || d.MapVersion != 1 {
		t.Errorf("%d live keys in %d shards under map %d", d.LiveKeys, len(d.Shards), d.MapVersion)
	}
	moves = 4
	_, err := h.Diagnostics(t.Context(), true)
	wantErr(t, err, ErrTopologyUnstable)
}

// A name that stands for another tree does not show the figures of the first.
func TestDiagnosticsOfANewTreeOfTheName(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DiagnosticsCacheTtl = time.Hour })
	h := in.writer(t, "t")
	load(t, h, 100)
	diagnose(t, h, false)
	diagnose(t, h, true)
	must(t, in.Delete(t.Context(), "t"))
	_, err := h.Diagnostics(t.Context(), false)
	wantErr(t, err, ErrTreeDeleted)
	must(t, in.Purge(t.Context(), "t"))
	h = in.writer(t, "t")
	for _, deep := range []bool{false, true} {
		if d := diagnose(t, h, deep); d.LiveKeys != 0 {
			t.Errorf("deep %v: %d live keys in an empty tree", deep, d.LiveKeys)
		}
	}
}

func TestDiagnosticsTellLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t, func(o *options.Options) { o.Leases, o.DefaultShardCount = true, 1 })
		h := in.writer(t, "t")
		put(t, h, "a")
		held := diagnose(t, h, false).Shards[0].Lease
		if now := time.Now(); !held.Held || held.Owner == 0 || !held.Expiry.After(now) || held.Expiry.After(now.Add(10*time.Second)) {
			t.Errorf("lease %+v at %s", held, now)
		}
		time.Sleep(10 * time.Second)
		if l := diagnose(t, h, false).Shards[0].Lease; l.Held || l.Owner != held.Owner {
			t.Errorf("a lease that has expired: %+v", l)
		}
	})
}

// Where keys are that no longer belong to a shard, they are not counted.
func TestDeepDiagnosticsLeaveOutWhatMovedAway(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DiagnosticsCacheTtl, o.DefaultShardCount = 0, 1 })
	h := in.writer(t, "t")
	keys := load(t, h, 200)
	for _, k := range keys[:50] {
		_, err := h.Delete(t.Context(), k, clock.Version{})
		must(t, err)
	}
	target := in.split(t, "t", 0, nil)
	d := diagnose(t, h, true)
	slots := map[keyspace.ShardID]int{0: 2048, target: 2048}
	for _, s := range d.Shards {
		if s.Slots != slots[s.Shard] || s.LiveKeys == 0 || s.LiveKeys == 150 {
			t.Errorf("shard %d: %+v", s.Shard, s)
		}
	}
	if d.LiveKeys != 150 || d.Tombstones >= 50 { // the stand-in for a split leaves tombstones behind
		t.Errorf("%d live keys, %d tombstones", d.LiveKeys, d.Tombstones)
	}
}

func TestDiagnosticsTellBothEndsOfASplit(t *testing.T) {
	d := diagnosis{out: &diagnosed{}, t: &Tree{db: &DB{}}, survey: split.Survey{Active: []*split.State{
		{Source: 0, Phase: split.PhaseBeginShadowWrite},
		{Source: 1, Target: 4, HasTarget: true, Phase: split.PhaseComplete},
	}}}
	for id, want := range map[keyspace.ShardID]ShardSplitting{
		0: {Phase: "BeginShadowWrite"},
		1: {Peer: 4, PeerKnown: true, Phase: "Complete"},
		4: {Target: true, Peer: 1, PeerKnown: true, Phase: "Complete"},
	} {
		if got := d.describe(id).Splitting; got == nil || *got != want {
			t.Errorf("shard %d: %+v, want %+v", id, got, want)
		}
	}
	if got := d.describe(2).Splitting; got != nil {
		t.Errorf("a shard that takes no part: %+v", got)
	}
}
