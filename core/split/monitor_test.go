package split_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
)

// rules are the defaults.
func rules() split.Rules {
	return split.Rules{
		AutoSplitEnabled: true, AutoSplitMinTreeAge: time.Minute, HotShardOpsPerSecondThreshold: 200,
		HotShardMinSkewRatio: 1.5, HotShardMinShardEntries: 1024, MaxConcurrentAutoSplits: 2, MaxPhysicalShardsPerTree: 256,
	}
}

// shardAt is a healthy shard under a load.
func shardAt(id keyspace.ShardID, rate float64) split.ShardSample {
	return split.ShardSample{Shard: id, Rate: rate, Known: true, Live: 5000, Slots: 1024}
}

// skewed is a tree of four shards of which shard 1 is hot.
func skewed() split.Sample {
	return split.Sample{Age: time.Hour, Shards: []split.ShardSample{shardAt(0, 10), shardAt(1, 1000), shardAt(2, 10), shardAt(3, 20)}}
}

// reasons tells the decision for each candidate, hottest first: "1" is split,
// "1:cooldown" is not.
func reasons(d split.Decision) string {
	var out []string
	for _, c := range d.Candidates {
		if c.Reason == "" {
			out = append(out, fmt.Sprint(c.Shard))
			continue
		}
		out = append(out, fmt.Sprintf("%d:%s", c.Shard, c.Reason))
	}
	return fmt.Sprint(out)
}

