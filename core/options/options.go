// Package options is the one place where every setting of the service lives:
// its name, kind, default, bounds, scope and meaning. Flags, environment
// variables, the settings of a tree, help texts and answers are all derived
// from the fields of Options by reflection; to add a setting, add a field.
package options

import "time"

// Options are the settings as they apply somewhere: in the service, or in one
// tree once its own settings are laid over (see ForTree). The field name is the
// option name. Fields of type int are counts (or lengths where the text says
// so), int64 are sizes in bytes, float64 are ratios.
//
// The tags say: def the default, min and max the bounds (both inclusive),
// scope "tree" that a tree may override it, doc the line for help texts.
//
// Copies are independent. Validate after changing fields.
type Options struct {
	// AutoCreateTrees lets the first write to an unknown tree create it.
	AutoCreateTrees bool `def:"true" doc:"create a tree on the first write to it"`
	// DefaultShardCount is the number of shards of a tree created without one.
	DefaultShardCount int `def:"4" min:"1" max:"256" doc:"shards of a new tree"`

	// MaxKeyLength is the longest key, in bytes.
	MaxKeyLength int `def:"1024" min:"1" max:"4096" doc:"longest key in bytes"`
	// MaxValueSizeBytes is the largest value; the storage bounds it at 64 MiB.
	MaxValueSizeBytes int64 `def:"64MiB" min:"1" max:"64MiB" doc:"largest value"`
	// InlineValueBytes is the largest value kept in the log and the leaves; a
	// larger one gets a blob of its own.
	InlineValueBytes int64 `def:"256KiB" min:"0" max:"512KiB" scope:"tree" doc:"largest value kept in the log; a larger one goes to a blob"`

	// Leases lets the instance take the leases of the shards that it serves:
	// right where one instance serves a tree, wasteful where many do.
	Leases bool `def:"false" doc:"take the leases of shards, for an instance that serves alone"`
	// LeaseDuration is how long a lease lasts without renewal.
	LeaseDuration time.Duration `def:"10s" min:"1s" max:"10m" doc:"life of a lease without renewal"`
	// MaxClockSkew is how far the clocks of two instances may be apart; a
	// lease is given up so much before it expires.
	MaxClockSkew time.Duration `def:"500ms" min:"0s" max:"1m" doc:"assumed bound on the difference of two instances' clocks"`
	// LeaseContentionBackoff is how long an instance takes no lease of a shard
	// that another instance asked for.
	LeaseContentionBackoff time.Duration `def:"30s" min:"0s" max:"1h" doc:"pause before a contended lease is taken again"`

	// CheckpointTailBytes is the size of the log tail that calls for a
	// checkpoint.
	CheckpointTailBytes int64 `def:"1MiB" min:"1KiB" max:"64MiB" scope:"tree" doc:"log tail that calls for a checkpoint"`
	// CheckpointTailRows likewise, in rows.
	CheckpointTailRows int `def:"400" min:"1" max:"10000" scope:"tree" doc:"log rows that call for a checkpoint"`
	// LeafTargetBytes is the size at which leaves split, before compression.
	LeafTargetBytes int64 `def:"256KiB" min:"4KiB" max:"16MiB" doc:"size of a leaf before compression"`
	// MergeRatio is the share of the base that delta runs may reach before
	// they are merged into it.
	MergeRatio float64 `def:"0.5" min:"0.01" max:"1" doc:"share of the base at which delta runs are merged into it"`
	// TombstoneGracePeriod is how long deletions and expired entries are kept.
	TombstoneGracePeriod time.Duration `def:"24h" min:"0s" max:"8760h" scope:"tree" doc:"how long deletions and expired entries are remembered"`
	// WalGracePeriod is how long log rows outlive the checkpoint that holds
	// them.
	WalGracePeriod time.Duration `def:"1m" min:"1ms" max:"720h" doc:"how long log rows outlive their checkpoint"`
	// BlobGracePeriod is how long blobs outlive the last manifest that names
	// them; a reader that is slower has to begin again.
	BlobGracePeriod time.Duration `def:"10m" min:"1ms" max:"720h" doc:"how long blobs outlive their last reference"`
	// CacheBytes bounds the memory for tails and leaves of all shards.
	CacheBytes int64 `def:"256MiB" min:"1MiB" max:"1TiB" doc:"memory for the caches of all shards"`

	// GroupCommitMaxBytes bounds the user data of one append.
	GroupCommitMaxBytes int64 `def:"2MiB" min:"64KiB" max:"2MiB" doc:"user data of one append"`
	// GroupCommitMaxRecords bounds the records of one append.
	GroupCommitMaxRecords int `def:"4096" min:"1" max:"65536" doc:"records of one append"`

	// RoutingRetryBudget is how long a request looks for the owner of a key.
	RoutingRetryBudget time.Duration `def:"5s" min:"0s" max:"5m" doc:"how long a request looks for the owner of a key"`
	// MaxScanRetries is how often a scan or count begins again because the
	// shard map moved.
	MaxScanRetries int `def:"3" min:"0" max:"100" scope:"tree" doc:"how often a scan or count begins again under a new shard map"`
	// MaxPageEntries is the largest limit of a page.
	MaxPageEntries int `def:"10000" min:"1" max:"100000" doc:"entries of a page at most"`
	// DefaultPageEntries is the limit of a page when the caller gives none.
	DefaultPageEntries int `def:"1000" min:"1" max:"100000" doc:"entries of a page when no limit is given"`
	// MaxPageBytes ends a page early, after one entry at least.
	MaxPageBytes int64 `def:"4MiB" min:"1KiB" max:"64MiB" doc:"keys and values of a page"`
	// MaxBatchOperations is the largest number of operations of one batch.
	MaxBatchOperations int `def:"10000" min:"1" max:"100000" doc:"operations of a batch"`
	// MaxBatchBytes bounds the keys and values of one batch.
	MaxBatchBytes int64 `def:"4MiB" min:"1KiB" max:"64MiB" doc:"keys and values of a batch"`

	// RequestTimeout bounds the work for one request.
	RequestTimeout time.Duration `def:"30s" min:"100ms" max:"1h" doc:"time for one request"`
	// MaxConcurrentRequests is how many requests are served at once.
	MaxConcurrentRequests int `def:"1024" min:"1" max:"1000000" doc:"requests served at once"`
	// MaxConnections is how many connections are open at once. More take the
	// places of those that are idle, longest first, or wait until one is.
	MaxConnections int `def:"8192" min:"1" max:"1000000" doc:"connections open at once; idle ones give way, else more wait"`
	// MaxBufferedBytes bounds the bodies of requests, and the large ones of
	// answers to reads, that are in memory at once.
	MaxBufferedBytes int64 `def:"512MiB" min:"1MiB" max:"1TiB" doc:"bodies of requests and answers in memory at once; at least three values, and a chunk"`
	// MaxHeaderBytes bounds the header of a request.
	MaxHeaderBytes int64 `def:"64KiB" min:"4KiB" max:"1MiB" doc:"header of a request"`
	// ShutdownGracePeriod is how long running requests may finish at shutdown.
	ShutdownGracePeriod time.Duration `def:"10s" min:"0s" max:"1h" doc:"time for running requests at shutdown"`

	// AutoSplitEnabled lets the monitor split hot shards by itself. A reshard
	// that was asked for works either way.
	AutoSplitEnabled bool `def:"true" scope:"tree" doc:"split hot shards automatically"`
	// AutoSplitMinTreeAge is the age of a tree before its shards are split.
	AutoSplitMinTreeAge time.Duration `def:"60s" min:"0s" max:"8760h" scope:"tree" doc:"age of a tree before automatic splits"`
	// HotShardOpsPerSecondThreshold is the rate at or above which a shard is
	// hot.
	HotShardOpsPerSecondThreshold int `def:"200" min:"1" max:"1000000000" scope:"tree" doc:"operations per second at which a shard is hot"`
	// HotShardSampleInterval is the time between two looks of the monitor.
	HotShardSampleInterval time.Duration `def:"30s" min:"100ms" max:"1h" doc:"time between two samples of the monitor"`
	// HotShardSplitCooldown is the least time between two splits of one shard.
	HotShardSplitCooldown time.Duration `def:"2m" min:"0s" max:"8760h" scope:"tree" doc:"least time between two splits of one shard"`
	// HotShardMinSkewRatio is how much hotter than the median the hottest shard
	// must be for any split; at or below 1 it does not matter.
	HotShardMinSkewRatio float64 `def:"1.5" min:"0" max:"1000000" scope:"tree" doc:"least ratio of the hottest shard to the median; 1 or less is off"`
	// HotShardMinShardEntries is how many live entries a shard must hold to be
	// split; 0 is no floor.
	HotShardMinShardEntries int `def:"1024" min:"0" max:"1000000000" scope:"tree" doc:"live entries below which a shard is not split; 0 is off"`
	// MaxConcurrentAutoSplits bounds the automatic splits of a tree at once.
	MaxConcurrentAutoSplits int `def:"2" min:"1" max:"256" scope:"tree" doc:"automatic splits of a tree at once"`
	// MaxClusterConcurrentAutoSplits bounds those of all trees that set it; 0 is
	// no bound.
	MaxClusterConcurrentAutoSplits int `def:"0" min:"0" max:"100000" scope:"tree" doc:"automatic splits of all trees at once; 0 is no bound"`
	// MaxConcurrentMigrations bounds the splits that a reshard keeps in flight.
	MaxConcurrentMigrations int `def:"4" min:"1" max:"256" scope:"tree" doc:"splits of a reshard at once"`
	// MaxPhysicalShardsPerTree is the shard count that automatic splits stop
	// at; 0 or less is no ceiling.
	MaxPhysicalShardsPerTree int `def:"256" min:"-1" max:"4096" scope:"tree" doc:"shards at which automatic splits stop; 0 is no ceiling"`
	// SplitDrainBatchSize bounds the entries that a drain holds in memory.
	SplitDrainBatchSize int `def:"1024" min:"1" max:"100000" scope:"tree" doc:"entries of a batch of the drain"`
	// BackgroundDrainLeavesPerPass bounds the leaves of a pass of the drain; 0
	// or less is no bound.
	BackgroundDrainLeavesPerPass int `def:"64" min:"-1" max:"1000000" scope:"tree" doc:"leaves of a pass of the drain; 0 is no bound"`
	// BackgroundDrainMaxDuration bounds a pass of the drain; 0 is no bound.
	BackgroundDrainMaxDuration time.Duration `def:"10s" min:"0s" max:"1h" scope:"tree" doc:"time of a pass of the drain; 0 is no bound"`
	// MigrationsInterval is the time between two ticks that carry splits on.
	MigrationsInterval time.Duration `def:"1s" min:"100ms" max:"1h" doc:"time between ticks that carry splits on"`

	// TxTimeout is how long an atomic batch that spans shards may stay
	// undecided: then whoever meets it aborts it.
	TxTimeout time.Duration `def:"10s" min:"100ms" max:"5m" scope:"tree" doc:"how long an atomic batch may stay undecided"`
	// TxDecisionRetention is how long the decision of an atomic batch is kept
	// after every shard has been told.
	TxDecisionRetention time.Duration `def:"60s" min:"1s" max:"720h" scope:"tree" doc:"how long decisions of atomic batches are kept"`
	// AtomicWriteRetention is how long the outcome of a batch with an
	// operationId is kept for those who repeat it.
	AtomicWriteRetention time.Duration `def:"24h" min:"1s" max:"8760h" scope:"tree" doc:"how long outcomes of batches with an operation id are kept"`
	// TransactionsInterval is the time between two ticks that finish atomic
	// batches whose coordinator is gone.
	TransactionsInterval time.Duration `def:"5s" min:"100ms" max:"1h" doc:"time between ticks that finish atomic batches"`

	// CursorIdleTtl is how long a cursor lives without being used.
	CursorIdleTtl time.Duration `def:"48h" min:"1s" max:"8760h" scope:"tree" doc:"life of a cursor that is not used"`
	// SnapshotCursorTtl likewise, of a cursor that holds a snapshot.
	SnapshotCursorTtl time.Duration `def:"6h" min:"5s" max:"720h" scope:"tree" doc:"life of a snapshot cursor that is not used"`

	// SoftDeleteDuration is how long a deleted tree can be recovered.
	SoftDeleteDuration time.Duration `def:"72h" min:"0s" max:"87600h" scope:"tree" doc:"how long a deleted tree can be recovered"`
	// CheckpointInterval is the time between two checkpoint ticks.
	CheckpointInterval time.Duration `def:"2s" min:"100ms" max:"24h" doc:"time between checkpoint ticks"`
	// CollectInterval is the time between two collection ticks.
	CollectInterval time.Duration `def:"30s" min:"100ms" max:"24h" doc:"time between collection ticks"`
	// TickBudget is the time for the work of one tick.
	TickBudget time.Duration `def:"20s" min:"100ms" max:"10m" doc:"time for the work of one tick"`

	// BulkLoadBufferBytes is the memory in which a bulk load collects entries
	// before it writes them.
	BulkLoadBufferBytes int64 `def:"64MiB" min:"64KiB" max:"4GiB" doc:"memory in which a bulk load collects entries"`
	// BulkGraftBytes is from how much on a shard's slice of a bulk load is written
	// as leaves instead of records.
	BulkGraftBytes int64 `def:"256KiB" min:"0" max:"64MiB" doc:"slice of a bulk load from which on it is written as leaves"`
	// MaxBulkChunkBytes bounds the keys and values of one chunk of a bulk load
	// session that has several, MaxBulkChunkEntries its entries.
	MaxBulkChunkBytes   int64 `def:"64MiB" min:"1KiB" max:"1GiB" doc:"keys and values of a chunk of a bulk load"`
	MaxBulkChunkEntries int   `def:"1000000" min:"1" max:"10000000" doc:"entries of a chunk of a bulk load"`
	// MaxBulkLoads bounds the bulk loads and chunks that an instance works on at
	// once; more wait. Each takes up to BulkLoadBufferBytes or MaxBulkChunkBytes.
	MaxBulkLoads int `def:"8" min:"1" max:"1000" doc:"bulk loads and chunks at work at once; more wait"`
	// BulkLoadIdleTtl is after how long without a chunk a session may be replaced
	// by another, and no longer counts as under way.
	BulkLoadIdleTtl time.Duration `def:"1h" min:"1s" max:"8760h" doc:"time without a chunk after which a bulk load session gives way"`
	// BulkLoadRetention is how long sessions that have ended are remembered.
	BulkLoadRetention time.Duration `def:"168h" min:"0s" max:"87600h" doc:"how long ended bulk load sessions are remembered"`

	// DiagnosticsCacheTtl is how old the figures may be that diagnostics answer
	// with, and that admission caps are compared with.
	DiagnosticsCacheTtl time.Duration `def:"5s" min:"0s" max:"1h" scope:"tree" doc:"age to which diagnostics are answered from memory"`
	// MaxLiveKeys refuses writes of values while the tree holds so many live
	// keys, by an estimate: an unconditional set in a batch counts as a new key
	// until a checkpoint finds out, and writes of the last DiagnosticsCacheTtl
	// may not count yet. Deletes and bulk loads are not refused. 0 is no cap.
	MaxLiveKeys int `def:"0" min:"0" max:"1000000000000" scope:"tree" doc:"estimate of live keys from which on writes are refused; 0 is no cap"`
	// MaxEstimatedBytes likewise, of keys and values as they were sent.
	MaxEstimatedBytes int64 `def:"0" min:"0" max:"1024TiB" scope:"tree" doc:"estimate of keys and values from which on writes are refused; 0 is no cap"`

	// origins records who set an option; the map is never changed in place.
	origins map[string]Origin
}

