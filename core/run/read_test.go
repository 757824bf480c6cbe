package run

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// deepSet returns a saved view with a base and several runs over it, and its
// contents.
func deepSet(t testing.TB, s *Store) (*Set, map[string]string) {
	t.Helper()
	model := map[string]string{}
	set := s.Empty()
	add := func(entries []record.Entry) {
		maps.Copy(model, live(entries))
		set = mustFlush(t, s, set, entries)
	}
	add(numbered(0, 20_000, 1, 1))
	set = mustMerge(t, s, set, Policy{}, Budget{})
	for i := range 5 {
		add(numbered(i, 20_000, 17, 2+i))
	}
	return mustSave(t, s, set), model
}

func TestColdGetReadsManifestIndexAndOneLeaf(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 16 << 10})
	set, model := deepSet(t, s)
	if len(set.Runs()) != 6 || set.index.name != "" {
		t.Fatalf("%d runs, index %q: not the case to be tested", len(set.Runs()), set.index.name)
	}
	indexed := *set
	settled, err := s.rewriteIndex(t.Context(), &indexed)
	if err != nil {
		t.Fatal(err)
	}
	settled.name = ""
	settled = mustSave(t, s, settled)
	for _, tc := range []struct {
		name string
		set  *Set
		want int
	}{{"index in the manifest", set, 2}, {"index apart", settled, 3}} {
		t.Run(tc.name, func(t *testing.T) {
			reads, extra := 0, 0
			keys := slices.Sorted(maps.Keys(model))
			for i := 0; i < len(keys); i += 97 {
				cold := fresh(s)
				b.takeGets()
				e, ok, err := mustOpen(t, cold, tc.set.Name()).Get(t.Context(), keys[i])
				if err != nil || !ok || string(e.Value) != model[keys[i]] {
					t.Fatalf("get %q: %+v, %v, %v", keys[i], e, ok, err)
				}
				n := len(b.takeGets())
				reads++
				if n > tc.want {
					extra++
				}
				if n < tc.want || n > tc.want+2 {
					t.Fatalf("cold get takes %d reads, want %d", n, tc.want)
				}
			}
			if extra*10 > reads {
				t.Errorf("%d of %d cold gets take more than %d reads", extra, reads, tc.want)
			}
		})
	}
}

func TestAbsentKeyReadsHardlyMoreThanTheBase(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 16 << 10})
	set, _ := deepSet(t, s)
	b.takeGets()
	for i := range 500 {
		key := fmt.Sprintf("k%06dx", i*39)
		s.Cache = leaf.NewCache(0) // every read is counted
		if _, ok, err := set.Get(t.Context(), key); ok || err != nil {
			t.Fatalf("get of absent %q: %v, %v", key, ok, err)
		}
	}
	if n := len(b.takeGets()); n > 600 {
		t.Errorf("%d reads for 500 absent keys, want about one each", n)
	}
	if _, ok, err := set.Get(t.Context(), "z"); ok || err != nil || len(b.takeGets()) != 0 {
		t.Error("a key beyond all leaves is looked for")
	}
}

func TestIterationReadsOnlyWhatItNeeds(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 16 << 10})
	set := mustMerge(t, s, mustFlush(t, s, s.Empty(), numbered(0, 20_000, 1, 1)), Policy{}, Budget{})
	for _, reverse := range []bool{false, true} {
		s.Cache = leaf.NewCache(0)
		b.takeGets()
		it := set.Iter(Bounds{From: "k010000"}, reverse)
		for range 10 {
			if !it.Next(t.Context()) {
				t.Fatal("iteration ends early")
			}
		}
		if n := len(b.takeGets()); n != 1 {
			t.Errorf("reverse=%v: ten entries take %d reads, want 1", reverse, n)
		}
	}
	if it := set.Iter(Bounds{From: "k1", To: "k05"}, false); it.Next(t.Context()) || it.Err() != nil {
		t.Error("an inverted range yields something")
	}
}

func TestColdScanReadsItsFirstLeavesAtOnce(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBlobs()
			s, _ := newStore(b, Options{ParallelReads: 4})
			set := s.Empty()
			for i := range 6 {
				set = mustFlush(t, s, set, numbered(i, 600, 6, i))
			}
			b.hold = make(chan struct{})
			it, done := set.Iter(Bounds{From: "k000300", To: "k000500"}, reverse), make(chan bool)
			go func() { done <- it.Next(t.Context()) }()
			synctest.Wait()
			if b.waiting != 4 {
				t.Errorf("reverse=%v: %d reads at once, want 4", reverse, b.waiting)
			}
			close(b.hold)
			if !<-done || len(contents(t, it)) != 199 {
				t.Errorf("reverse=%v: the scan is cut short: %v", reverse, it.Err())
			}
			if n := len(b.takeGets()); n != 6 {
				t.Errorf("reverse=%v: %d reads of 6 leaves", reverse, n)
			}
		})
	}
}