func TestEveryRuleHoldsAtItsBoundary(t *testing.T) {
	type edit func(r *split.Rules, s *split.Sample)
	tests := []struct {
		name string
		edit edit
		want string
	}{
		{"a hot shard among cold ones is split", func(*split.Rules, *split.Sample) {}, "[1]"},

		{"switched off", func(r *split.Rules, _ *split.Sample) { r.AutoSplitEnabled = false }, "[1:disabled]"},
		{"a moment too young", func(_ *split.Rules, s *split.Sample) { s.Age = time.Minute - 1 }, "[1:tree_age]"},
		{"just old enough", func(_ *split.Rules, s *split.Sample) { s.Age = time.Minute }, "[1]"},
		{"created by a clock that is ahead", func(_ *split.Rules, s *split.Sample) { s.Age = -1 }, "[1:tree_age]"},
		{"no age asked for", func(r *split.Rules, s *split.Sample) { r.AutoSplitMinTreeAge, s.Age = 0, 0 }, "[1]"},
		{"resharding", func(_ *split.Rules, s *split.Sample) { s.Resharding = true }, "[1:resharding]"},
		{"merging", func(_ *split.Rules, s *split.Sample) { s.Merging = true }, "[1:merging]"},
		{"snapshotting", func(_ *split.Rules, s *split.Sample) { s.Snapshotting = true }, "[1:snapshotting]"},
		{"a graft is pending", func(_ *split.Rules, s *split.Sample) { s.BulkPending = true }, "[1:bulk_pending]"},
		{"at the cap", func(_ *split.Rules, s *split.Sample) { s.InFlight = 2 }, "[1:in_flight]"},
		{"over the cap", func(_ *split.Rules, s *split.Sample) { s.InFlight = 3 }, "[1:in_flight]"},
		{"one below the cap", func(_ *split.Rules, s *split.Sample) { s.InFlight = 1 }, "[1]"},

		{"just below the threshold", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Rate = 199.9 }, "[]"},
		{"at the threshold", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Rate = 200 }, "[1]"},
		{"without a rate", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Known = false }, "[]"},
		{"splitting already", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Splitting = true }, "[1:splitting]"},
		{"receiving slots", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Incoming = true }, "[1:incoming]"},
		{"cooling down", func(_ *split.Rules, s *split.Sample) { s.Shards[1].CoolingDown = true }, "[1:cooldown]"},
		{"one slot", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Slots = 1 }, "[1:single_slot]"},
		{"two slots", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Slots = 2 }, "[1]"},

		{"at the ceiling", func(r *split.Rules, _ *split.Sample) { r.MaxPhysicalShardsPerTree = 4 }, "[1:shard_ceiling]"},
		{"one below the ceiling", func(r *split.Rules, _ *split.Sample) { r.MaxPhysicalShardsPerTree = 5 }, "[1]"},
		{"the last place is taken by a split in flight", func(r *split.Rules, s *split.Sample) {
			r.MaxPhysicalShardsPerTree, s.InFlight, s.Unborn = 5, 1, 1
		}, "[1:shard_ceiling]"},
		{"a ceiling of 0 is none", func(r *split.Rules, _ *split.Sample) { r.MaxPhysicalShardsPerTree = 0 }, "[1]"},
		{"a negative ceiling is none", func(r *split.Rules, _ *split.Sample) { r.MaxPhysicalShardsPerTree = -1 }, "[1]"},
		{"one place below the ceiling goes to the hottest", func(r *split.Rules, s *split.Sample) {
			r.MaxPhysicalShardsPerTree, s.Shards[3].Rate = 5, 900
			r.HotShardMinSkewRatio = 1
		}, "[1 3:shard_ceiling]"},

		{"uniform", func(_ *split.Rules, s *split.Sample) {
			s.Shards = []split.ShardSample{shardAt(0, 300), shardAt(1, 310), shardAt(2, 300)}
		}, "[1:uniform_load 0:uniform_load 2:uniform_load]"},
		{"just below the ratio", func(_ *split.Rules, s *split.Sample) {
			s.Shards = []split.ShardSample{shardAt(0, 100), shardAt(1, 299), shardAt(2, 200)}
		}, "[1:uniform_load 2:uniform_load]"},
		{"at the ratio", func(_ *split.Rules, s *split.Sample) {
			s.Shards = []split.ShardSample{shardAt(0, 100), shardAt(1, 300), shardAt(2, 200)}
		}, "[1 2]"},
		{"the median of two is their mean", func(_ *split.Rules, s *split.Sample) {
			s.Shards = []split.ShardSample{shardAt(0, 100), shardAt(1, 300)}
		}, "[1]"},
		{"and just below", func(_ *split.Rules, s *split.Sample) {
			s.Shards = []split.ShardSample{shardAt(0, 100.1), shardAt(1, 300)}
		}, "[1:uniform_load]"},
		{"a ratio of 1 disables the clause", func(r *split.Rules, s *split.Sample) {
			r.HotShardMinSkewRatio = 1
			s.Shards = []split.ShardSample{shardAt(0, 300), shardAt(1, 300)}
		}, "[0 1]"},
		{"a ratio just over 1 does not", func(r *split.Rules, s *split.Sample) {
			r.HotShardMinSkewRatio = 1.01
			s.Shards = []split.ShardSample{shardAt(0, 300), shardAt(1, 300)}
		}, "[0:uniform_load 1:uniform_load]"},
		{"one shard has nothing to compare with", func(_ *split.Rules, s *split.Sample) {
			s.Shards = s.Shards[1:2]
		}, "[1]"},
		{"a shard without a rate does not count for the median", func(_ *split.Rules, s *split.Sample) {
			s.Shards = []split.ShardSample{shardAt(0, 300), shardAt(1, 310), {Shard: 2, Slots: 9}, {Shard: 3, Slots: 9}}
		}, "[1:uniform_load 0:uniform_load]"},

		{"an entry too few", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Live = 1023 }, "[1:low_occupancy]"},
		{"just enough entries", func(_ *split.Rules, s *split.Sample) { s.Shards[1].Live = 1024 }, "[1]"},
		{"no floor", func(r *split.Rules, s *split.Sample) { r.HotShardMinShardEntries, s.Shards[1].Live = 0, 0 }, "[1]"},
		{"a tiny one does not use up a place", func(r *split.Rules, s *split.Sample) {
			r.MaxConcurrentAutoSplits, r.HotShardMinSkewRatio = 1, 0
			s.Shards[0].Rate, s.Shards[1].Live = 500, 3
		}, "[1:low_occupancy 0]"},

		{"the hottest take the places that are left", func(r *split.Rules, s *split.Sample) {
			r.MaxConcurrentAutoSplits, r.HotShardMinSkewRatio, s.InFlight = 3, 1, 1
			s.Shards[0].Rate, s.Shards[2].Rate, s.Shards[3].Rate = 400, 5000, 300
		}, "[2 1 0:in_flight 3:in_flight]"},
		{"of equals the first", func(r *split.Rules, s *split.Sample) {
			r.MaxConcurrentAutoSplits = 1
			s.Shards = append(s.Shards, shardAt(4, 1000), shardAt(5, 10), shardAt(6, 10))
		}, "[1 4:in_flight]"},
		{"a lasting reason is told before a passing one", func(_ *split.Rules, s *split.Sample) {
			s.Shards[1].Slots, s.Shards[1].CoolingDown, s.Shards[1].Live = 1, true, 1
		}, "[1:single_slot]"},
		{"no shard at all", func(_ *split.Rules, s *split.Sample) { s.Shards = nil }, "[]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, s := rules(), skewed()
			tt.edit(&r, &s)
			before := slices.Clone(s.Shards)
			d := split.Decide(r, s)
			if got := reasons(d); got != tt.want {
				t.Errorf("decided %s, want %s", got, tt.want)
			}
			if !slices.Equal(before, s.Shards) {
				t.Error("the sample was changed")
			}
			if d.InFlight != s.InFlight {
				t.Errorf("%d in flight, want %d", d.InFlight, s.InFlight)
			}
		})
	}
}

