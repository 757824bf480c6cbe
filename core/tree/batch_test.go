package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

func TestBatchAnswersInTheOrderOfTheRequest(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DefaultShardCount = 16; o.MaxKeyLength = 20; o.MaxValueSizeBytes = 50 })
	h := in.writer(t, "t")
	ctx := t.Context()
	old, err := h.Put(ctx, "old", []byte("1"), PutOptions{})
	must(t, err)
	res, err := h.Batch(ctx, []BatchOp{
		{Key: "a", Value: []byte("1")},
		{Key: strings.Repeat("x", 21)},
		{Key: "old", IfAbsent: true},
		{Key: "big", Value: make([]byte, 51)},
		{Key: "old", Value: []byte("2"), IfVersion: old.Version},
		{Key: "a", Value: []byte("2"), TTL: time.Hour},
		{Key: "old", Delete: true},
		{Key: "gone", Delete: true},
		{Key: "a", Value: []byte("3"), Type: "x/y"},
	})
	must(t, err)
	var mismatch *MismatchError
	var limit *LimitError
	if !errors.As(res[2].Err, &mismatch) || mismatch.Current != old.Version {
		t.Errorf("2: %+v", res[2])
	}
	if !errors.As(res[1].Err, &limit) || limit.What != "key" || !errors.As(res[3].Err, &limit) || limit.What != "value" {
		t.Errorf("1, 3: %+v %+v", res[1], res[3])
	}
	for _, i := range []int{0, 4, 5, 8} {
		if res[i].Err != nil || res[i].Version.IsZero() {
			t.Errorf("%d: %+v", i, res[i])
		}
	}
	if !res[6].Existed || res[7].Existed || res[6].Err != nil || res[7].Err != nil {
		t.Errorf("6, 7: %+v %+v", res[6], res[7])
	}
	it, ok, err := h.Get(ctx, "a", ReadOptions{})
	if err != nil || !ok || string(it.Value) != "3" || it.Type != "x/y" || !it.Expiry.IsZero() || it.Version != res[8].Version {
		t.Errorf("a is %+v: the last write of the batch must win", it)
	}
	if _, ok, _ := h.Get(ctx, "old", ReadOptions{}); ok {
		t.Error("old was deleted")
	}
}

func TestBatchOfBadFormDoesNothing(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) {
		o.MaxBatchOperations = 3
		o.MaxBatchBytes = 1 << 10
		o.MaxValueSizeBytes = 600
	})
	h := in.writer(t, "t")
	for field, ops := range map[string][]BatchOp{
		"operations":              make([]BatchOp, 4),
		"operations[1].key":       {{Key: "a"}, {Key: ""}},
		"operations[0].ttl":       {{Key: "a", TTL: -1}},
		"operations[0].ifVersion": {{Key: "a", IfAbsent: true, IfVersion: clock.Version{Time: 1}}},
		"operations[0].op":        {{Key: "a", Delete: true, TTL: 1}},
	} {
		_, err := h.Batch(t.Context(), ops)
		wantArgument(t, err, field)
	}
	_, err := h.Batch(t.Context(), []BatchOp{{Key: "a", Value: make([]byte, 600)}, {Key: "b", Value: make([]byte, 600)}, {Key: "c", Value: make([]byte, 600)}})
	var limit *LimitError
	if !errors.As(err, &limit) || limit.What != "batch" {
		t.Errorf("too many bytes: %v", err)
	}
	if c, err := h.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 0 {
		t.Errorf("something was written: %+v %v", c, err)
	}
	if res, err := h.Batch(t.Context(), nil); err != nil || len(res) != 0 {
		t.Errorf("an empty batch: %v %v", res, err)
	}
}

func TestBatchReroutesOnlyWhatWasTurnedAway(t *testing.T) {
	in, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 2 })
	stale := open(t, m.Table(), m.Blobs())
	h := in.writer(t, "t")
	keys := load(t, h, 200)
	old := stale.writer(t, "t")
	put(t, old, "key-000000") // stale remembers the map
	in.split(t, "t", 0, nil)
	in.split(t, "t", 1, nil)
	ops := make([]BatchOp, len(keys))
	for i, k := range keys {
		ops[i] = BatchOp{Key: k, Value: []byte("new")}
	}
	res, err := old.Batch(t.Context(), ops)
	must(t, err)
	fresh := open(t, m.Table(), m.Blobs()).writer(t, "t")
	owners := map[keyspace.ShardID]bool{}
	for i, k := range keys {
		it, ok, err := fresh.Get(t.Context(), k, ReadOptions{})
		if err != nil || !ok || string(it.Value) != "new" {
			t.Fatalf("%s: %v %v %v", k, it, ok, err)
		}
		if it.Version != res[i].Version {
			t.Errorf("%s was written again: %v, answered %v", k, it.Version, res[i].Version)
		}
		owners[fresh.ShardMap().OwnerOf(k)] = true
	}
	if len(owners) != 4 {
		t.Errorf("keys on shards %v, four expected", owners)
	}
	if writes := stale.hooks.count("write"); writes > 1+2+2 {
		t.Errorf("%d writes to shards: what was applied was sent again", writes)
	}
}

