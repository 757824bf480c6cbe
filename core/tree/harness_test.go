package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

// instance is one DB over a store that others may share, with the seams that
// tests pull at.
type instance struct {
	*DB
	hooks *hooks
}

func open(t testing.TB, table store.Table, blobs store.BlobStore, change ...func(*options.Options)) *instance {
	t.Helper()
	o := options.Default()
	for _, f := range change {
		f(&o)
	}
	c := Config{Table: table, Blobs: blobs, Clock: clock.NewSystem(), Options: o}
	c.Instance = c.Clock.Uint64() | 1
	p, err := newPool(&c)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	h := &hooks{inner: p}
	return &instance{DB: newDB(c, h), hooks: h}
}

// fresh returns an instance over an empty store in memory, which it returns
// too.
func fresh(t testing.TB, change ...func(*options.Options)) (*instance, *memory.Store) {
	m := memory.New(memory.Options{})
	return open(t, m.Table(), m.Blobs(), change...), m
}

func (in *instance) writer(t testing.TB, name string) *Tree {
	t.Helper()
	h, err := in.OpenOrCreate(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// hooks stand between a tree and its shards.
type hooks struct {
	inner shards
	mu    sync.Mutex
	// before is called ahead of every operation; an error becomes its result.
	before func(op, partition string) error
	// calls counts operations by name.
	calls map[string]int
}

func (h *hooks) set(f func(op, partition string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = f
}

func (h *hooks) count(op string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[op]
}

func (h *hooks) call(op, partition string) error {
	h.mu.Lock()
	if h.calls == nil {
		h.calls = map[string]int{}
	}
	h.calls[op]++
	f := h.before
	h.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, partition)
}

func (h *hooks) shard(partition string, t shard.Tuning) shardLog {
	return hookedLog{h.inner.shard(partition, t), h, partition}
}

type hookedLog struct {
	shardLog
	h         *hooks
	partition string
}

func (l hookedLog) Write(ctx context.Context, w []shard.Write) ([]shard.WriteResult, error) {
	if err := l.h.call("write", l.partition); err != nil {
		return nil, err
	}
	return l.shardLog.Write(ctx, w)
}

func (l hookedLog) Read(ctx context.Context, key string, o shard.ReadOptions) (record.Entry, bool, error) {
	if err := l.h.call("read", l.partition); err != nil {
		return record.Entry{}, false, err
	}
	return l.shardLog.Read(ctx, key, o)
}

func (l hookedLog) View(ctx context.Context, o shard.ReadOptions) (shardView, error) {
	if err := l.h.call("view", l.partition); err != nil {
		return nil, err
	}
	v, err := l.shardLog.View(ctx, o)
	return hookedView{v, l}, err
}

func (l hookedLog) SetClosedAt(ctx context.Context, closed bool, epoch uint64) error {
	if err := l.h.call("close", l.partition); err != nil {
		return err
	}
	return l.shardLog.SetClosedAt(ctx, closed, epoch)
}

func (l hookedLog) Checkpoint(ctx context.Context, budget time.Duration) (shard.CheckpointReport, error) {
	if err := l.h.call("checkpoint", l.partition); err != nil {
		return shard.CheckpointReport{}, err
	}
	return l.shardLog.Checkpoint(ctx, budget)
}

func (l hookedLog) Collect(ctx context.Context) (shard.CollectReport, error) {
	if err := l.h.call("collect", l.partition); err != nil {
		return shard.CollectReport{}, err
	}
	return l.shardLog.Collect(ctx)
}

type hookedView struct {
	shardView
	l hookedLog
}

func (v hookedView) Load(ctx context.Context, e *record.Entry) ([]byte, error) {
	if err := v.l.h.call("load", v.l.partition); err != nil {
		return nil, err
	}
	return v.shardView.Load(ctx, e)
}

func (v hookedView) Entries(b shard.Bounds, reverse bool) cursor {
	return &hookedCursor{cursor: v.shardView.Entries(b, reverse), l: v.l}
}

type hookedCursor struct {
	cursor
	l   hookedLog
	err error
}

func (c *hookedCursor) Next(ctx context.Context) bool {
	if c.err = c.l.h.call("next", c.l.partition); c.err != nil {
		return false
	}
	return c.cursor.Next(ctx)
}

func (c *hookedCursor) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.cursor.Err()
}

// split moves the upper half of a shard's slots to a new shard, step by step as
// a split does, but without writes in between. midway, if given, is called
// between seal and swap.
func (in *instance) split(t testing.TB, name string, from keyspace.ShardID, midway func()) keyspace.ShardID {
	t.Helper()
	ctx := t.Context()
	var target keyspace.ShardID
	s, err := in.reg.update(ctx, name, func(r *row) error {
		target = keyspace.ShardID(r.NextShard)
		r.NextShard++
		return nil
	})
	must(t, err)
	m, err := s.shardMap()
	must(t, err)
	var slots []uint16
	for slot := range uint16(keyspace.Slots) {
		if m.Owner(slot) == from {
			slots = append(slots, slot)
		}
	}
	var moved keyspace.SlotSet
	for _, slot := range slots[len(slots)/2:] {
		moved.Add(slot)
	}
	src, dst := in.DB.shard(s.partition(from), in.tuning(&s.row)), in.DB.shard(s.partition(target), in.tuning(&s.row))
	// The stand-in writes moved entries anew: let the target's clock pass the
	// source's.
	must(t, in.clock.Sleep(ctx, 5*time.Millisecond))
	must(t, dst.Create(ctx))
	v, err := src.View(ctx, shard.ReadOptions{})
	must(t, err)
	var copies []shard.Write
	for c := v.Entries(shard.Bounds{}, false); c.Next(ctx); {
		if e := c.Entry(); moved.Has(keyspace.Slot(e.Key)) {
			value, err := v.Load(ctx, e)
			must(t, err)
			copies = append(copies, shard.Write{Op: shard.OpPut, Key: e.Key, Value: value, Type: e.Type, Expiry: e.Expiry})
		}
	}
	if len(copies) > 0 {
		_, err = dst.Write(ctx, copies)
		must(t, err)
	}
	must(t, src.(hookedLog).shardLog.(log).MoveAway(ctx, moved))
	if midway != nil {
		midway()
	}
	_, err = in.reg.update(ctx, name, func(r *row) error {
		old, err := r.shardMap()
		if err != nil {
			return err
		}
		runs := []keyspace.Range{}
		for slot := range uint16(keyspace.Slots) {
			owner := old.Owner(slot)
			if moved.Has(slot) {
				owner = target
			}
			runs = append(runs, keyspace.Range{From: slot, To: slot, Shard: owner})
		}
		next, err := keyspace.FromRanges(old.Version+1, runs)
		if err != nil {
			return err
		}
		r.setMap(next)
		return nil
	})
	must(t, err)
	return target
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// wantArgument checks for an ArgumentError about a field.
func wantArgument(t testing.TB, err error, field string) {
	t.Helper()
	var a *ArgumentError
	if !errors.As(err, &a) || a.Field != field {
		t.Fatalf("error %v, want one about %s", err, field)
	}
}

func put(t testing.TB, h *Tree, keys ...string) {
	t.Helper()
	for _, k := range keys {
		_, err := h.Put(t.Context(), k, []byte("value of "+k), PutOptions{})
		must(t, err)
	}
}

// load fills a tree with numbered keys in few appends and returns them sorted.
func load(t testing.TB, h *Tree, n int) []string {
	t.Helper()
	keys := make([]string, n)
	ops := make([]BatchOp, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
		ops[i] = BatchOp{Key: keys[i], Value: []byte("value of " + keys[i])}
	}
	for chunk := range slices.Chunk(ops, 5000) {
		_, err := h.Batch(t.Context(), chunk)
		must(t, err)
	}
	return keys
}

func keysOf(items []Item) []string {
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.Key
	}
	return keys
}

// walkPages collects a whole scan page by page.
func walkPages(t testing.TB, h *Tree, q ScanQuery) (keys []string, pages int) {
	t.Helper()
	for {
		p, err := h.Scan(t.Context(), q)
		must(t, err)
		pages++
		keys = append(keys, keysOf(p.Items)...)
		if p.NextToken == "" {
			return keys, pages
		}
		if len(p.Items) == 0 || pages > 100000 {
			t.Fatalf("page %d is empty but continues", pages)
		}
		q.Token = p.NextToken
	}
}

func meteredStore() *metered.Store {
	m := memory.New(memory.Options{})
	return metered.New(m.Table(), m.Blobs())
}
