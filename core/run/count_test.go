package run

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// tallyByReading is what Tally must agree with.
func tallyByReading(t testing.TB, set *Set, b Bounds, above []record.Entry, nowMilli int64, keep func(string) bool) (n Tally) {
	t.Helper()
	for _, e := range contents(t, MergeIterators(false, Slice(above), set.Iter(b, false))) {
		switch {
		case !keep(e.Key):
		case e.Tombstone:
			n.Tombstones++
		case e.Expiry != 0 && e.Expiry <= nowMilli:
			n.Expired++
		default:
			n.Live++
		}
	}
	return n
}

func everything(string) bool { return true }

// Runs that overlap here and there, with tombstones and expiries, in the middle
// of merges, under a tail: the tally from the index is that of the entries.
func TestTallyIsThatOfTheEntries(t *testing.T) {
	const now = 1_800_000_000_500
	spared := 0
	rapid.Check(t, func(rt *rapid.T) {
		blobs := newBlobs()
		s, _ := newStore(blobs, Options{LeafTarget: rapid.SampledFrom([]int{1, 200, 800}).Draw(rt, "leaf target"), TierUnit: 200})
		policy := Policy{MergeRatio: rapid.SampledFrom([]float64{0.2, 0.5, 10}).Draw(rt, "ratio"), MaxRunsPerTier: 2}
		set := s.Empty()
		for at := range rapid.IntRange(0, 12).Draw(rt, "changes") {
			if rapid.IntRange(0, 2).Draw(rt, "merge") > 0 {
				next, _, err := s.MergeStep(t.Context(), set, policy, Budget{Entries: rapid.IntRange(1, 40).Draw(rt, "step")})
				if err != nil {
					rt.Fatal(err)
				}
				set = next
			}
			set = mustFlush(t, s, set, drawStretch(rt, at, now))
		}
		tail := drawStretch(rt, 100, now)
		b := Bounds{}
		if rapid.Bool().Draw(rt, "from") {
			b.From = drawKey(rt)
		}
		if rapid.Bool().Draw(rt, "to") {
			b.To = drawKey(rt)
		}
		var above []record.Entry
		for _, e := range tail {
			if e.Key >= b.From && (b.To == "" || e.Key < b.To) {
				above = append(above, e)
			}
		}
		set = mustOpen(t, fresh(s), mustSave(t, s, set).Name())
		blobs.takeGets()
		got, err := set.Tally(t.Context(), b, Slice(above), now)
		spared += set.Stats().Leaves - len(blobs.takeGets())
		if want := tallyByReading(t, set, b, above, now, everything); err != nil || got != want {
			rt.Fatalf("tally of %+v is %+v, %v, want %+v", b, got, err, want)
		}
		odd := func(key string) bool { return key[len(key)-1]%2 == 1 }
		got, err = mustOpen(t, fresh(s), set.Name()).TallyOf(t.Context(), b, Slice(above), now, odd)
		if want := tallyByReading(t, set, b, above, now, odd); err != nil || got != want {
			rt.Fatalf("tally of odd keys in %+v is %+v, %v, want %+v", b, got, err, want)
		}
	})
	if spared == 0 {
		t.Error("no leaf was ever counted unread: not the case to be tested")
	}
}

// drawStretch draws entries of neighbouring keys, some of them dead, or with an
// expiry just before, at and after now.
func drawStretch(rt *rapid.T, at int, now int64) []record.Entry {
	var out []record.Entry
	from := rapid.IntRange(0, 150).Draw(rt, "from key")
	mortal := rapid.IntRange(0, 3).Draw(rt, "mortal") == 0
	for i := range rapid.IntRange(0, 40).Draw(rt, "length") {
		key := fmt.Sprintf("k%03d", from+i)
		switch form := rapid.IntRange(0, 9).Draw(rt, "form"); {
		case form < 2:
			out = append(out, dead(key, at))
		case form < 4:
			// the key is left out
		default:
			e := put(key, "value", at)
			if mortal {
				e.Expiry = now + int64(rapid.IntRange(-1, 1).Draw(rt, "expiry"))
			}
			out = append(out, e)
		}
	}
	return out
}