func TestBatchKeepsResultsOfAShardThatFailsHalfway(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DefaultShardCount = 1 })
	h := in.writer(t, "t")
	put(t, h, "a")
	in.hooks.inner = partial{in.hooks.inner}
	res, err := h.Batch(t.Context(), []BatchOp{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("1")}})
	must(t, err)
	for i, k := range []string{"a", "b"} {
		it, ok, err := h.Get(t.Context(), k, ReadOptions{})
		if err != nil || !ok || it.Version != res[i].Version {
			t.Errorf("%s: %v %v %v, answered %v", k, it, ok, err, res[i].Version)
		}
	}
}

// partial applies the first write of several and turns the rest away.
type partial struct{ shards }

func (p partial) shard(partition string, t shard.Tuning) shardLog {
	return partialLog{p.shards.shard(partition, t)}
}

type partialLog struct{ shardLog }

func (l partialLog) Write(ctx context.Context, w []shard.Write) ([]shard.WriteResult, error) {
	if len(w) == 1 {
		return l.shardLog.Write(ctx, w)
	}
	rs, err := l.shardLog.Write(ctx, w[:1])
	if err != nil {
		return nil, err
	}
	return append(rs, make([]shard.WriteResult, len(w)-1)...), shard.ErrClosed
}

func TestStorageFailureFailsTheBatch(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	put(t, h, "a")
	var n atomic.Int32
	in.hooks.set(func(op, _ string) error {
		if op == "write" && n.Add(1) == 1 {
			return fmt.Errorf("x: %w", store.ErrOutcomeUnknown)
		}
		return nil
	})
	_, err := h.Batch(t.Context(), []BatchOp{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "e"}})
	wantErr(t, err, store.ErrOutcomeUnknown)
}

func TestGetManyKeepsTheOrderAndLeavesOutTheAbsent(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	put(t, h, "a", "b", "c")
	items, err := h.GetMany(t.Context(), []string{"c", "nope", "a", "c", "b"}, ReadOptions{})
	must(t, err)
	if got := keysOf(items); !slices.Equal(got, []string{"c", "a", "c", "b"}) {
		t.Errorf("got %v", got)
	}
	if views := in.hooks.count("view"); views > 4 {
		t.Errorf("%d views for 4 shards", views)
	}
	if items, err := h.GetMany(t.Context(), nil, ReadOptions{}); err != nil || len(items) != 0 {
		t.Errorf("no keys: %v %v", items, err)
	}
}

func TestGetManyIsBounded(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.MaxBatchOperations = 3; o.MaxValueSizeBytes = 100 })
	h := in.writer(t, "t")
	for _, k := range []string{"a", "b"} {
		_, err := h.Put(t.Context(), k, make([]byte, 60), PutOptions{})
		must(t, err)
	}
	_, err := h.GetMany(t.Context(), []string{"a", "b", "c", "d"}, ReadOptions{})
	wantArgument(t, err, "keys")
	var limit *LimitError
	if _, err = h.GetMany(t.Context(), []string{"a", "b"}, ReadOptions{}); !errors.As(err, &limit) || limit.What != "response" || limit.Limit != 100 {
		t.Errorf("too much to answer: %v", err)
	}
}

func TestGetManyFollowsASplit(t *testing.T) {
	in, m := fresh(t, func(o *options.Options) { o.DefaultShardCount = 2 })
	h := in.writer(t, "t")
	keys := load(t, h, 100)
	old := open(t, m.Table(), m.Blobs()).writer(t, "t")
	in.split(t, "t", 0, nil)
	items, err := old.GetMany(t.Context(), keys, ReadOptions{})
	if err != nil || !slices.Equal(keysOf(items), keys) {
		t.Errorf("%d items, %v", len(items), err)
	}
}
