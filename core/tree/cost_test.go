package tree

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

// cost runs f and returns the storage calls it made.
func cost(s *metered.Store, f func()) metered.Snapshot {
	before := s.Snapshot()
	f()
	return s.Snapshot().Sub(before)
}

func TestStorageCallsOfWarmOperations(t *testing.T) {
	s := meteredStore()
	in := open(t, s.Table(), s.Blobs())
	h := in.writer(t, "t")
	keys := load(t, h, 200)
	put(t, h, "warm")
	ctx := t.Context()
	for _, c := range []struct {
		name string
		most int64
		f    func() error
	}{
		{"open", 0, func() error { _, err := in.Open(ctx, "t"); return err }},
		{"put", 1, func() error { _, err := h.Put(ctx, "warm", nil, PutOptions{}); return err }},
		{"put with a condition", 1, func() error { _, err := h.Put(ctx, "new", nil, PutOptions{IfAbsent: true}); return err }},
		{"delete", 1, func() error { _, err := h.Delete(ctx, "warm", clock.Version{}); return err }},
		{"get", 1, func() error { _, _, err := h.Get(ctx, keys[0], ReadOptions{}); return err }},
		{"get of an accepted age", 0, func() error { _, _, err := h.Get(ctx, keys[0], ReadOptions{MaxAge: time.Hour}); return err }},
		{"get many over 4 shards", 4, func() error { _, err := h.GetMany(ctx, keys, ReadOptions{}); return err }},
		{"page over 4 shards", 4, func() error { _, err := h.Scan(ctx, ScanQuery{Limit: 300}); return err }},
		{"page of an accepted age", 0, func() error {
			_, err := h.Scan(ctx, ScanQuery{Limit: 300, Read: ReadOptions{MaxAge: time.Hour}})
			return err
		}},
		{"empty range", 0, func() error { _, err := h.Scan(ctx, ScanQuery{Limit: 1, Bounds: Bounds{"b", "a"}}); return err }},
		{"count over 4 shards, and the map again", 5, func() error { _, err := h.Count(ctx, Bounds{}, ReadOptions{}); return err }},
		{"batch over 4 shards", 4, func() error {
			ops := make([]BatchOp, len(keys))
			for i, k := range keys {
				ops[i] = BatchOp{Key: k}
			}
			_, err := h.Batch(ctx, ops)
			return err
		}},
	} {
		got := cost(s, func() { must(t, c.f()) })
		if got.Calls() > c.most {
			t.Errorf("%s: %d calls, at most %d expected: %+v", c.name, got.Calls(), c.most, got)
		}
	}
}

func TestStorageCallsOfFirstUse(t *testing.T) {
	s := meteredStore()
	created := cost(s, func() { put(t, open(t, s.Table(), s.Blobs()).writer(t, "t"), "k") })
	// Look for the row, insert it, make four shards, read and mark the row; then
	// the put opens one shard and appends.
	if created.Calls() > 1+1+4+2+2+1 {
		t.Errorf("the first put made %d calls: %+v", created.Calls(), created)
	}
	cold := cost(s, func() {
		h := open(t, s.Table(), s.Blobs()).writer(t, "t")
		_, _, err := h.Get(t.Context(), "k", ReadOptions{})
		must(t, err)
	})
	if cold.Calls() > 2 {
		t.Errorf("a cold get of a fresh tree made %d calls: %+v", cold.Calls(), cold)
	}
}

