package tree

import (
	"container/heap"
	"context"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"golang.org/x/sync/errgroup"
)

// source is the cursor of one shard, standing on an entry that the shard owns
// under the map of the merge.
type source struct {
	id   keyspace.ShardID
	m    *keyspace.Map
	view shardView
	cur  cursor
	key  string
}

// advance steps to the next owned entry; false at the end. What a shard still
// holds of slots that the map gives to another is skipped: who owns a key is
// decided by its slot, never by the shard that holds a record of it.
func (s *source) advance(ctx context.Context) (bool, error) {
	for s.cur.Next(ctx) {
		if key := s.cur.Entry().Key; s.m.OwnerOf(key) == s.id {
			s.key = key
			return true, nil
		}
	}
	return false, s.cur.Err()
}

// merge yields the entries of all shards of a tree in key order. Every key has
// one owner, so no key comes twice. Its memory is one entry a shard.
type merge struct {
	reverse bool
	sources []*source
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (g *merge) Len() int { return len(g.sources) }
func (g *merge) Less(i, j int) bool {
	if g.reverse {
		return g.sources[i].key > g.sources[j].key
	}
	return g.sources[i].key < g.sources[j].key
}
func (g *merge) Swap(i, j int) { g.sources[i], g.sources[j] = g.sources[j], g.sources[i] }
func (g *merge) Push(x any)    { g.sources = append(g.sources, x.(*source)) }
func (g *merge) Pop() any {
	last := g.sources[len(g.sources)-1]
	g.sources = g.sources[:len(g.sources)-1]
	return last
}

// top returns the next entry and the view it is from, nil at the end.
func (g *merge) top() (*record.Entry, shardView) {
	if len(g.sources) == 0 {
		return nil, nil
	}
	return g.sources[0].cur.Entry(), g.sources[0].view
}

// step moves past the top.
func (g *merge) step(ctx context.Context) error {
	more, err := g.sources[0].advance(ctx)
	switch {
	case err != nil:
		return err
	case more:
		heap.Fix(g, 0)
	default:
		heap.Pop(g)
	}
	return nil
}

// openMerge takes a view of every shard that owns slots under m, in parallel, and
// reads up to its first entry. Atomic batches are in them whole or not at all.
func (t *Tree) openMerge(ctx context.Context, m *meta, b Bounds, reverse bool, o shard.ReadOptions) (*merge, error) {
	views, err := t.settledViews(ctx, m, m.owners, shard.Bounds(b), o)
	if err != nil {
		return nil, err
	}
	sources := make([]*source, len(m.owners))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, id := range m.owners {
		g.Go(func() error {
			v := views[i]
			s := &source{id: id, m: m.shardMap, view: v, cur: v.Entries(shard.Bounds(b), reverse)}
			more, err := s.advance(gctx)
			if more {
				sources[i] = s
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := &merge{reverse: reverse}
	for _, s := range sources {
		if s != nil {
			out.sources = append(out.sources, s)
		}
	}
	heap.Init(out)
	return out, nil
}

// viewUnder takes a view of a shard and makes sure that it answers for every
// slot that the map gives to it.
//
// A shard seals slots before the map moves them. So a view without the seal was
// taken while the shard was the owner, whatever the map says by then; and one
// with it is refused, and the map read again.
func (t *Tree) viewUnder(ctx context.Context, m *meta, id keyspace.ShardID, o shard.ReadOptions) (shardView, error) {
	v, err := t.shard(m, id).View(ctx, o)
	if err != nil {
		return nil, err
	}
	if moved := v.Moved(); moved != nil {
		for slot := range uint16(keyspace.Slots) {
			if m.shardMap.Owner(slot) == id && moved.Has(slot) {
				return nil, shard.ErrStaleRouting
			}
		}
	}
	return v, nil
}
