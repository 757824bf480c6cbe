package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"golang.org/x/sync/errgroup"
)

// Reading several shards at once, every atomic batch must be seen whole or not at
// all. The views of the shards are taken at slightly different moments, so one
// may show a batch that another was taken too early for.
//
// A batch happens, in its row, after every one of its shards has its prepared
// part. So a view that was taken after a batch had happened shows it, prepared or
// done; and so does a view whose clock has reached the batch's version, which is
// above the clock of every shard at its prepare. Hence:
//
//   - The rows of undecided batches are read after all views were taken. One that
//     is still pending then is in no view, and is left out of all.
//   - If a view has got parts of batches since before the request, or a row says
//     committed, the batches concerned may be younger than some views: those whose
//     clock is below the highest version concerned are taken again.
//   - What a view had from before the request happened before all views.

// maxViewRounds bounds how often views are taken again.
const maxViewRounds = 32

// gathered are views of several shards while they are being made consistent.
type gathered struct {
	t      *Tree
	m      *meta
	bounds shard.Bounds
	ids    []keyspace.ShardID
	read   shard.ReadOptions
	views  []shardView
	// known is each shard's number of parts of batches before its view was
	// taken; certain says that it tells anything.
	known   []uint64
	certain bool
	// seen are the committed batches that views were compared with.
	seen map[record.ID]bool
}

// settledViews takes a view of each shard, such that batches are seen whole or
// not at all by whoever reads keys in bounds.
func (t *Tree) settledViews(ctx context.Context, m *meta, ids []keyspace.ShardID, b shard.Bounds, o shard.ReadOptions) ([]shardView, error) {
	g := &gathered{
		t: t, m: m, bounds: b, ids: ids, read: o, views: make([]shardView, len(ids)),
		known: make([]uint64, len(ids)), certain: o.MaxAge == 0, seen: map[record.ID]bool{},
	}
	for i, id := range ids {
		g.known[i] = t.shard(m, id).Batches()
	}
	look := looked{at: t.db.clock.Now(), old: o.MaxAge > 0}
	for range maxViewRounds {
		if err := g.take(ctx); err != nil {
			return nil, err
		}
		o, err := t.outcomes(ctx, m, g.undecided(), look)
		if errors.Is(err, errForgotten) {
			clear(g.views)
			g.read.MaxAge, look = 0, looked{at: t.db.clock.Now()}
			continue
		}
		if err != nil {
			return nil, err
		}
		if g.consistent(o) {
			for i := range g.views {
				if len(o) > 0 {
					g.views[i] = g.views[i].Settle(o)
				}
			}
			return g.views, nil
		}
		g.read.MaxAge = 0
	}
	return nil, fmt.Errorf("read tree %q between atomic batches: %w", t.name, ErrTopologyUnstable)
}

// take takes the views that are missing.
func (g *gathered) take(ctx context.Context) error {
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(fanOut)
	for i, id := range g.ids {
		if g.views[i] != nil {
			continue
		}
		eg.Go(func() (err error) {
			g.views[i], err = g.t.viewUnder(ctx, g.m, id, g.read)
			return err
		})
	}
	return eg.Wait()
}

// undecided returns the batches that are not decided in some view.
func (g *gathered) undecided() []record.ID {
	var out []record.ID
	for _, v := range g.views {
		for _, tx := range v.Undecided(g.bounds) {
			if !slices.Contains(out, tx) {
				out = append(out, tx)
			}
		}
	}
	return out
}

// consistent reports whether no view is too early for a batch that another shows,
// and drops those that may be.
func (g *gathered) consistent(o shard.Outcomes) bool {
	if len(g.views) < 2 {
		return true
	}
	var top clock.HLC
	for tx, v := range o {
		if !g.seen[tx] {
			g.seen[tx], top = true, max(top, v.Time)
		}
	}
	for i, v := range g.views {
		if !g.certain || v.Batches() != g.known[i] {
			top = max(top, v.Batch())
		}
		g.known[i] = v.Batches()
	}
	g.certain = true
	ok := true
	for i, v := range g.views {
		if v.Clock() < top {
			g.views[i], ok = nil, false
		}
	}
	return ok
}
