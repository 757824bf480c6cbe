package tree

import (
	"time"

	"github.com/latticekv/lattice/core/keyspace"
)

// Diagnostics describe a tree as a whole and shard by shard: see
// Tree.Diagnostics.
type Diagnostics struct {
	Tree string
	// MapVersion is that of the shard map whose shards are described.
	MapVersion uint64
	// Deep says that live keys, tombstones and expired entries were counted, all
	// under MapVersion. Otherwise they are estimates: a put that did not look
	// counts as an insert, and a key is a tombstone once for each run.
	Deep bool
	// Incomplete says that some shard could not be sampled: its Error says why,
	// and the totals lack it. Deep diagnostics are never incomplete.
	Incomplete bool
	// LiveKeys, Tombstones, Expired and Bytes sum up the shards.
	LiveKeys, Tombstones, Expired, Bytes int64
	// BulkPending says that a bulk load of the tree is under way.
	BulkPending bool
	// Instance is the instance whose requests the hot keys were seen among.
	Instance uint64
	// SampledAt is when sampling began. The figures are at most
	// DiagnosticsCacheTtl old.
	SampledAt time.Time
	// Shards are those that own slots, in order of index.
	Shards []ShardDiagnostics
}

// ShardDiagnostics describe one shard.
type ShardDiagnostics struct {
	Shard keyspace.ShardID
	// Slots is the number of slots it owns.
	Slots int
	// LiveKeys are live entries, Tombstones deleted ones that are still
	// remembered. Expired are entries past their expiry that are still stored;
	// only deep diagnostics know them. Bytes estimate the keys and values of
	// the live entries, in deep diagnostics too.
	LiveKeys, Tombstones, Expired, Bytes int64
	// Depth is the number of sorted runs of the checkpoint, all of which a read
	// may have to ask. Leaves and StoredBytes are the blobs they consist of.
	Depth, Leaves int
	StoredBytes   int64
	// TailRows and TailBytes are what the log holds above the checkpoint.
	TailRows  int
	TailBytes int64
	// Rate is in operations per second, between the last two samples of the
	// monitor. It is meaningless unless RateKnown.
	Rate      float64
	RateKnown bool
	// Splitting is the shard's part in a split, nil if it has none.
	Splitting *ShardSplitting
	// BulkPending is that of the tree: a bulk load goes into all its shards.
	BulkPending bool
	Lease       ShardLease
	// HotKeys are the keys to which much of the load of the shard goes, the
	// most asked for first, if the shard is hot and owns a single slot, so that
	// no split can help it. They are what this instance saw: with several, each
	// knows of its own requests alone.
	HotKeys []HotKey
	// SampledAt is when the shard was sampled.
	SampledAt time.Time
	// Error says why the shard could not be sampled; empty if it could. Then
	// only Shard, Slots, Rate and Splitting mean anything.
	Error string
}

// ShardSplitting is the part of a shard in a split.
type ShardSplitting struct {
	// Target says that the shard receives slots; otherwise it gives them away.
	Target bool
	// Peer is the other shard, unknown to a source that has no target yet.
	Peer      keyspace.ShardID
	PeerKnown bool
	// Phase is the phase that is carried out.
	Phase string
}

// ShardLease is the lease of a shard as its head tells it.
type ShardLease struct {
	// Owner names the holder, 0 if it was given back. It is no instance: each
	// time that an instance opens the shard it goes by another name.
	Owner uint64
	// Expiry is zero if nobody ever held the lease.
	Expiry time.Time
	// Held says that it has an owner and has not expired.
	Held bool
}

// HotKey is a key that gets much of the load of its shard.
type HotKey struct {
	Key string
	// Share is the estimated part of the operations, above 0 and at most 1,
	// never below the true one by more than sampling errs.
	Share float64
	// Certain is a lower bound of Share, with the same reservation.
	Certain float64
}