func TestViewsAreReadWhileOthersAreMade(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{LeafTarget: 4 << 10})
	s.Cache = leaf.NewCache(64 << 10) // smaller than the view
	set, model := s.Empty(), map[string]string{}
	for i := range 10 {
		entries := numbered(i, 700, 7, i)
		maps.Copy(model, live(entries))
		set = mustFlush(t, s, set, entries)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for key, value := range model {
				if e, ok, err := set.Get(t.Context(), key); err != nil || !ok || string(e.Value) != value {
					t.Errorf("get %q: %+v, %v, %v", key, e, ok, err)
					return
				}
			}
		})
	}
	merged := mustMerge(t, s, set, Policy{}, Budget{Bytes: 10 << 10})
	wg.Wait()
	check(t, merged, model)
}

func TestReopeningReadsOnlyTheManifestAgain(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	set, _ := deepSet(t, s)
	n, err := s.rewriteIndex(t.Context(), &Set{store: s, seq: 9, runs: set.runs})
	if err != nil {
		t.Fatal(err)
	}
	saved := mustSave(t, s, n)
	cold := fresh(s)
	mustOpen(t, cold, saved.Name())
	b.takeGets()
	mustOpen(t, cold, saved.Name())
	if gets := b.takeGets(); len(gets) != 1 {
		t.Errorf("reopening reads %v", gets)
	}
}

func TestMissingLeafIsNotFoundByName(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	set := mustFlush(t, s, s.Empty(), numbered(0, 10, 1, 1))
	name := set.Runs()[0].Leaves[0].Blob
	if err := b.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	wantNamed(t, set, name, store.ErrNotFound)
}

func TestDamagedOrForeignLeafIsCorruptByName(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	set := mustFlush(t, s, s.Empty(), numbered(0, 10, 1, 1))
	other := mustFlush(t, s, s.Empty(), numbered(0, 9, 1, 1))
	fewer := mustFlush(t, s, s.Empty(), slices.Delete(numbered(0, 10, 1, 1), 4, 6))
	name := set.Runs()[0].Leaves[0].Blob
	flipped := bytes.Clone(b.data[name])
	flipped[len(flipped)/2] ^= 1
	for kind, data := range map[string][]byte{
		"flipped": flipped, "empty": {}, "foreign": b.data[other.Runs()[0].Leaves[0].Blob],
		"of fewer entries": b.data[fewer.Runs()[0].Leaves[0].Blob],
	} {
		t.Run(kind, func(t *testing.T) {
			b.data[name] = data
			wantNamed(t, set, name, store.ErrCorrupt)
		})
	}
}

// wantNamed fails unless every way of reading the view fails with the error and
// names the blob.
func wantNamed(t *testing.T, set *Set, name string, want error) {
	t.Helper()
	_, _, err := set.Get(t.Context(), "k000003")
	errs := map[string]error{"get": err}
	for _, reverse := range []bool{false, true} {
		it := set.Iter(Bounds{From: "k000001", To: "k000005"}, reverse)
		if it.Next(t.Context()) {
			t.Error("iteration goes on")
		}
		errs[fmt.Sprintf("iterate, reverse=%v", reverse)] = it.Err()
		if it.Next(t.Context()) {
			t.Error("iteration goes on after an error")
		}
	}
	_, _, err = set.store.MergeStep(t.Context(), mustFlush(t, set.store, set, numbered(0, 10, 2, 2)), Policy{}, Budget{})
	errs["merge"] = err
	for op, err := range errs {
		if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want %v naming %q", op, err, want, name)
		}
	}
}

func TestTombstonesAreReadAsEntries(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{})
	set := mustFlush(t, s, s.Empty(), []record.Entry{put("a", "1", 1), put("b", "1", 1)})
	set = mustFlush(t, s, set, []record.Entry{dead("a", 2)})
	if e, ok, err := set.Get(t.Context(), "a"); !ok || !e.Tombstone || err != nil {
		t.Errorf("get of a deleted key: %+v, %v, %v", e, ok, err)
	}
	got := contents(t, set.Iter(Bounds{}, false))
	if len(got) != 2 || !got[0].Tombstone || got[1].Tombstone {
		t.Errorf("iteration yields %+v", got)
	}
}

func benchSet(b *testing.B) *Set {
	s, _ := newStore(newBlobs(), Options{})
	set := mustMerge(b, s, mustFlush(b, s, s.Empty(), numbered(0, 200_000, 1, 1)), Policy{}, Budget{})
	for i := range 5 {
		set = mustFlush(b, s, set, numbered(i, 200_000, 31, i+2))
	}
	contents(b, set.Iter(Bounds{}, false)) // fill the cache
	b.ResetTimer()
	return set
}

func BenchmarkSetGet(b *testing.B) {
	set := benchSet(b)
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%06d", i*7919%200_000)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok, err := set.Get(b.Context(), keys[i%len(keys)]); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkSetIter(b *testing.B) {
	set := benchSet(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for it := set.Iter(Bounds{}, false); it.Next(b.Context()); {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/entry")
}