func TestTallyReadsOnlyWhatOverlaps(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1 << 10})
	set := mustMerge(t, s, mustFlush(t, s, s.Empty(), numbered(0, 5_000, 1, 1)), Policy{}, Budget{})
	leaves := set.runs[0].Leaves
	if len(leaves) < 100 {
		t.Fatalf("%d leaves: not the case to be tested", len(leaves))
	}
	within := put(leaves[50].First+"x", "new", 2)
	between := put(leaves[70].Last+"x", "new", 2)
	for _, c := range []struct {
		name  string
		b     Bounds
		above []record.Entry
		want  int64
		reads int
	}{
		{"everything", Bounds{}, nil, 5_000, 0},
		{"whole leaves", Bounds{From: leaves[3].First, To: leaves[9].First}, nil, entriesIn(leaves[3:9]), 0},
		{"cut at both ends", Bounds{From: "k001000", To: "k004000"}, nil, 3_000, 2},
		{"a new key within a leaf", Bounds{}, []record.Entry{within}, 5_001, 1},
		{"a new key between leaves", Bounds{}, []record.Entry{between}, 5_001, 0},
		{"the first key of a leaf deleted", Bounds{}, []record.Entry{dead(leaves[60].First, 2)}, 4_999, 1},
		{"the last key of a leaf deleted", Bounds{}, []record.Entry{dead(leaves[60].Last, 2)}, 4_999, 1},
		{"nothing", Bounds{From: "z"}, nil, 0, 0},
	} {
		cold := mustOpen(t, fresh(s), mustSave(t, s, set).Name())
		b.takeGets()
		n, err := cold.Tally(t.Context(), c.b, Slice(c.above), 0)
		if got := len(b.takeGets()); n.Live != c.want || err != nil || got > c.reads {
			t.Errorf("%s: %+v, %v, want %d; %d leaves read, at most %d expected", c.name, n, err, c.want, got, c.reads)
		}
	}
}

func entriesIn(leaves []Leaf) (n int64) {
	for i := range leaves {
		n += int64(leaves[i].Entries)
	}
	return n
}

// A leaf that holds an expiry is read: what it counts depends on the time.
func TestTallyFollowsExpiry(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{})
	entries := numbered(0, 10, 1, 1)
	entries[4].Expiry = 1_000
	set := mustFlush(t, s, s.Empty(), entries)
	for now, want := range map[int64]int64{999: 10, 1_000: 9} {
		if n, err := set.Tally(t.Context(), Bounds{}, nil, now); n != (Tally{Live: want, Expired: 10 - want}) || err != nil {
			t.Errorf("at %d: %+v, %v, want %d", now, n, err, want)
		}
	}
}

func TestTallyTellsWhatItCannotRead(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1 << 10})
	set := mustFlush(t, s, s.Empty(), numbered(0, 500, 1, 1))
	missing := set.runs[0].Leaves[3]
	if err := b.Delete(t.Context(), missing.Blob); err != nil {
		t.Fatal(err)
	}
	n, err := set.Tally(t.Context(), Bounds{From: missing.First + "x"}, nil, 0)
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("tally %+v, %v, want %v", n, err, store.ErrNotFound)
	}
	if n, err = set.TallyOf(t.Context(), Bounds{}, nil, 0, everything); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("tally of all keys %+v, %v, want %v", n, err, store.ErrNotFound)
	}
}

// Who must look at every key waits for several leaves at once, and reads none
// twice.
func TestTallyOfKeysReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlobs()
		s, _ := newStore(b, Options{LeafTarget: 4 << 10, ParallelReads: 6})
		set := mustFlush(t, s, s.Empty(), numbered(0, 2000, 1, 1))
		b.hold = make(chan struct{})
		done := make(chan Tally)
		go func() {
			n, err := set.TallyOf(t.Context(), Bounds{}, nil, 0, everything)
			if err != nil {
				t.Error(err)
			}
			done <- n
		}()
		synctest.Wait()
		b.mu.Lock()
		atOnce := b.waiting
		b.mu.Unlock()
		close(b.hold)
		n := <-done
		if reads := len(b.takeGets()); n.Live != 2000 || atOnce != 4 || reads != len(set.runs[0].Leaves) {
			t.Errorf("%d live, %d leaves awaited at once, %d read of %d", n.Live, atOnce, reads, len(set.runs[0].Leaves))
		}
	})
}