func TestTheClusterDefersTheLeastHot(t *testing.T) {
	for grant, want := range map[int]string{
		0: "[1:cluster_cap 0:cooldown 3:cluster_cap]", 1: "[1 0:cooldown 3:cluster_cap]", 2: "[1 0:cooldown 3]", 9: "[1 0:cooldown 3]",
	} {
		s := skewed()
		s.Shards[0].Rate, s.Shards[0].CoolingDown, s.Shards[3].Rate = 600, true, 500
		r := rules()
		r.HotShardMinSkewRatio = 0
		d := split.Decide(r, s)
		d.Limit(grant)
		if got := reasons(d); got != want {
			t.Errorf("granted %d: %s, want %s", grant, got, want)
		}
		if n := len(d.Chosen()); n != min(grant, 2) {
			t.Errorf("granted %d: %d chosen", grant, n)
		}
		if d.Fail(); len(d.Chosen()) != 0 || d.Candidates[1].Reason != split.ReasonCooldown {
			t.Errorf("granted %d: %s after a failure", grant, reasons(d))
		}
	}
}

// TestNoDecisionExceedsACap draws samples of all kinds.
func TestNoDecisionExceedsACap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rules()
		r.MaxConcurrentAutoSplits = rapid.IntRange(1, 5).Draw(t, "cap")
		r.MaxPhysicalShardsPerTree = rapid.IntRange(-1, 12).Draw(t, "ceiling")
		r.HotShardMinSkewRatio = rapid.Float64Range(0, 3).Draw(t, "ratio")
		s := split.Sample{Age: time.Hour, InFlight: rapid.IntRange(0, 6).Draw(t, "in flight")}
		s.Unborn = rapid.IntRange(0, s.InFlight).Draw(t, "unborn")
		for i := range rapid.IntRange(0, 10).Draw(t, "shards") {
			s.Shards = append(s.Shards, split.ShardSample{
				Shard: keyspace.ShardID(i), Rate: rapid.Float64Range(0, 1000).Draw(t, "rate"),
				Known: rapid.Bool().Draw(t, "known"), Live: rapid.Int64Range(0, 4000).Draw(t, "live"),
				Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Splitting: rapid.Bool().Draw(t, "splitting"),
			})
		}
		d := split.Decide(r, s)
		n := len(d.Chosen())
		if n > 0 && n+s.InFlight > r.MaxConcurrentAutoSplits {
			t.Fatalf("%d chosen beside %d in flight, %d allowed", n, s.InFlight, r.MaxConcurrentAutoSplits)
		}
		if c := r.MaxPhysicalShardsPerTree; n > 0 && c > 0 && n+s.Unborn+len(s.Shards) > c {
			t.Fatalf("%d chosen, %d unborn, %d shards: over the ceiling of %d", n, s.Unborn, len(s.Shards), c)
		}
		last := math.Inf(1)
		for _, c := range d.Candidates {
			if c.Rate > last || c.Rate < 200 {
				t.Fatalf("candidate at %f after %f", c.Rate, last)
			}
			last = c.Rate
			if c.Reason == "" && (c.Slots < 2 || c.Live < 1024) {
				t.Fatalf("%+v must not be split", c)
			}
		}
	})
}
