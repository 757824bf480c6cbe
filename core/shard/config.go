package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/trace"
)

// Config is what the shards of one instance share.
type Config struct {
	// Table and Blobs hold the state.
	Table store.Table
	Blobs store.BlobStore
	// Clock tells time and draws chance.
	Clock clock.Source
	// Instance identifies this process among all, random and not 0.
	Instance uint64

	// Exclusive says that the store is open to this process alone, as embedded
	// ones are: a lease of another owner is that of a process that died.
	Exclusive bool
	// Leases says whether this instance takes leases.
	Leases bool
	// LeaseDuration is how long a lease lasts without renewal.
	LeaseDuration time.Duration
	// MaxClockSkew is the most by which wall clocks of two instances differ.
	MaxClockSkew time.Duration
	// LeaseContentionBackoff is how long nobody takes the lease of a shard that
	// had to be handed over.
	LeaseContentionBackoff time.Duration

	// GroupMaxBytes and GroupMaxRecords bound one append.
	GroupMaxBytes   int
	GroupMaxRecords int
	// CommitTimeout bounds how long an append is tried when its callers set no
	// deadline.
	CommitTimeout time.Duration

	// CacheBytes bounds the cache of decoded leaves, shared by all shards.
	CacheBytes int64
	// MaxOpenShards bounds the shards kept in memory.
	MaxOpenShards int

	// LeafTargetBytes is the size to which leaves are cut.
	LeafTargetBytes int
	// MergeRatio is the share of the base that delta runs reach before they
	// are merged into it.
	MergeRatio float64
	// WalGracePeriod is how long log rows outlive their checkpoint.
	WalGracePeriod time.Duration
	// BlobGracePeriod is how long blobs that nothing refers to are kept.
	BlobGracePeriod time.Duration

	// Trace follows appends, and Appended hears how each ended, in the context of
	// the request that led its group. Either may be nil.
	Trace    trace.Hook
	Appended func(context.Context, trace.Append, trace.Appended)

	// Tuning is what a tree may set for its own shards.
	Tuning Tuning
}

// Tuning is the part of the configuration that differs between trees.
type Tuning struct {
	// Tree is its name, for those who follow what happens; nothing depends on it.
	Tree string
	// InlineValueBytes is the largest value kept in the log itself.
	InlineValueBytes int
	// CheckpointTailBytes and CheckpointTailRows make a checkpoint due when the
	// log above the last one reaches either.
	CheckpointTailBytes int64
	CheckpointTailRows  int
	// TombstoneGracePeriod is how long tombstones and expired entries are kept.
	TombstoneGracePeriod time.Duration
}

// DefaultConfig returns the defaults, without stores, clock and instance.
func DefaultConfig() Config {
	return Config{
		LeaseDuration:          10 * time.Second,
		MaxClockSkew:           500 * time.Millisecond,
		LeaseContentionBackoff: 30 * time.Second,
		GroupMaxBytes:          2 << 20,
		GroupMaxRecords:        4096,
		CommitTimeout:          30 * time.Second,
		CacheBytes:             256 << 20,
		MaxOpenShards:          1024,
		LeafTargetBytes:        256 << 10,
		MergeRatio:             0.5,
		WalGracePeriod:         time.Minute,
		BlobGracePeriod:        10 * time.Minute,
		Tuning: Tuning{
			InlineValueBytes:     256 << 10,
			CheckpointTailBytes:  1 << 20,
			CheckpointTailRows:   400,
			TombstoneGracePeriod: 24 * time.Hour,
		},
	}
}

// Validate reports every fault of the configuration at once.
func (c *Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(c.Table != nil && c.Blobs != nil && c.Clock != nil, "table, blobs and clock are required")
	check(c.Instance != 0, "the instance must not be 0")
	check(c.LeaseDuration > 2*c.MaxClockSkew, "LeaseDuration %s must exceed twice MaxClockSkew %s", c.LeaseDuration, c.MaxClockSkew)
	check(c.MaxClockSkew >= 0, "MaxClockSkew must not be negative")
	check(c.GroupMaxBytes > 0 && c.GroupMaxBytes <= maxGroupBytes, "GroupCommitMaxBytes %d, 1 to %d allowed", c.GroupMaxBytes, maxGroupBytes)
	check(c.GroupMaxRecords > 0, "GroupCommitMaxRecords must be positive")
	check(c.CommitTimeout > 0, "the commit timeout must be positive")
	check(c.MaxOpenShards > 0, "MaxOpenShards must be positive")
	check(c.WalGracePeriod > 0 && c.BlobGracePeriod > 0, "grace periods must be positive")
	check(c.Tuning.InlineValueBytes >= 0 && c.Tuning.InlineValueBytes <= maxInlineBytes, "InlineValueBytes %d, 0 to %d allowed", c.Tuning.InlineValueBytes, maxInlineBytes)
	check(c.Tuning.CheckpointTailBytes > 0 && c.Tuning.CheckpointTailRows > 0, "checkpoint thresholds must be positive")
	return errors.Join(faults...)
}

const (
	// maxGroupBytes leaves room for the head and the framing of rows.
	maxGroupBytes = store.MaxTransactionBytes - 128<<10
	// maxInlineBytes leaves room for a key and the framing in one row.
	maxInlineBytes = store.MaxRowBytes - 64<<10
)
