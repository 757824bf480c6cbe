package split

import (
	"cmp"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
)

// Reason says why a hot shard is not split now. The names are told to callers
// and label metrics. Empty means that nothing stands in the way.
type Reason string

// Reasons that hold back every split of a tree for a whole pass.
const (
	// ReasonDisabled: AutoSplitEnabled is off.
	ReasonDisabled Reason = "disabled"
	// ReasonTreeAge: the tree is younger than AutoSplitMinTreeAge.
	ReasonTreeAge Reason = "tree_age"
	// ReasonResharding, ReasonMerging and ReasonSnapshotting: another operation
	// changes or copies the tree as a whole.
	ReasonResharding   Reason = "resharding"
	ReasonMerging      Reason = "merging"
	ReasonSnapshotting Reason = "snapshotting"
	// ReasonBulkPending: a bulk load of the tree is under way.
	ReasonBulkPending Reason = "bulk_pending"
	// ReasonInFlight: MaxConcurrentAutoSplits migrations are in flight. Of one
	// candidate it says that hotter ones took the places that were left.
	ReasonInFlight Reason = "in_flight"
)

// Reasons that hold back the split of one shard.
const (
	// ReasonSplitting: the shard is being split already.
	ReasonSplitting Reason = "splitting"
	// ReasonIncoming: the shard still receives the slots of another.
	ReasonIncoming Reason = "incoming"
	// ReasonSingleSlot: the shard owns one slot; no split can help it.
	ReasonSingleSlot Reason = "single_slot"
	// ReasonCooldown: it was split less than HotShardSplitCooldown ago.
	ReasonCooldown Reason = "cooldown"
	// ReasonShardCeiling: the tree has MaxPhysicalShardsPerTree shards.
	ReasonShardCeiling Reason = "shard_ceiling"
	// ReasonUniformLoad: the hottest shard is less than HotShardMinSkewRatio
	// times as hot as the median.
	ReasonUniformLoad Reason = "uniform_load"
	// ReasonLowOccupancy: it holds fewer than HotShardMinShardEntries entries.
	ReasonLowOccupancy Reason = "low_occupancy"
	// ReasonClusterCap: MaxClusterConcurrentAutoSplits leaves no room.
	ReasonClusterCap Reason = "cluster_cap"
	// ReasonOutdated: another pass or a reshard came between decision and split.
	ReasonOutdated Reason = "outdated"
	// ReasonFailed: the storage failed before the split could be recorded.
	ReasonFailed Reason = "failed"
)

// Reasons returns all reasons that a decision can have.
func Reasons() []Reason {
	return []Reason{
		ReasonDisabled, ReasonTreeAge, ReasonResharding, ReasonMerging, ReasonSnapshotting, ReasonBulkPending, ReasonInFlight,
		ReasonSplitting, ReasonIncoming, ReasonSingleSlot, ReasonCooldown, ReasonShardCeiling, ReasonUniformLoad,
		ReasonLowOccupancy, ReasonClusterCap, ReasonOutdated, ReasonFailed,
	}
}

// Rules are the tunables of a decision, under the names of the options.
type Rules struct {
	AutoSplitEnabled              bool
	AutoSplitMinTreeAge           time.Duration
	HotShardOpsPerSecondThreshold int
	HotShardMinSkewRatio          float64
	HotShardMinShardEntries       int
	MaxConcurrentAutoSplits       int
	MaxPhysicalShardsPerTree      int
}

// ShardSample is what a pass of the monitor knows of one shard.
type ShardSample struct {
	Shard keyspace.ShardID
	// Rate is in operations per second; it is meaningless unless Known: a rate
	// takes two samples.
	Rate  float64
	Known bool
	// Live estimates the live entries, Slots counts the slots owned.
	Live  int64
	Slots int
	// Splitting and Incoming say that the shard is the source or the target of
	// a migration. CoolingDown says that its cooldown has not passed.
	Splitting, Incoming, CoolingDown bool
}

// Sample is what a decision is based on.
type Sample struct {
	// Age is that of the tree.
	Age time.Duration
	// Resharding, Merging and Snapshotting say that such an operation runs on
	// the tree as a whole. Merging is that of another tree into this one: that a
	// shard merges the runs of its checkpoint is no reason to wait, for one that
	// is hot with writes does little else. BulkPending says that a bulk load is
	// under way.
	Resharding, Merging, Snapshotting, BulkPending bool
	// InFlight counts all migrations of the tree in flight, whoever started
	// them; Unborn those whose target owns no slot yet.
	InFlight, Unborn int
	// Shards are those that own slots.
	Shards []ShardSample
}

// Candidate is a hot shard and what was decided about it.
type Candidate struct {
	Shard keyspace.ShardID
	// Rate is in operations per second.
	Rate  float64
	Live  int64
	Slots int
	// Reason is empty if the shard is to be split, or was.
	Reason Reason
}

