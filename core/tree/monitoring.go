package tree

import (
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
)

// SplitActivity is how much is on the move in the whole service, as the
// monitors last reported it: see DB.SplitActivity.
type SplitActivity struct {
	// InFlight sums the migrations of all trees that report any, including
	// those that have just been granted to a tree and are about to begin.
	InFlight int
	// ReportingTrees is the number of those trees.
	ReportingTrees int
	// ObservedAt is the time of this reading.
	ObservedAt time.Time
	// AnyInFlight says that InFlight is not 0.
	AnyInFlight bool
}

// MonitorReport says what a tick of the monitor did: see DB.Monitor.
type MonitorReport struct {
	// Trees is the number of trees looked at, active or not.
	Trees int
	// Complete says that the walk came round; otherwise the next tick goes on
	// where this one ended.
	Complete bool
	// Started counts the splits begun.
	Started int
	// Passes describe the active trees, in the order visited, the first 1000.
	Passes []MonitorPass
	// Failed counts failures; the first ones are in Failures.
	Failed   int
	Failures []Failure
}

// MonitorPass is what a tick saw and did in one tree.
type MonitorPass struct {
	Tree string
	// Skipped says why the tick did not look at the shards: SkippedEarly or
	// SkippedOvertaken, empty if it did. Then the other fields are unset.
	Skipped string
	// Shards are the samples of the shards that own slots, in order of index.
	Shards []ShardRate
	// Started are the sources of the splits begun; the next tick of migrations
	// carries them out.
	Started []keyspace.ShardID
	// Decision says which shards are hot, and why those of them that are not
	// among Started are not split now.
	split.Decision
}

// Why a tick did not look at a tree.
const (
	// SkippedEarly: less than half of HotShardSampleInterval has passed since
	// the last sample.
	SkippedEarly = "early"
	// SkippedOvertaken: another tick looked at the same time, and was first.
	SkippedOvertaken = "overtaken"
)

// ShardRate is a sample of one shard.
type ShardRate struct {
	split.ShardSample
	// Reads and Writes are operations since the shard was created.
	Reads, Writes uint64
}
