package run

import (
	"testing"

	"github.com/latticekv/lattice/core/leaf"
)

// shape describes a run for the tables below.
type shape struct {
	level  int
	mib    int64
	base   bool
	inputs int
}

func shaped(shapes []shape) []*Run {
	var runs []*Run
	for _, s := range shapes {
		r := Run{Level: s.level, Base: s.base, Inputs: s.inputs, slot: noSlot}
		r.Leaves = []Leaf{{Summary: leaf.Summary{First: "a", Last: "z", Entries: 100, Raw: s.mib << 20}}}
		runs = append(runs, newRun(r))
	}
	return runs
}

func repeat(n int, s shape) []shape {
	out := make([]shape, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestPolicyChoosesTheMergeThatIsDue(t *testing.T) {
	young, base := shape{mib: 1}, shape{mib: 1000, base: true}
	cat := func(parts ...[]shape) (out []shape) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	one := func(s ...shape) []shape { return s }
	for _, tc := range []struct {
		name string
		runs []shape
		want plan
		due  bool
	}{
		{"nothing", nil, plan{}, false},
		{"base alone", one(base), plan{}, false},
		{"first run becomes the base", one(young), plan{hi: 1, base: true}, true},
		{"few young runs", cat(repeat(7, young), one(base)), plan{}, false},
		{"full level", cat(repeat(8, young), one(base)), plan{hi: 8, level: 1}, true},
		{"full level over older ones", cat(repeat(8, young), repeat(3, shape{level: 1, mib: 8}), one(base)), plan{hi: 8, level: 1}, true},
		{"full second level takes the first along", cat(repeat(3, young), repeat(8, shape{level: 1, mib: 8}), one(base)), plan{hi: 11, level: 2}, true},
		{"two levels nearly full", cat(repeat(7, young), repeat(7, shape{level: 1, mib: 8}), one(base)), plan{}, false},
		{"small runs below a large one wait", cat(one(shape{level: 3, mib: 100}), repeat(8, young), one(base)), plan{}, false},
		{"half the base", one(shape{level: 2, mib: 500}, base), plan{hi: 2, base: true}, true},
		{"a little less than half the base", one(shape{level: 2, mib: 499}, base), plan{}, false},
		{"base merge goes on", one(young, shape{base: true, inputs: 2}, young, base), plan{lo: 1, hi: 4, resume: true, base: true}, true},
		{"young merge goes before the base merge", cat(repeat(8, young), one(shape{base: true, inputs: 1}, base)), plan{hi: 8, level: 1}, true},
		{"young merge in progress goes on first", one(young, shape{level: 1, inputs: 2}, young, young, shape{base: true, inputs: 1}, base),
			plan{lo: 1, hi: 4, resume: true, level: 1}, true},
		{"no second base merge at once", one(shape{level: 3, mib: 900}, shape{base: true, mib: 1, inputs: 1}, base),
			plan{lo: 1, hi: 3, resume: true, base: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, due := Policy{}.choose(shaped(tc.runs), 0)
			if due != tc.due || got != tc.want {
				t.Errorf("got %+v, %v, want %+v, %v", got, due, tc.want, tc.due)
			}
		})
	}
}

func TestPolicyOptionsCount(t *testing.T) {
	runs := shaped([]shape{{mib: 1}, {mib: 1}, {mib: 10, base: true}})
	if _, due := (Policy{}).choose(runs, 0); due {
		t.Error("a merge is due by default")
	}
	if _, due := (Policy{MaxRunsPerTier: 2}).choose(runs, 0); !due {
		t.Error("two runs are not merged though two are too many")
	}
	if pl, due := (Policy{MergeRatio: 0.2}).choose(runs, 0); !due || !pl.base {
		t.Error("a fifth of the base is not merged into it")
	}
	if (Policy{MaxRunsPerTier: 1}).maxRuns() != 2 {
		t.Error("merges of a single run would never end")
	}
}

func TestGraceMayBeEndless(t *testing.T) {
	p := Policy{TombstoneGrace: 1<<63 - 1}
	if p.pastGrace(1, 1_800_000_000_000) {
		t.Error("something is past an endless grace")
	}
}

func TestFlushedRunsHaveTheLevelOfTheirSize(t *testing.T) {
	s := &Store{}
	for mib, want := range map[int64]int{0: 0, 1: 0, 7: 0, 8: 1, 63: 1, 64: 2, 600: 3} {
		if got := s.levelOf(mib << 20); got != want {
			t.Errorf("%d MiB have level %d, want %d", mib, got, want)
		}
	}
}

func TestManifestHoldsAboutTheRootOfTheIndex(t *testing.T) {
	if got := maxInline(0); got != 64<<10 {
		t.Errorf("beside no index %d bytes, want 64 KiB", got)
	}
	if got := maxInline(6 << 20); got < 400<<10 || got > 500<<10 {
		t.Errorf("beside an index of 6 MiB %d bytes, want about 450 KiB", got)
	}
}
