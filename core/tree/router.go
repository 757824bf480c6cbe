package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

// turnedAway reports whether a shard refused because the map or the row that
// led here is out of date.
func turnedAway(err error) bool {
	return errors.Is(err, shard.ErrStaleRouting) || errors.Is(err, shard.ErrClosed) || errors.Is(err, shard.ErrNoShard)
}

// meta returns what is remembered of the tree, reading it if nothing is.
func (t *Tree) meta(ctx context.Context) (*meta, error) {
	if m := t.entry.cur.Load(); m != nil {
		return m, nil
	}
	return t.refresh(ctx)
}

// owner returns the shard that owns a key.
func (t *Tree) owner(m *meta, key string) shardLog { return t.shard(m, m.shardMap.OwnerOf(key)) }

func (t *Tree) shard(m *meta, id keyspace.ShardID) shardLog {
	return t.db.shard(m.partitions[id], m.tuning)
}

// routed calls f with what is known of the tree. When a shard turns f away, the
// row is read again and f repeated, with backoff, until RoutingRetryBudget is
// spent: then the error is ErrRoutingUnstable. f must cope with being called
// again after it was turned away in part.
func (t *Tree) routed(ctx context.Context, f func(*meta) error) error {
	m, err := t.meta(ctx)
	if err != nil {
		return err
	}
	if err = f(m); !turnedAway(err) {
		return err
	}
	return t.reroute(ctx, m, err, f)
}

// patience is how many attempts a request leaves to the coordinator of a split
// that stands in its way, some 30 ms, before it looks after it.
const patience = 4

// reroute continues routed after f was turned away under m.
func (t *Tree) reroute(ctx context.Context, m *meta, cause error, f func(*meta) error) error {
	start := t.db.clock.Now().Mono
	for attempt := 0; ; attempt++ {
		next, err := t.refresh(ctx)
		if err != nil {
			return err
		}
		// A row that changed since is tried at once; otherwise the change that
		// the shard knows of is still on its way into the registry.
		if next.etag == m.etag || attempt > 0 {
			if attempt >= patience && errors.Is(cause, shard.ErrStaleRouting) {
				if err := t.help(ctx, next); err != nil && !store.Transient(err) {
					return err
				}
			}
			if err := t.db.reg.pause(ctx, attempt, 0); err != nil {
				return fmt.Errorf("find the owner: %w: %w", err, cause)
			}
			if t.db.clock.Now().Mono-start > m.opts.RoutingRetryBudget {
				return t.unstable(cause)
			}
		}
		m = next
		if cause = f(m); !turnedAway(cause) {
			return cause
		}
	}
}

func (t *Tree) unstable(cause error) error {
	return fmt.Errorf("tree %q: %w: %w", t.name, ErrRoutingUnstable, cause)
}

// ShardMap returns the shard map as this instance knows it.
func (t *Tree) ShardMap() *keyspace.Map { return t.entry.last.Load().shardMap }

// ReadShardMap returns the shard map as it is now, with one read of the
// registry. ErrTreeNotFound and ErrTreeDeleted as Open.
func (t *Tree) ReadShardMap(ctx context.Context) (*keyspace.Map, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return nil, err
	}
	return m.shardMap, nil
}

// expiry turns a time to live into the Unix millisecond at which it ends, rounded
// up: 0 for none. It cannot overflow: neither a clock nor a duration in
// nanoseconds reaches further than 292 years.
func (t *Tree) expiry(ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	ms := int64(ttl / time.Millisecond)
	if ttl%time.Millisecond != 0 {
		ms++
	}
	return max(t.db.clock.Now().Milli(), 0) + ms
}