// relations are the rules between options: each names the option at fault and
// returns the reason, empty when the rule holds.
var relations = []struct {
	name  string
	check func(o *Options) string
}{
	{"DefaultPageEntries", func(o *Options) string {
		return when(o.DefaultPageEntries > o.MaxPageEntries, "must not exceed MaxPageEntries")
	}},
	{"InlineValueBytes", func(o *Options) string {
		return when(o.InlineValueBytes > o.GroupCommitMaxBytes, "must not exceed GroupCommitMaxBytes")
	}},
	{"SnapshotCursorTtl", func(o *Options) string {
		return when(4*o.MaxClockSkew >= o.SnapshotCursorTtl, "must be more than four times MaxClockSkew")
	}},
	{"MaxClockSkew", func(o *Options) string {
		return when(2*o.MaxClockSkew >= o.LeaseDuration, "must be less than half of LeaseDuration")
	}},
	{"RoutingRetryBudget", func(o *Options) string {
		return when(o.RoutingRetryBudget > o.RequestTimeout, "must not exceed RequestTimeout")
	}},
	{"WalGracePeriod", func(o *Options) string {
		return when(o.WalGracePeriod > o.BlobGracePeriod, "must not exceed BlobGracePeriod")
	}},
	{"MaxBufferedBytes", func(o *Options) string {
		// Less would promise what never finds room: a value, as JSON beside it, and
		// the body of the request.
		return when(o.MaxBufferedBytes < max(3*o.MaxValueSizeBytes, o.MaxBulkChunkBytes), "must be three times MaxValueSizeBytes, and hold a chunk of MaxBulkChunkBytes")
	}},
}

func when(broken bool, reason string) string {
	if broken {
		return reason
	}
	return ""
}
