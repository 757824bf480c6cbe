package run

import "time"

// Policy decides which runs are merged, and what a merge drops.
type Policy struct {
	// MergeRatio: when the runs above the base have this share of its size,
	// everything is merged into a new base. Default 1/2. A greater one writes
	// less and reads more.
	MergeRatio float64
	// MaxRunsPerTier: so many runs of one level are merged into one of the next.
	// Default 8.
	MaxRunsPerTier int
	// TombstoneGrace is how long tombstones and expired entries are kept before
	// a merge into the base may drop them. They must outlive whatever may still
	// bring an older entry of the key: a migration, a pinned snapshot.
	TombstoneGrace time.Duration
	// Keep, unless nil, says whether the shard still needs the key. Every merge
	// drops the others. It must be a pure function.
	Keep func(key string) bool
}

func (p Policy) mergeRatio() float64 { return orDefault(p.MergeRatio, 0.5) }

func (p Policy) maxRuns() int { return max(2, orDefault(p.MaxRunsPerTier, TierFactor)) }

// deadShare is the share of the base that may be dead, and free to be dropped,
// before it is rewritten for that alone.
const deadShare = 4

// plan is a merge: of the runs [lo, hi), newest first.
type plan struct {
	// lo is the output run if resume, else the first input.
	lo, hi int
	// resume says that the merge is in progress.
	resume bool
	// base says that the output is the new base.
	base bool
	// level of the output.
	level int
}

// choose returns the merge that is due, if one is. A merge of young runs goes
// before one into the base: it is shorter, and it bounds the runs that a reader
// meets while the long one goes on.
func (p Policy) choose(runs []*Run, nowMilli int64) (plan, bool) {
	free := 0 // runs above all merges in progress
	for free < len(runs) && runs[free].Inputs == 0 {
		free++
	}
	if free < len(runs) && !runs[free].Base {
		return resume(runs, free), true
	}
	idle := free == len(runs)
	if idle && p.baseDue(runs, nowMilli) {
		return plan{lo: 0, hi: len(runs), base: true}, true
	}
	if idle && free > 0 && runs[free-1].Base {
		free--
	}
	if pl, ok := p.tierDue(runs[:free]); ok {
		return pl, true
	}
	if !idle {
		return resume(runs, free), true
	}
	return plan{}, false
}

func resume(runs []*Run, i int) plan {
	out := runs[i]
	return plan{lo: i, hi: i + 1 + out.Inputs, resume: true, base: out.Base, level: out.Level}
}

// baseDue reports whether everything should become a new base.
func (p Policy) baseDue(runs []*Run, nowMilli int64) bool {
	if len(runs) == 0 {
		return false
	}
	base, deltas := int64(0), int64(0)
	for _, r := range runs {
		if r.Base {
			base = r.total.raw
		} else {
			deltas += r.total.raw
		}
	}
	if deltas > 0 && float64(deltas) >= p.mergeRatio()*float64(base) {
		return true
	}
	return p.mostlyDead(runs[len(runs)-1], nowMilli)
}

// mostlyDead reports whether much of a base can be dropped.
func (p Policy) mostlyDead(r *Run, nowMilli int64) bool {
	dead := 0
	for i := range r.Leaves {
		l := &r.Leaves[i]
		if l.DropUntil != 0 && p.pastGrace(l.DropUntil, nowMilli) {
			dead += l.Tombstones + l.Expiring
		}
	}
	return r.Base && dead > 0 && dead >= r.total.entries/deadShare
}

// pastGrace reports whether what ceased to exist at milli may be dropped.
func (p Policy) pastGrace(milli, nowMilli int64) bool {
	return milli <= nowMilli-p.TombstoneGrace.Milliseconds()
}

// tierDue looks for a level that is full, and merges it with all that is newer
// and smaller.
func (p Policy) tierDue(runs []*Run) (plan, bool) {
	end, deepest := 0, 0
	for _, r := range runs {
		deepest = max(deepest, r.Level)
	}
	for level := 0; level <= deepest; level++ {
		for end < len(runs) && runs[end].Level <= level {
			end++
		}
		if countLevel(runs[:end], level) >= p.maxRuns() {
			return plan{lo: 0, hi: end, level: level + 1}, true
		}
	}
	return plan{}, false
}

func countLevel(runs []*Run, level int) int {
	n := 0
	for _, r := range runs {
		if r.Level == level {
			n++
		}
	}
	return n
}
