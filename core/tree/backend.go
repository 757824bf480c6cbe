package tree

import (
	"context"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/shard"
)

// shards hands out the shards of the instance. It is the seam between a tree
// and the log underneath: tests put a recording or failing one in its place.
type shards interface {
	// shard returns the shard of a partition, without I/O, tuned as its tree
	// demands.
	shard(partition string, tuning shard.Tuning) shardLog
}

// shardLog is what a tree asks of a shard. Package shard documents the methods.
type shardLog interface {
	Create(ctx context.Context) error
	Write(ctx context.Context, writes []shard.Write) ([]shard.WriteResult, error)
	WriteAtomic(ctx context.Context, writes []shard.Write) ([]shard.WriteResult, error)
	Load(ctx context.Context, e *record.Entry) ([]byte, error)
	Batches() uint64
	Pin(ctx context.Context, id string, cut clock.HLC, expiry int64, owned *keyspace.SlotSet) (shard.Pin, error)
	Repin(ctx context.Context, id string, expiry int64) error
	Unpin(ctx context.Context, id string) error
	Pinned(ctx context.Context, p shard.Pin) (shardView, error)
	Read(ctx context.Context, key string, o shard.ReadOptions) (record.Entry, bool, error)
	View(ctx context.Context, o shard.ReadOptions) (shardView, error)
	Checkpoint(ctx context.Context, budget time.Duration) (shard.CheckpointReport, error)
	Collect(ctx context.Context) (shard.CollectReport, error)
	Stats(ctx context.Context) (shard.Stats, error)
	Estimates(ctx context.Context) (live, bytes int64, err error)
	HotKeys() []shard.HotKey
	SetClosedAt(ctx context.Context, closed bool, epoch uint64) error
	Clear(ctx context.Context) error
	Destroy(ctx context.Context) error
	Empty(ctx context.Context) (bool, error)
	LastClock(ctx context.Context) (clock.HLC, error)
	Stage(ctx context.Context, v clock.Version) *shard.Stage
	Graft(ctx context.Context, staged ...*shard.Staged) error
	Discard(ctx context.Context, staged ...*shard.Staged)
}

// shardView is an immutable snapshot of a shard that was current when it was
// taken.
type shardView interface {
	Get(ctx context.Context, key string) (record.Entry, bool, error)
	Load(ctx context.Context, e *record.Entry) ([]byte, error)
	Entries(b shard.Bounds, reverse bool) cursor
	Count(ctx context.Context, b shard.Bounds, owns func(slot uint16) bool) (int64, error)
	Tally(ctx context.Context, b shard.Bounds, owns func(slot uint16) bool) (run.Tally, error)
	Moved() *keyspace.SlotSet
	Undecided(b shard.Bounds) []record.ID
	PreparedBy(tx record.ID, owns func(slot uint16) bool) int
	Settle(o shard.Outcomes) shardView
	Clock() clock.HLC
	Batch() clock.HLC
	Batches() uint64
}

// cursor walks live entries in order. The entry is valid until the next call
// of Next.
type cursor interface {
	Next(ctx context.Context) bool
	Entry() *record.Entry
	Err() error
}

// pool is the real thing: the shards of one instance over its store.
type pool struct{ *shard.Pool }

func newPool(c *Config) (pool, error) {
	o := &c.Options
	cfg := shard.DefaultConfig()
	cfg.Table, cfg.Blobs, cfg.Clock, cfg.Instance = c.Table, c.Blobs, c.Clock, c.Instance
	cfg.Exclusive = c.Exclusive
	cfg.Leases, cfg.LeaseDuration = o.Leases, o.LeaseDuration
	cfg.MaxClockSkew, cfg.LeaseContentionBackoff = o.MaxClockSkew, o.LeaseContentionBackoff
	cfg.GroupMaxBytes, cfg.GroupMaxRecords = int(o.GroupCommitMaxBytes), o.GroupCommitMaxRecords
	cfg.CommitTimeout = o.RequestTimeout
	cfg.CacheBytes = o.CacheBytes
	cfg.LeafTargetBytes, cfg.MergeRatio = int(o.LeafTargetBytes), o.MergeRatio
	cfg.WalGracePeriod, cfg.BlobGracePeriod = o.WalGracePeriod, o.BlobGracePeriod
	cfg.Trace, cfg.Appended = c.Trace, c.Appended
	cfg.Tuning = tuningOf("", o)
	p, err := shard.NewPool(cfg)
	return pool{p}, err
}

func (p pool) shard(partition string, t shard.Tuning) shardLog {
	s := p.Shard(partition)
	s.SetTuning(t)
	return log{s}
}

// Mirrored returns how many entries this instance has mirrored to the targets
// of splits, and how many times that failed and was left to the drain.
func (db *DB) Mirrored() (entries, failures uint64) {
	if p, ok := db.shards.(interface{ Mirrored() (uint64, uint64) }); ok {
		return p.Mirrored()
	}
	return 0, 0
}

// CacheStats describes the cache of leaves that the shards of this instance
// share.
func (db *DB) CacheStats() leaf.Stats {
	if p, ok := db.shards.(interface{ CacheStats() leaf.Stats }); ok {
		return p.CacheStats()
	}
	return leaf.Stats{}
}

// log and view adapt the concrete types of package shard.
type log struct{ *shard.Shard }

func (l log) View(ctx context.Context, o shard.ReadOptions) (shardView, error) {
	v, err := l.Shard.View(ctx, o)
	if err != nil {
		return nil, err
	}
	return view{v}, nil
}

func (l log) Pinned(ctx context.Context, p shard.Pin) (shardView, error) {
	v, err := l.Shard.Pinned(ctx, p)
	if err != nil {
		return nil, err
	}
	return view{v}, nil
}

func (l log) Checkpoint(ctx context.Context, budget time.Duration) (shard.CheckpointReport, error) {
	return l.Shard.Checkpoint(ctx, shard.CheckpointOptions{Budget: budget})
}

type view struct{ *shard.View }

func (v view) Settle(o shard.Outcomes) shardView { return view{v.View.Settle(o)} }

func (v view) Entries(b shard.Bounds, reverse bool) cursor { return v.View.Entries(b, reverse) }
