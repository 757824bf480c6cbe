package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// wantQuota checks for a QuotaError of an option.
func wantQuota(t *testing.T, err error, option string, current int64) {
	t.Helper()
	var q *QuotaError
	if !errors.As(err, &q) || q.Option != option || q.Current != current || q.SampledAt.Wall == 0 {
		t.Errorf("error %v, want one of %s at %d", err, option, current)
	}
}

func TestCapOnLiveKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t, func(o *options.Options) { o.MaxLiveKeys = 10 })
		h, ctx := in.writer(t, "t"), t.Context()
		for i := range 10 {
			put(t, h, fmt.Sprint("key-", i))
		}
		time.Sleep(5 * time.Second) // the figure of the first put was that of an empty tree
		refused := map[string]func() error{
			"put":             func() error { _, err := h.Put(ctx, "new", nil, PutOptions{}); return err },
			"put over a key":  func() error { _, err := h.Put(ctx, "key-1", nil, PutOptions{}); return err },
			"conditional put": func() error { _, err := h.Put(ctx, "new", nil, PutOptions{IfAbsent: true}); return err },
			"get or set":      func() error { _, err := h.Put(ctx, "key-1", nil, PutOptions{GetOrSet: true}); return err },
			"batch with one set": func() error {
				_, err := h.Batch(ctx, []BatchOp{{Key: "key-2", Delete: true}, {Key: "new"}})
				return err
			},
			"batch, key too long": func() error {
				_, err := h.Batch(ctx, []BatchOp{{Key: string(make([]byte, 2000))}, {Key: "new"}})
				return err
			},
		}
		for name, f := range refused {
			t.Log(name)
			wantQuota(t, f(), "MaxLiveKeys", 10)
		}
		if c, err := h.Count(ctx, Bounds{}, ReadOptions{}); err != nil || c.Total != 10 {
			t.Errorf("refused writes left %d keys, %v", c.Total, err)
		}
		_, err := h.Batch(ctx, []BatchOp{{Key: "key-2", Delete: true}})
		must(t, err)
		_, err = h.Delete(ctx, "key-3", clock.Version{})
		must(t, err)
		wantQuota(t, refused["put"](), "MaxLiveKeys", 10) // until the cached figure is back under it
		time.Sleep(5 * time.Second)
		put(t, h, "new")
	})
}

func TestCapOnBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t, func(o *options.Options) { o.MaxEstimatedBytes, o.DiagnosticsCacheTtl = 1000, 0 })
		h := in.writer(t, "t")
		put := func(key string) error {
			_, err := h.Put(t.Context(), key, make([]byte, 499), PutOptions{})
			return err
		}
		must(t, put("a"))
		must(t, put("b"))
		wantQuota(t, put("c"), "MaxEstimatedBytes", 1000)
	})
}

// A tree may set a cap of its own, and lift it.
func TestCapOfATree(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DiagnosticsCacheTtl = 0 })
	h := in.writer(t, "t")
	put(t, h, "a")
	_, err := in.SetOptions(t.Context(), "t", map[string]json.RawMessage{"MaxLiveKeys": raw("1")})
	must(t, err)
	_, err = h.Put(t.Context(), "b", nil, PutOptions{})
	wantQuota(t, err, "MaxLiveKeys", 1)
	put(t, in.writer(t, "other"), "a", "b")
	_, err = in.SetOptions(t.Context(), "t", map[string]json.RawMessage{"MaxLiveKeys": raw("null")})
	must(t, err)
	put(t, h, "b")
}

func TestCapsCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := meteredStore()
		in := open(t, s.Table(), s.Blobs())
		h := in.writer(t, "t")
		put(t, h, "warm")
		if got := cost(s, func() { must(t, h.checkQuota(t.Context())) }); got.Calls() != 0 {
			t.Errorf("without caps a check costs %+v", got)
		}
		if n := testing.AllocsPerRun(100, func() { _ = h.checkQuota(t.Context()) }); n > 0 {
			t.Errorf("without caps a check allocates %v times", n)
		}
		_, err := in.SetOptions(t.Context(), "t", map[string]json.RawMessage{"MaxLiveKeys": raw("100")})
		must(t, err)
		must(t, h.checkQuota(t.Context()))
		time.Sleep(5 * time.Second)
		together := cost(s, func() {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { put(t, h, "warm") })
			}
			wg.Wait()
		})
		if together.Gets > 4 {
			t.Errorf("50 puts at once cost %+v, more than a head for each of 4 shards", together)
		}
		if n := testing.AllocsPerRun(100, func() { _ = h.checkQuota(t.Context()) }); n > 3 {
			t.Errorf("a check against a figure in memory allocates %v times", n)
		}
	})
}

// A shard that does not answer counts as it did before; one that never did
// makes the check fail.
func TestCapWithAShardThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		faults := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		in := open(t, faults.Table(), faults.Blobs(), func(o *options.Options) { o.MaxLiveKeys = 100 })
		h := in.writer(t, "t")
		load(t, h, 100)
		time.Sleep(10 * time.Second)
		_, err := h.Put(t.Context(), "new", nil, PutOptions{})
		wantQuota(t, err, "MaxLiveKeys", 100)
		partition := h.entry.cur.Load().partitions[2]
		faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Get), faulty.InPartition(partition)), Do: faulty.Fail(store.ErrUnavailable)})
		time.Sleep(10 * time.Second)
		_, err = h.Put(t.Context(), "new", nil, PutOptions{})
		wantQuota(t, err, "MaxLiveKeys", 100)
		h.dropDiagnostics()
		_, err = h.Put(t.Context(), "new", nil, PutOptions{})
		wantErr(t, err, store.ErrUnavailable)
	})
}
