package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

func TestVeryOldMapReachesTheOwner(t *testing.T) {
	in, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 1 })
	h := in.writer(t, "t")
	keys := load(t, h, 100)
	old := open(t, m.Table(), m.Blobs()).writer(t, "t")
	for range 4 {
		in.split(t, "t", 0, nil)
	}
	for _, k := range keys {
		if it, ok, err := old.Get(t.Context(), k, ReadOptions{}); err != nil || !ok || string(it.Value) != "value of "+k {
			t.Fatalf("%s: %v %v %v", k, it, ok, err)
		}
	}
	if v := old.ShardMap().Version; v != 4 {
		t.Errorf("the map has version %d", v)
	}
}

func TestRequestsWaitForTheSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 1 })
		keys := load(t, in.writer(t, "t"), 60)
		other := open(t, m.Table(), m.Blobs()).writer(t, "t")
		var wg sync.WaitGroup
		in.split(t, "t", 0, func() {
			for _, k := range keys {
				wg.Go(func() {
					if _, ok, err := other.Get(t.Context(), k, ReadOptions{}); err != nil || !ok {
						t.Errorf("get %s: %v %v", k, ok, err)
					}
				})
			}
			wg.Go(func() {
				if c, err := other.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 60 {
					t.Errorf("count: %+v %v", c, err)
				}
			})
			wg.Go(func() {
				p, err := other.Scan(t.Context(), ScanQuery{Limit: 100})
				if err != nil || !slices.Equal(keysOf(p.Items), keys) {
					t.Errorf("scan: %d, %v", len(p.Items), err)
				}
			})
			must(t, in.clock.Sleep(t.Context(), time.Second)) // all meet the sealed shard
		})
		wg.Wait()
	})
}

func TestUnresolvedRoutingEndsWithinItsBudget(t *testing.T) {
	for _, cause := range []error{shard.ErrStaleRouting, shard.ErrNoShard, shard.ErrClosed} {
		t.Run(cause.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, _ := fresh(t)
				h := in.writer(t, "t")
				in.hooks.set(func(string, string) error { return fmt.Errorf("x: %w", cause) })
				for name, f := range map[string]func() error{
					"get":   func() error { _, _, err := h.Get(t.Context(), "k", ReadOptions{}); return err },
					"put":   func() error { _, err := h.Put(t.Context(), "k", nil, PutOptions{}); return err },
					"batch": func() error { _, err := h.Batch(t.Context(), []BatchOp{{Key: "k"}}); return err },
					"scan":  func() error { _, err := h.Scan(t.Context(), ScanQuery{Limit: 1}); return err },
					"count": func() error { _, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); return err },
				} {
					start := in.clock.Now().Mono
					err := f()
					took := in.clock.Now().Mono - start
					if !errors.Is(err, ErrRoutingUnstable) || !errors.Is(err, cause) {
						t.Errorf("%s: %v", name, err)
					}
					if took < 4*time.Second || took > 6*time.Second {
						t.Errorf("%s took %v of a budget of 5s", name, took)
					}
				}
			})
		})
	}
}

func TestStorageErrorsAreNotTakenForRouting(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	for _, cause := range []error{store.ErrThrottled, store.ErrOutcomeUnknown, store.ErrCorrupt, store.ErrUnavailable} {
		var calls atomic.Int32
		in.hooks.set(func(string, string) error { calls.Add(1); return cause })
		_, err := h.Put(t.Context(), "k", nil, PutOptions{})
		if !errors.Is(err, cause) || calls.Load() != 1 {
			t.Errorf("%v: %v after %d calls", cause, err, calls.Load())
		}
	}
}

func TestLostBlobIsReportedAsCorruption(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	in.hooks.set(func(string, string) error { return fmt.Errorf("x: %w", store.ErrNotFound) })
	_, _, err := h.Get(t.Context(), "k", ReadOptions{})
	wantErr(t, err, store.ErrCorrupt)
}

func TestTreesRecreatedUnderWritersStayWhole(t *testing.T) {
	a, m := fresh(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		h := open(t, m.Table(), m.Blobs()).writer(t, "t")
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", i, n)
				r, err := h.Put(t.Context(), key, []byte(key), PutOptions{})
				if err != nil && !errors.Is(err, ErrTreeDeleted) {
					t.Errorf("put: %v", err)
					return
				}
				if err == nil && r.Version == (clock.Version{}) {
					t.Error("a put without a version")
				}
			}
		})
	}
	for range 5 {
		must(t, a.Delete(t.Context(), "t"))
		must(t, a.Purge(t.Context(), "t"))
		put(t, a.writer(t, "t"), "here")
	}
	close(stop)
	wg.Wait()
	if _, ok, err := open(t, m.Table(), m.Blobs()).writer(t, "t").Get(t.Context(), "here", ReadOptions{}); err != nil || !ok {
		t.Errorf("%v %v", ok, err)
	}
}

func TestHandlesOfOneNameAreShared(t *testing.T) {
	in, _ := fresh(t)
	w, err := in.OpenOrCreate(context.Background(), "t")
	must(t, err)
	r, err := in.Open(t.Context(), "t")
	must(t, err)
	if again, _ := in.Open(t.Context(), "t"); again != r || w == r || w.Name() != "t" {
		t.Error("handles are made anew")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = in.Open(t.Context(), "t") }); n > 0 {
		t.Errorf("opening a known tree allocates %v times", n)
	}
}