// Decision is the outcome of a pass.
type Decision struct {
	// Suppressed is why the pass as a whole starts nothing, empty if it may.
	Suppressed Reason
	// InFlight counts the migrations in flight before the pass.
	InFlight int
	// Candidates are the shards whose rate reaches the threshold, hottest
	// first. In a suppressed pass all carry its reason.
	Candidates []Candidate
}

// Decide applies the rules of automatic splits to a sample. It looks at
// nothing else and changes nothing. The ceiling of the cluster is not among
// the rules: see Decision.Limit.
func Decide(r Rules, s Sample) Decision {
	d := Decision{Suppressed: suppressed(r, s), InFlight: s.InFlight}
	shards := hottestFirst(r, s.Shards)
	places := r.MaxConcurrentAutoSplits - s.InFlight
	room := roomFor(r, s)
	uniform := uniformLoad(r, s.Shards)
	for _, x := range shards {
		c := Candidate{Shard: x.Shard, Rate: x.Rate, Live: x.Live, Slots: x.Slots, Reason: d.Suppressed}
		if c.Reason == "" {
			c.Reason = heldBack(r, x, room, places, uniform)
		}
		if c.Reason == "" {
			places--
			room--
		}
		d.Candidates = append(d.Candidates, c)
	}
	return d
}

// suppressed is the first rule that forbids the pass as a whole.
func suppressed(r Rules, s Sample) Reason {
	for _, rule := range []struct {
		holds  bool
		reason Reason
	}{
		{!r.AutoSplitEnabled, ReasonDisabled},
		{s.Resharding, ReasonResharding},
		{s.Merging, ReasonMerging},
		{s.Snapshotting, ReasonSnapshotting},
		{s.BulkPending, ReasonBulkPending},
		{s.Age < r.AutoSplitMinTreeAge, ReasonTreeAge},
		{s.InFlight >= r.MaxConcurrentAutoSplits, ReasonInFlight},
	} {
		if rule.holds {
			return rule.reason
		}
	}
	return ""
}

// heldBack is the first rule that forbids the split of a hot shard, cheapest
// and most lasting first. room is how many shards the tree may still get,
// places how many splits may still begin.
func heldBack(r Rules, x ShardSample, room, places int, uniform bool) Reason {
	switch {
	case x.Splitting:
		return ReasonSplitting
	case x.Incoming:
		return ReasonIncoming
	case x.Slots <= 1:
		return ReasonSingleSlot
	case x.CoolingDown:
		return ReasonCooldown
	case room <= 0:
		return ReasonShardCeiling
	case uniform:
		return ReasonUniformLoad
	case r.HotShardMinShardEntries > 0 && x.Live < int64(r.HotShardMinShardEntries):
		return ReasonLowOccupancy
	case places <= 0:
		return ReasonInFlight
	}
	return ""
}

// hottestFirst returns the shards that are hot.
func hottestFirst(r Rules, shards []ShardSample) []ShardSample {
	hot := slices.DeleteFunc(slices.Clone(shards), func(x ShardSample) bool {
		return !x.Known || x.Rate < float64(r.HotShardOpsPerSecondThreshold)
	})
	slices.SortFunc(hot, func(a, b ShardSample) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Shard, b.Shard))
	})
	return hot
}

// roomFor is how many more shards automatic splits may give the tree, those on
// their way counted as there.
func roomFor(r Rules, s Sample) int {
	if r.MaxPhysicalShardsPerTree <= 0 {
		return keyspace.Slots
	}
	return r.MaxPhysicalShardsPerTree - len(s.Shards) - s.Unborn
}

// uniformLoad reports whether the heat is spread, so that dividing one shard
// would relieve nothing: the mark of a bulk load. A tree of one shard has
// nothing to compare with, and is not held back.
func uniformLoad(r Rules, shards []ShardSample) bool {
	if r.HotShardMinSkewRatio <= 1 || len(shards) < 2 {
		return false
	}
	var rates []float64
	for _, x := range shards {
		if x.Known {
			rates = append(rates, x.Rate)
		}
	}
	if len(rates) == 0 {
		return false
	}
	slices.Sort(rates)
	return rates[len(rates)-1] < r.HotShardMinSkewRatio*median(rates)
}

// median of sorted numbers; of two in the middle, their mean.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Chosen are the shards to be split, hottest first.
func (d *Decision) Chosen() []keyspace.ShardID {
	var ids []keyspace.ShardID
	for _, c := range d.Candidates {
		if c.Reason == "" {
			ids = append(ids, c.Shard)
		}
	}
	return ids
}

// Fail notes that none of the chosen could be split.
func (d *Decision) Fail() { d.hold(0, ReasonFailed) }

// Limit leaves the n hottest of the chosen, and defers the others to a later
// pass: the cluster has no room for them.
func (d *Decision) Limit(n int) { d.hold(n, ReasonClusterCap) }

// hold gives a reason to all of the chosen but the n hottest.
func (d *Decision) hold(n int, reason Reason) {
	for i := range d.Candidates {
		if d.Candidates[i].Reason != "" {
			continue
		}
		if n--; n < 0 {
			d.Candidates[i].Reason = reason
		}
	}
}
