package shard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

// instance is a pool of its own over given storage: one process of the service.
func instance(tb testing.TB, table store.Table, blobs store.BlobStore, edit func(*shard.Config)) *shard.Pool {
	tb.Helper()
	cfg := shard.DefaultConfig()
	cfg.Table, cfg.Blobs, cfg.Clock = table, blobs, clock.NewSystem()
	cfg.Instance = cfg.Clock.Uint64() | 1
	if edit != nil {
		edit(&cfg)
	}
	p, err := shard.NewPool(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// fresh is an instance over new memory with one shard created.
func fresh(tb testing.TB, edit func(*shard.Config)) *shard.Shard {
	tb.Helper()
	m := memory.New(memory.Options{})
	s := instance(tb, m.Table(), m.Blobs(), edit).Shard("s-test-0")
	if err := s.Create(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

func put(tb testing.TB, s *shard.Shard, key, value string) shard.WriteResult {
	tb.Helper()
	return write(tb, s, shard.Write{Op: shard.OpPut, Key: key, Value: []byte(value)})
}

func write(tb testing.TB, s *shard.Shard, w shard.Write) shard.WriteResult {
	tb.Helper()
	res, err := s.Write(context.Background(), []shard.Write{w})
	if err != nil {
		tb.Fatalf("write %q: %v", w.Key, err)
	}
	return res[0]
}

func get(tb testing.TB, s *shard.Shard, key string) (record.Entry, bool) {
	tb.Helper()
	e, ok, err := s.Read(context.Background(), key, shard.ReadOptions{})
	if err != nil {
		tb.Fatalf("get %q: %v", key, err)
	}
	return e, ok
}

func withLeases(c *shard.Config) { c.Leases = true }

func TestPutGetDelete(t *testing.T) {
	s := fresh(t, nil)
	if _, ok := get(t, s, "a"); ok {
		t.Fatal("a key exists in an empty shard")
	}
	first := put(t, s, "a", "one")
	second := put(t, s, "a", "two")
	if first.Existed || !second.Existed || second.Version.Compare(first.Version) <= 0 {
		t.Fatalf("results %+v, %+v", first, second)
	}
	if e, ok := get(t, s, "a"); !ok || string(e.Value) != "two" || e.Version != second.Version {
		t.Fatalf("got %+v, %v", e, ok)
	}
	if r := write(t, s, shard.Write{Op: shard.OpDelete, Key: "a"}); !r.Existed {
		t.Fatalf("delete says %+v", r)
	}
	if _, ok := get(t, s, "a"); ok {
		t.Fatal("a deleted key is live")
	}
}

func BenchmarkPut(b *testing.B) {
	for _, mode := range []string{"lease off", "lease on"} {
		b.Run(mode, func(b *testing.B) {
			s := fresh(b, func(c *shard.Config) {
				c.Leases = mode == "lease on"
				c.Tuning.CheckpointTailRows = 1 << 30
				c.Tuning.CheckpointTailBytes = 1 << 40
			})
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprintf("key-%06d", i)
			}
			value := make([]byte, 100)
			ctx := context.Background()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := s.Write(ctx, []shard.Write{{Op: shard.OpPut, Key: keys[i%1000], Value: value}}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for _, mode := range []string{"lease off", "lease on"} {
		b.Run(mode, func(b *testing.B) {
			s := fresh(b, func(c *shard.Config) { c.Leases = mode == "lease on" })
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprintf("key-%06d", i)
				put(b, s, keys[i], "value")
			}
			ctx := context.Background()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok, err := s.Get(ctx, keys[i%1000], shard.ReadOptions{}); err != nil || !ok {
					b.Fatal(ok, err)
				}
				i++
			}
		})
	}
}

func BenchmarkBatchOf1000(b *testing.B) {
	s := fresh(b, func(c *shard.Config) { c.Tuning.CheckpointTailRows = 1 << 30; c.Tuning.CheckpointTailBytes = 1 << 40 })
	writes := make([]shard.Write, 1000)
	value := []byte(strings.Repeat("value 12 ", 11))
	for i := range writes {
		writes[i] = shard.Write{Op: shard.OpPut, Key: fmt.Sprintf("key-%06d", i), Value: value, Blind: true}
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Write(ctx, writes); err != nil {
			b.Fatal(err)
		}
	}
}
