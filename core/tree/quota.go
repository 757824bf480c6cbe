package tree

import (
	"context"
	"fmt"
	"sync"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
)

// usage is what a tree was last seen to hold, by the estimates of its heads.
type usage struct {
	treeID string
	shards map[keyspace.ShardID]estimate
	total  estimate
	at     clock.Instant
}

type estimate struct{ live, bytes int64 }

// checkQuota reports whether the tree is at an admission cap, as a *QuotaError.
// A cap is compared with estimates that are up to DiagnosticsCacheTtl old. With
// no cap set it costs nothing.
func (t *Tree) checkQuota(ctx context.Context) error {
	m, err := t.meta(ctx)
	if err != nil {
		return err
	}
	if m.opts.MaxLiveKeys == 0 && m.opts.MaxEstimatedBytes == 0 {
		return nil
	}
	u, err := t.usage(ctx, m)
	if err != nil {
		return fmt.Errorf("compare tree %q with its admission caps: %w", t.name, err)
	}
	return u.check(&m.opts)
}

func (u *usage) check(o *options.Options) error {
	over := func(option string, current, limit int64) error {
		if limit == 0 || current < limit {
			return nil
		}
		return &QuotaError{Option: option, Limit: limit, Current: current, SampledAt: u.at}
	}
	if err := over("MaxLiveKeys", u.total.live, int64(o.MaxLiveKeys)); err != nil {
		return err
	}
	return over("MaxEstimatedBytes", u.total.bytes, o.MaxEstimatedBytes)
}

// usage returns what the tree holds, of now or remembered.
func (t *Tree) usage(ctx context.Context, m *meta) (*usage, error) {
	return t.entry.usage.get(ctx, request[usage]{
		clock: t.db.clock, ttl: m.opts.DiagnosticsCacheTtl,
		fits:    func(u *usage) bool { return u.treeID == m.ID },
		compute: func(ctx context.Context, before *usage) (*usage, error) { return t.measure(ctx, m, before) },
	})
}

// measure reads the head of every shard that owns slots. One that does not
// answer counts as it did before: a write to another shard need not fail for it.
func (t *Tree) measure(ctx context.Context, m *meta, before *usage) (*usage, error) {
	u := &usage{treeID: m.ID, shards: make(map[keyspace.ShardID]estimate, len(m.owners)), at: t.db.clock.Now()}
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	var (
		mu     sync.Mutex
		failed error
	)
	inParallel(parallelSamples, len(m.owners), func(i int) {
		id := m.owners[i]
		live, bytes, err := t.shard(m, id).Estimates(ctx)
		mu.Lock()
		defer mu.Unlock()
		e := estimate{live, bytes}
		if err != nil {
			known := before != nil && before.treeID == m.ID
			if known {
				e, known = before.shards[id]
			}
			if !known {
				failed = err
				return
			}
		}
		u.shards[id] = e
		u.total.live += e.live
		u.total.bytes += e.bytes
	})
	return u, failed
}
