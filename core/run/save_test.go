package run

import (
	"errors"
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/store"
)

// wide returns a run of n leaves whose keys begin with prefix.
func wide(prefix string, n int) Run {
	r := Run{slot: noSlot}
	hashes := make([]uint64, 100)
	for i := range n {
		r.Leaves = append(r.Leaves, Leaf{
			Blob:    fmt.Sprintf("t/0/leaf/%s-%d", prefix, i),
			Summary: leaf.Summary{First: fmt.Sprintf("%s%06d", prefix, 2*i), Last: fmt.Sprintf("%s%06d", prefix, 2*i+1), Entries: 100, Raw: 1000},
			Filter:  leaf.NewFilter(hashes),
		})
	}
	return r
}

func TestEmptyViewHasNoName(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{})
	set := mustOpen(t, s, "")
	if set.Name() != "" || set.Seq() != 0 || set.Stats() != (Stats{}) {
		t.Errorf("empty view: %q, %d, %+v", set.Name(), set.Seq(), set.Stats())
	}
	if _, ok, err := set.Get(t.Context(), "k"); ok || err != nil {
		t.Errorf("get: %v, %v", ok, err)
	}
	if _, more, err := s.MergeStep(t.Context(), set, Policy{}, Budget{}); more || err != nil {
		t.Errorf("merge: %v, %v", more, err)
	}
	check(t, mustOpen(t, fresh(s), mustSave(t, s, set).Name()), nil)
}

func TestSavingTwiceWritesOnce(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	set := mustSave(t, s, mustFlush(t, s, s.Empty(), numbered(0, 10, 1, 1)))
	puts := b.puts
	if again := mustSave(t, s, set); again != set || b.puts != puts {
		t.Error("a saved view was written again")
	}
}

func TestManifestStaysSmallHoweverManyLeaves(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	set := s.Empty().with(1, []*Run{newRun(wide("base", 5000))})
	indexes := 0
	for i := range 60 {
		runs := append([]*Run{newRun(wide(fmt.Sprintf("r%03d", i), 20))}, set.runs...)
		before := set.index.name
		set = mustSave(t, s, set.with(uint64(i), runs))
		if set.index.name != before {
			indexes++
		}
		inline := 0
		for _, r := range set.runs {
			inline += len(r.Leaves) - r.settled
		}
		if size := len(payload(t, manifestFormat, b.data[set.name])); size > 170<<10 {
			t.Fatalf("save %d: the manifest has %d bytes and %d leaves", i, size, inline)
		}
		if got := mustOpen(t, fresh(s), set.Name()); got.Stats() != set.Stats() {
			t.Fatalf("save %d: read back %+v, want %+v", i, got.Stats(), set.Stats())
		}
	}
	if indexes < 2 || indexes > 10 {
		t.Errorf("the index was written %d times in 60 saves", indexes)
	}
}

func TestIndexIsGivenUpWhenNothingRefersToIt(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{})
	set := mustSave(t, s, s.Empty().with(1, []*Run{newRun(wide("a", 2000))}))
	if set.index.name == "" {
		t.Fatal("no index was written")
	}
	set = mustSave(t, s, set.with(2, []*Run{newRun(wide("b", 3))}))
	if set.index.name != "" {
		t.Error("the index is kept though no run refers to it")
	}
}

func TestIndexIsRewrittenWhenMostOfItIsStale(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{})
	set := mustSave(t, s, s.Empty().with(1, []*Run{newRun(wide("a", 2000))}))
	half := mustSave(t, s, set.with(2, []*Run{set.runs[0].from("a001900")}))
	if half.index != set.index {
		t.Error("the index was rewritten though half of it is in use")
	}
	if got := mustOpen(t, fresh(s), half.Name()); got.Stats() != half.Stats() || got.runs[0].From != "a001900" {
		t.Errorf("read back %+v, want %+v", got.Stats(), half.Stats())
	}
	rest := mustSave(t, s, half.with(3, []*Run{half.runs[0].from("a003000")}))
	if rest.index.leaves != 500 {
		t.Errorf("the index holds %d leaves, want the 500 in use", rest.index.leaves)
	}
}

func TestSaveReportsFailedWrites(t *testing.T) {
	for _, kind := range []string{KindIndex, KindManifest} {
		b := newBlobs()
		s, _ := newStore(b, Options{})
		b.fault = func(name string) (error, bool) {
			if len(name) > 4 && name[4:4+len(kind)] == kind {
				return store.ErrInvalid, false
			}
			return nil, false
		}
		set := s.Empty().with(1, []*Run{newRun(wide("a", 2000))})
		if _, err := s.Save(t.Context(), s.Empty(), set, 0); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("failing %s: error %v, want ErrInvalid", kind, err)
		}
		if set.Name() != "" {
			t.Error("the view given was changed")
		}
	}
}
