package run

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

func staged(t testing.TB, s *Store, entries []record.Entry) *Run {
	t.Helper()
	g := s.Stage(t.Context())
	for i := range entries {
		if err := g.Add(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReadBackYieldsEverythingAndLeavesTheCacheAlone(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1 << 10})
	want := numbered(0, 500, 1, 1)
	r := staged(t, s, want)
	before := s.Cache.Stats()
	it, stop := s.ReadBack(t.Context(), r, 3)
	defer stop()
	n := 0
	for it.Next(t.Context()) {
		if e := it.Entry(); e.Key != want[n].Key || string(e.Value) != string(want[n].Value) || e.Version != want[n].Version {
			t.Fatalf("entry %d is %+v", n, e)
		}
		n++
	}
	if it.Err() != nil || n != len(want) {
		t.Errorf("%d entries, %v", n, it.Err())
	}
	gets := b.takeGets()
	if slices.Sort(gets); len(gets) != len(r.Leaves) || len(slices.Compact(gets)) != len(r.Leaves) {
		t.Errorf("%d reads of %d leaves", len(gets), len(r.Leaves))
	}
	if after := s.Cache.Stats(); after.Pages != before.Pages {
		t.Errorf("%d pages more in the cache", after.Pages-before.Pages)
	}
}

func TestReadBackReadsAheadAndCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlobs()
		s, _ := newStore(b, Options{LeafTarget: 1 << 10})
		r := staged(t, s, numbered(0, 500, 1, 1))
		b.hold = make(chan struct{})
		it, stop := s.ReadBack(t.Context(), r, 2)
		go it.Next(t.Context())
		synctest.Wait()
		if b.waiting != 3 {
			t.Errorf("%d leaves are being read, 1 and 2 ahead expected", b.waiting)
		}
		close(b.hold)
		stop() // returns once no read goes on: else the bubble does not end
	})
}

func TestReadBackOfWhatWasCollected(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1 << 10})
	r := staged(t, s, numbered(0, 500, 1, 1))
	if err := b.Delete(t.Context(), r.Leaves[2].Blob); err != nil {
		t.Fatal(err)
	}
	it, stop := s.ReadBack(t.Context(), r, 1)
	defer stop()
	n := 0
	for it.Next(t.Context()) {
		n++
	}
	if !errors.Is(it.Err(), store.ErrNotFound) || n != r.Leaves[0].Entries+r.Leaves[1].Entries {
		t.Errorf("%d entries, then %v", n, it.Err())
	}
}
