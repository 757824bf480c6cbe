package split_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// node is one instance of a small world: its pool of shards, its coordinator,
// and a router that reads the map anew whenever a shard turns it away. The map
// is a row, guarded by its ETag, as in the registry.
type node struct {
	table store.Table
	pool  *shard.Pool
	c     *split.Coordinator
	src   clock.Source
	opts  split.Options

	mu  sync.Mutex
	mem *keyspace.Map
}

const (
	treeID   = "tree"
	mapTable = "map"
	mapRow   = "map"
)

type mapState struct {
	Version uint64
	Runs    []keyspace.Range
	Next    keyspace.ShardID
}

func newNode(tb testing.TB, src clock.Source, table store.Table, blobs store.BlobStore, edit func(*shard.Config)) *node {
	tb.Helper()
	cfg := shard.DefaultConfig()
	cfg.Table, cfg.Blobs, cfg.Clock, cfg.Instance = table, blobs, src, src.Uint64()|1
	cfg.LeafTargetBytes = 512
	cfg.WalGracePeriod, cfg.BlobGracePeriod = time.Second, 10*time.Second
	cfg.Tuning.InlineValueBytes = 64
	if edit != nil {
		edit(&cfg)
	}
	pool, err := shard.NewPool(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return &node{
		table: table, pool: pool, src: src,
		c:    &split.Coordinator{Table: table, Clock: src, Driver: src.Uint64() | 1},
		opts: split.Options{SplitDrainBatchSize: 3, BackgroundDrainLeavesPerPass: 2, LeafBytes: 512},
	}
}

// found creates the map with n shards.
func (n *node) found(ctx context.Context, shards int) error {
	m, err := keyspace.Default(shards)
	if err != nil {
		return err
	}
	for id := range keyspace.ShardID(shards) {
		if err := n.Shard(id).Create(ctx); err != nil {
			return err
		}
	}
	data, err := json.Marshal(mapState{Runs: m.Ranges(), Next: keyspace.ShardID(shards)})
	if err != nil {
		return err
	}
	_, err = n.table.Apply(ctx, mapTable, []store.Op{store.Insert(mapRow, data)})
	return err
}

func (n *node) read(ctx context.Context) (mapState, store.ETag, error) {
	row, err := n.table.Get(ctx, mapTable, mapRow)
	if err != nil {
		return mapState{}, "", err
	}
	var s mapState
	return s, row.ETag, json.Unmarshal(row.Data, &s)
}

func (n *node) update(ctx context.Context, change func(*mapState) error) error {
	for {
		s, etag, err := n.read(ctx)
		if err != nil {
			return err
		}
		if err := change(&s); err != nil {
			return err
		}
		data, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, err = n.table.Apply(ctx, mapTable, []store.Op{store.Replace(mapRow, data, etag)})
		if !store.LostRace(err) {
			return err
		}
	}
}

func (n *node) Name() string { return "tree" }
func (n *node) ID() string   { return treeID }
func (n *node) Partition(id keyspace.ShardID) string {
	return fmt.Sprintf("s-%s-%08x", treeID, uint32(id))
}
func (n *node) Shard(id keyspace.ShardID) *shard.Shard { return n.pool.Shard(n.Partition(id)) }
func (n *node) Options() split.Options                 { return n.opts }
func (n *node) at(key string) (keyspace.ShardID, uint64) {
	m := n.cached()
	return m.OwnerOf(key), m.Version
}

func (n *node) Map(ctx context.Context) (*keyspace.Map, error) {
	s, _, err := n.read(ctx)
	if err != nil {
		return nil, err
	}
	m, err := keyspace.FromRanges(s.Version, s.Runs)
	if err == nil {
		n.mu.Lock()
		n.mem = m
		n.mu.Unlock()
	}
	return m, err
}

func (n *node) cached() *keyspace.Map {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mem
}

func (n *node) Allocate(ctx context.Context) (id keyspace.ShardID, err error) {
	err = n.update(ctx, func(s *mapState) error { id = s.Next; s.Next++; return nil })
	return id, err
}

func (n *node) Move(ctx context.Context, from, to keyspace.ShardID, slots *keyspace.SlotSet, check func(context.Context) error) (version uint64, err error) {
	err = n.update(ctx, func(s *mapState) error {
		m, err := keyspace.FromRanges(s.Version, s.Runs)
		if err != nil {
			return err
		}
		if err := check(ctx); err != nil {
			return err
		}
		next, moved := m.Reassign(from, to, slots)
		if moved > 0 {
			s.Version, s.Runs = next.Version, next.Ranges()
		}
		version = s.Version
		return nil
	})
	return version, err
}

// write sends one write to the owner of its key, as a router does: turned away,
// it reads the map again, and drives a split on that nobody else does.
func (n *node) write(ctx context.Context, w shard.Write) (shard.WriteResult, error) {
	for {
		if err := ctx.Err(); err != nil {
			return shard.WriteResult{}, err
		}
		if n.cached() == nil {
			if _, err := n.Map(ctx); err != nil {
				return shard.WriteResult{}, err
			}
		}
		id, version := n.at(w.Key)
		res, err := n.Shard(id).Write(ctx, []shard.Write{w})
		if err != nil {
			return shard.WriteResult{}, err
		}
		if res[0].Status != shard.StatusStale {
			return res[0], nil
		}
		if err := n.turnedAway(ctx, id, version); err != nil {
			return shard.WriteResult{}, err
		}
	}
}

func (n *node) get(ctx context.Context, key string) (record.Entry, bool, error) {
	for {
		if err := ctx.Err(); err != nil {
			return record.Entry{}, false, err
		}
		if n.cached() == nil {
			if _, err := n.Map(ctx); err != nil {
				return record.Entry{}, false, err
			}
		}
		id, version := n.at(key)
		e, ok, err := n.Shard(id).Read(ctx, key, shard.ReadOptions{})
		if !errors.Is(err, shard.ErrStaleRouting) {
			return e, ok, err
		}
		if err := n.turnedAway(ctx, id, version); err != nil {
			return record.Entry{}, false, err
		}
	}
}

func (n *node) turnedAway(ctx context.Context, id keyspace.ShardID, version uint64) error {
	m, err := n.Map(ctx)
	if err != nil {
		return err
	}
	if m.Version == version {
		if _, err := n.c.Advance(ctx, n, id, time.Second); err != nil && !errors.Is(err, split.ErrDriven) {
			return err
		}
	}
	return n.src.Sleep(ctx, 20*time.Millisecond)
}

// contents reads all entries that the owners under the live map hold, and fails
// if a key is held by two.
func (n *node) contents(t *testing.T) map[string]string {
	t.Helper()
	m, err := n.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, id := range m.Shards() {
		v, err := n.Shard(id).View(t.Context(), shard.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := v.Entries(shard.Bounds{}, false)
		for c.Next(t.Context()) {
			e := *c.Entry()
			if m.OwnerOf(e.Key) != id {
				continue
			}
			value, err := v.Load(t.Context(), &e)
			if err != nil {
				t.Fatal(err)
			}
			got[e.Key] = fmt.Sprintf("%s expires %d version %s", value, e.Expiry, e.Version)
		}
		if err := c.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func same(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: key %q: got %q, want %q", when, k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: key %q should not exist: %q", when, k, v)
		}
	}
	t.FailNow()
}

// world is memory with any number of nodes, each behind faults of its own.
type world struct {
	src clock.Source
	mem *memory.Store
}

func newWorld() *world {
	src := clock.NewSystem()
	return &world{src: src, mem: memory.New(memory.Options{Clock: src})}
}

func (w *world) node(tb testing.TB, edit func(*shard.Config)) (*node, *faulty.Instance) {
	in := faulty.New(w.mem.Table(), w.mem.Blobs(), faulty.Options{Clock: w.src})
	return newNode(tb, w.src, in.Table(), in.Blobs(), edit), in
}