func TestConcurrentRequestsShareCalls(t *testing.T) {
	m := memory.New(memory.Options{Profile: &memory.Profile{
		Apply: memory.Delay{Fixed: 5 * time.Millisecond}, Range: memory.Delay{Fixed: 5 * time.Millisecond}, Read: memory.Delay{Fixed: 5 * time.Millisecond},
	}})
	s := metered.New(m.Table(), m.Blobs())
	h := open(t, s.Table(), s.Blobs(), func(o *options.Options) { o.DefaultShardCount = 1 }).writer(t, "t")
	put(t, h, "warm")
	together := func(f func(i int) error) metered.Snapshot {
		return cost(s, func() {
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range 64 {
				wg.Go(func() {
					<-start
					if err := f(i); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
		})
	}
	puts := together(func(i int) error { _, err := h.Put(t.Context(), fmt.Sprint(i), nil, PutOptions{}); return err })
	if puts.Applies > 4 {
		t.Errorf("64 puts took %d transactions", puts.Applies)
	}
	gets := together(func(i int) error { _, _, err := h.Get(t.Context(), fmt.Sprint(i), ReadOptions{}); return err })
	if gets.Calls() > 3 {
		t.Errorf("64 gets took %d calls", gets.Calls())
	}
}

func TestStaleInstancePaysOneLookAtTheRegistry(t *testing.T) {
	s := meteredStore()
	in := open(t, s.Table(), s.Blobs(), func(o *options.Options) { o.DefaultShardCount = 1 })
	keys := load(t, in.writer(t, "t"), 100)
	stale := open(t, s.Table(), s.Blobs())
	h := stale.writer(t, "t")
	_, _, err := h.Get(t.Context(), keys[0], ReadOptions{})
	must(t, err)
	in.split(t, "t", 0, nil)
	i := slices.IndexFunc(keys, func(k string) bool {
		return in.writer(t, "t").entry.cur.Load().shardMap.OwnerOf(k) == 0 && movedKey(t, in, k)
	})
	got := cost(s, func() {
		_, ok, err := h.Get(t.Context(), keys[i], ReadOptions{})
		if err != nil || !ok {
			t.Errorf("%v %v", ok, err)
		}
	})
	if got.Gets != 1 || got.Calls() > 4 {
		t.Errorf("%d calls: %+v", got.Calls(), got)
	}
}

// movedKey reports whether the registry gives the key to a shard other than 0.
func movedKey(t *testing.T, in *instance, key string) bool {
	t.Helper()
	s, err := in.reg.read(t.Context(), "t")
	must(t, err)
	m, err := s.shardMap()
	must(t, err)
	return m.OwnerOf(key) != 0
}

func benchTree(b *testing.B, change ...func(*options.Options)) *Tree {
	m := memory.New(memory.Options{})
	c := append([]func(*options.Options){func(o *options.Options) { o.Leases = true }}, change...)
	in := open(b, m.Table(), m.Blobs(), c...)
	in.hooks.set(nil)
	in.DB.shards = in.hooks.inner // no seams in the way
	h, err := in.OpenOrCreate(b.Context(), "t")
	must(b, err)
	b.ReportAllocs()
	return h
}

func BenchmarkGet(b *testing.B) {
	h := benchTree(b)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
		_, err := h.Put(b.Context(), keys[i], make([]byte, 100), PutOptions{})
		must(b, err)
	}
	for i := 0; b.Loop(); i++ {
		if _, ok, err := h.Get(b.Context(), keys[i%len(keys)], ReadOptions{}); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	h := benchTree(b)
	value := make([]byte, 100)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := h.Put(b.Context(), keys[i%len(keys)], value, PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBatchOf1000(b *testing.B) {
	h := benchTree(b)
	ops := make([]BatchOp, 1000)
	for i := range ops {
		ops[i] = BatchOp{Key: fmt.Sprintf("key-%06d", i), Value: make([]byte, 100)}
	}
	for b.Loop() {
		if _, err := h.Batch(b.Context(), ops); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPageOf1000(b *testing.B) {
	h := benchTree(b)
	ops := make([]BatchOp, 5000)
	for i := range ops {
		ops[i] = BatchOp{Key: fmt.Sprintf("key-%06d", i), Value: make([]byte, 100)}
	}
	_, err := h.Batch(b.Context(), ops)
	must(b, err)
	for b.Loop() {
		if _, err := h.Scan(b.Context(), ScanQuery{Limit: 1000}); err != nil {
			b.Fatal(err)
		}
	}
}
