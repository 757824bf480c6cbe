package tree

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/shard"
	"golang.org/x/sync/errgroup"
)

// Count counts the live keys of a range. Every slot is counted once, on the
// shard that owns it under one version of the shard map; when the map has moved
// by the end, the count is taken again, at most MaxScanRetries times, and then
// is ErrTopologyUnstable.
func (t *Tree) Count(ctx context.Context, b Bounds, o ReadOptions) (Count, error) {
	for try := 0; ; try++ {
		c, m, err := t.countOnce(ctx, b, shard.ReadOptions(o))
		if err == nil || !errors.Is(err, errMapMoved) && !errors.Is(err, shard.ErrViewExpired) {
			return c, err
		}
		if try >= m.opts.MaxScanRetries {
			return Count{}, fmt.Errorf("count tree %q: %w: %w", t.name, ErrTopologyUnstable, err)
		}
		o.MaxAge = 0
	}
}

// errMapMoved: the shard map is not the one that the count began with.
var errMapMoved = errors.New("shard map moved")

func (t *Tree) countOnce(ctx context.Context, b Bounds, o shard.ReadOptions) (c Count, used *meta, err error) {
	err = t.routed(ctx, func(m *meta) (err error) {
		used = m
		c, err = t.countUnder(ctx, m, b, o)
		return err
	})
	if err != nil || b.empty() {
		return c, used, err
	}
	now, err := t.refresh(ctx)
	if err == nil && (now.ID != used.ID || now.MapVersion != used.MapVersion) {
		err = errMapMoved
	}
	return c, used, err
}

func (t *Tree) countUnder(ctx context.Context, m *meta, b Bounds, o shard.ReadOptions) (Count, error) {
	c := Count{MapVersion: m.MapVersion, PerShard: make([]ShardCount, len(m.owners))}
	for i, id := range m.owners {
		c.PerShard[i].Shard = id
	}
	if b.empty() {
		return c, nil
	}
	views, err := t.settledViews(ctx, m, m.owners, shard.Bounds(b), o)
	if err != nil {
		return Count{}, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, id := range m.owners {
		g.Go(func() (err error) {
			c.PerShard[i].Count, err = views[i].Count(gctx, shard.Bounds(b), func(slot uint16) bool { return m.shardMap.Owner(slot) == id })
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Count{}, err
	}
	for _, s := range c.PerShard {
		c.Total += s.Count
	}
	return c, nil
}
