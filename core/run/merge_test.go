package run

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// blobNames returns the leaves of a view.
func blobNames(set *Set) map[string]bool {
	names := map[string]bool{}
	for _, r := range set.runs {
		for i := range r.Leaves {
			names[r.Leaves[i].Blob] = true
		}
	}
	return names
}

func TestUntouchedLeavesAreCarriedOver(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 8 << 10})
	base := mustMerge(t, s, mustFlush(t, s, s.Empty(), numbered(0, 10_000, 1, 1)), Policy{}, Budget{})
	before := blobNames(base)
	set := mustFlush(t, s, base, numbered(5_000, 5_300, 1, 2))
	b.takeGets()
	set = mustMerge(t, s, set, Policy{MergeRatio: 0.001}, Budget{})
	carried := 0
	for name := range blobNames(set) {
		if before[name] {
			carried++
		}
	}
	if len(set.runs) != 1 || len(before) < 30 {
		t.Fatalf("%d runs, %d leaves: not the case to be tested", len(set.runs), len(before))
	}
	if rewritten := len(before) - carried; rewritten > 6 {
		t.Errorf("%d of %d leaves were rewritten for a change of 3%% of the keys in one place", rewritten, len(before))
	}
	if n := len(b.takeGets()); n > 12 {
		t.Errorf("%d leaves were read", n)
	}
	model := live(numbered(0, 10_000, 1, 1))
	for _, e := range numbered(5_000, 5_300, 1, 2) {
		model[e.Key] = string(e.Value)
	}
	check(t, set, model)
}

func TestCarriedLeavesLoseTheirFilterInTheBaseOnly(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{LeafTarget: 1 << 10})
	set := mustFlush(t, s, s.Empty(), numbered(0, 100, 1, 1))
	set = mustFlush(t, s, set, numbered(100, 200, 1, 2))
	tier := Policy{MaxRunsPerTier: 2}
	next := mustMerge(t, s, set.with(2, append(slices.Clone(set.runs), newRun(Run{Base: true, slot: noSlot, Leaves: bigBase()}))), tier, Budget{})
	for _, l := range next.runs[0].Leaves {
		if len(l.Filter) == 0 {
			t.Errorf("leaf %q of a young run has no filter", l.Blob)
		}
	}
	set = mustMerge(t, s, set, Policy{}, Budget{})
	for _, l := range set.runs[0].Leaves {
		if len(l.Filter) > 0 {
			t.Errorf("leaf %q of the base has a filter", l.Blob)
		}
	}
}

// bigBase stands for a base too large for a merge into it to be due.
func bigBase() []Leaf {
	return []Leaf{{Blob: "t/0/leaf/base", Summary: leaf.Summary{First: "a", Last: "z", Entries: 1, Raw: 1 << 40}}}
}

func TestSmallLeavesAreJoined(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{LeafTarget: 8 << 10})
	set := s.Empty()
	for i := range 40 {
		set = mustFlush(t, s, set, numbered(i*20, i*20+20, 1, i))
	}
	set = mustMerge(t, s, set, Policy{}, Budget{Entries: 7})
	leaves := set.runs[0].Leaves
	if len(set.runs) != 1 || len(leaves) > 8 {
		t.Errorf("%d runs, %d leaves of 8 KiB for %d KiB", len(set.runs), len(leaves), set.Stats().Raw>>10)
	}
	model := map[string]string{}
	for i := range 40 {
		maps.Copy(model, live(numbered(i*20, i*20+20, 1, i)))
	}
	check(t, set, model)
}

func TestEntryLargerThanALeafStandsAlone(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{LeafTarget: 4 << 10})
	entries := numbered(0, 30, 1, 1)
	entries[10].Value = make([]byte, 20<<10)
	set := mustFlush(t, s, s.Empty(), entries)
	alone := false
	for _, l := range set.runs[0].Leaves {
		alone = alone || l.Entries == 1 && l.First == entries[10].Key
	}
	if !alone {
		t.Error("the large entry shares its leaf")
	}
	check(t, mustMerge(t, s, set, Policy{}, Budget{}), live(entries))
}

func TestMergeIntoTheBaseDropsWhatIsPastGrace(t *testing.T) {
	const grace = time.Hour
	expiring := func(key string, expiry int64) record.Entry {
		e := put(key, "v", 1)
		e.Expiry = expiry
		return e
	}
	start := newManual().Now().Milli()
	entries := []record.Entry{
		dead("a-dead", 0), expiring("b-expired", start-1), expiring("c-expires", start+int64(30*time.Minute/time.Millisecond)),
		put("d-live", "v", 1), expiring("e-far", math.MaxInt64),
	}
	for _, tc := range []struct {
		name string
		wait time.Duration
		want string
	}{
		{"within grace", 59 * time.Minute, "a b c d e"},
		{"tombstone and expired entry past grace", grace, "c d e"},
		{"everything past grace", grace + 31*time.Minute, "d e"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, clk := newStore(newBlobs(), Options{})
			set := mustFlush(t, s, s.Empty(), entries)
			clk.advance(tc.wait)
			set = mustMerge(t, s, set, Policy{TombstoneGrace: grace}, Budget{})
			if got := initials(t, set); got != tc.want {
				t.Errorf("kept %q, want %q", got, tc.want)
			}
		})
	}
}

// initials returns the first letters of the keys of a view.
func initials(t *testing.T, set *Set) string {
	t.Helper()
	var out []string
	for _, e := range contents(t, set.Iter(Bounds{}, false)) {
		out = append(out, e.Key[:1])
	}
	return strings.Join(out, " ")
}

func TestWhatAMergeDroppedStaysGoneBeforeItEnds(t *testing.T) {
	s, clk := newStore(newBlobs(), Options{})
	base := mustMerge(t, s, mustFlush(t, s, s.Empty(), numbered(0, 100, 1, 1)), Policy{}, Budget{})
	set := mustFlush(t, s, base, []record.Entry{dead("k000001", 2)})
	clk.advance(time.Hour)
	set, more, err := s.MergeStep(t.Context(), set, Policy{MergeRatio: 0.0001}, Budget{Entries: 3})
	if err != nil || !more || len(set.runs) != 3 {
		t.Fatalf("%d runs, more=%v, %v: not the case to be tested", len(set.runs), more, err)
	}
	// The tombstone's leaf is gone, the leaf of the base that it hid is not.
	if e, ok, err := set.Get(t.Context(), "k000001"); ok || err != nil {
		t.Errorf("deleted key is back: %+v, %v", e, err)
	}
	if got := initials(t, set); strings.Count(got, "k") != 99 {
		t.Errorf("%d entries, want 99", strings.Count(got, "k"))
	}
}

func TestMergeOfYoungRunsKeepsTombstones(t *testing.T) {
	s, clk := newStore(newBlobs(), Options{})
	base := mustMerge(t, s, mustFlush(t, s, s.Empty(), numbered(0, 1000, 1, 1)), Policy{}, Budget{})
	set := mustFlush(t, s, base, []record.Entry{dead("k000001", 2)})
	set = mustFlush(t, s, set, []record.Entry{dead("k000002", 3)})
	clk.advance(1000 * time.Hour)
	set = mustMerge(t, s, set, Policy{MaxRunsPerTier: 2}, Budget{})
	if len(set.runs) != 2 || set.runs[0].Level != 1 {
		t.Fatalf("%d runs: not the case to be tested", len(set.runs))
	}
	model := live(numbered(0, 1000, 1, 1))
	delete(model, "k000001")
	delete(model, "k000002")
	check(t, set, model)
}

func TestMergeDropsWhatIsNotKept(t *testing.T) {
	odd := func(key string) bool { return key[len(key)-1]%2 == 1 }
	for _, tc := range []struct {
		name string
		keep func(string) bool
		want func(record.Entry) bool
	}{
		{"odd keys", odd, func(e record.Entry) bool { return odd(e.Key) }},
		{"low keys", func(k string) bool { return k < "k000500" }, func(e record.Entry) bool { return e.Key < "k000500" }},
		{"everything", func(string) bool { return true }, func(record.Entry) bool { return true }},
		{"nothing", func(string) bool { return false }, func(record.Entry) bool { return false }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, _ := newStore(newBlobs(), Options{LeafTarget: 2 << 10})
			all := numbered(0, 1000, 1, 1)
			set := mustFlush(t, s, s.Empty(), all)
			set = mustMerge(t, s, set, Policy{Keep: tc.keep}, Budget{Bytes: 4 << 10})
			want := live(slices.DeleteFunc(slices.Clone(all), func(e record.Entry) bool { return !tc.want(e) }))
			check(t, set, want)
			if len(want) == 0 && len(set.runs) != 0 {
				t.Errorf("%d runs hold nothing", len(set.runs))
			}
		})
	}
}

func TestMostlyDeadBaseIsRewritten(t *testing.T) {
	s, clk := newStore(newBlobs(), Options{LeafTarget: 2 << 10})
	entries := numbered(0, 1000, 1, 1)
	for i := range 400 {
		entries[i].Expiry = clk.Now().Milli() + 1000
	}
	p := Policy{TombstoneGrace: time.Minute}
	set := mustMerge(t, s, mustFlush(t, s, s.Empty(), entries), p, Budget{})
	if s.MergeDue(set, p) {
		t.Fatal("a merge is due before anything can be dropped")
	}
	clk.advance(2 * time.Minute)
	if !s.MergeDue(set, p) {
		t.Fatal("no merge is due though much can be dropped")
	}
	set = mustMerge(t, s, set, p, Budget{Bytes: 1})
	if st := set.Stats(); st.Entries != 600 {
		t.Errorf("%d entries remain, want 600", st.Entries)
	}
}

func TestStepsStayWithinTheirBudget(t *testing.T) {
	s, _ := newStore(newBlobs(), Options{LeafTarget: 4 << 10})
	set := mustFlush(t, s, s.Empty(), numbered(0, 10_000, 2, 1))
	set = mustFlush(t, s, set, numbered(1, 10_000, 2, 2))
	steps := 0
	for more := true; more; steps++ {
		before := 0
		if set.runs[0].Inputs > 0 {
			before = set.runs[0].total.entries
		}
		next, again, err := s.MergeStep(t.Context(), set, Policy{}, Budget{Bytes: 32 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if grown := next.runs[0].total.entries - before; grown > 700 {
			t.Fatalf("a step of 32 KiB merged %d entries", grown)
		}
		set, more = next, again
	}
	if steps < 10 {
		t.Errorf("merged in %d steps", steps)
	}
	check(t, set, merged(numbered(0, 10_000, 2, 1), numbered(1, 10_000, 2, 2)))
}

func merged(parts ...[]record.Entry) map[string]string {
	return live(slices.Concat(parts...))
}

// ticking is a clock that moves by a millisecond whenever it is read.
type ticking struct{ *manual }

func (c ticking) Now() clock.Instant {
	c.advance(time.Millisecond)
	return c.manual.Now()
}

func TestStepEndsWhenItsTimeIsUp(t *testing.T) {
	s, clk := newStore(newBlobs(), Options{LeafTarget: 4 << 10})
	s.Clock = ticking{clk}
	set := mustFlush(t, s, s.Empty(), numbered(0, 20_000, 2, 1))
	set = mustFlush(t, s, set, numbered(1, 20_000, 2, 2))
	next, more, err := s.MergeStep(t.Context(), set, Policy{}, Budget{Time: 5 * time.Millisecond})
	if err != nil || !more || next.runs[0].Inputs != 2 {
		t.Fatalf("step did not stop in the middle: more=%v, %v", more, err)
	}
	set = mustMerge(t, s, next, Policy{}, Budget{Time: 5 * time.Millisecond})
	check(t, set, merged(numbered(0, 20_000, 2, 1), numbered(1, 20_000, 2, 2)))
}

func TestMergeReadsItsLargestInputAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlobs()
		s, _ := newStore(b, Options{LeafTarget: 4 << 10, ParallelReads: 6})
		set := mustFlush(t, s, s.Empty(), numbered(0, 2000, 1, 1))
		set = mustFlush(t, s, set, numbered(0, 2000, 100, 2))
		b.hold = make(chan struct{})
		done := make(chan error)
		var next *Set
		go func() {
			var err error
			next, _, err = s.MergeStep(t.Context(), set, Policy{}, Budget{Bytes: 16 << 10})
			done <- err
		}()
		synctest.Wait()
		one := b.waiting // the leaf of the small run, whose key comes first
		close(b.hold)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		gets := b.takeGets()
		seen := map[string]bool{}
		for _, name := range gets {
			if seen[name] {
				t.Errorf("leaf %q was read twice", name)
			}
			seen[name] = true
		}
		if one != 1 || len(gets) < 6 || len(gets) > 14 {
			t.Errorf("%d reads at first, %d in all", one, len(gets))
		}
		b.hold = nil
		model := live(numbered(0, 2000, 1, 1))
		maps.Copy(model, live(numbered(0, 2000, 100, 2)))
		check(t, next, model)
	})
}

func TestFailedStepChangesNothing(t *testing.T) {
	boom := fmt.Errorf("boom: %w", store.ErrInvalid)
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1 << 10})
	set := mustFlush(t, s, s.Empty(), numbered(0, 500, 2, 1))
	set = mustFlush(t, s, set, numbered(1, 500, 2, 2))
	model := merged(numbered(0, 500, 2, 1), numbered(1, 500, 2, 2))
	for fail := 1; ; fail++ {
		left := fail
		b.fault = func(string) (error, bool) {
			left--
			if left == 0 {
				return boom, false
			}
			return nil, false
		}
		next, _, err := s.MergeStep(t.Context(), set, Policy{}, Budget{})
		b.fault = nil
		check(t, set, model)
		if err == nil {
			if fail < 5 {
				t.Fatalf("only %d writes", fail)
			}
			check(t, next, model)
			return
		}
		if !errors.Is(err, store.ErrInvalid) || next != nil {
			t.Fatalf("write %d failed: %v, %v", fail, next, err)
		}
	}
}

func TestFlushReportsWhatGoesWrong(t *testing.T) {
	boom := errors.New("boom")
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1})
	flush := func(it Iterator) error {
		set, err := s.Flush(t.Context(), s.Empty(), 1, it)
		if err != nil && set != nil {
			t.Error("a failed flush yields a view")
		}
		return err
	}
	if err := flush(Slice([]record.Entry{put("b", "", 1), put("a", "", 1)})); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("keys out of order: error %v, want ErrInvalid", err)
	}
	if err := flush(Slice([]record.Entry{put("a", "", 1), put("a", "", 1)})); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("key twice: error %v, want ErrInvalid", err)
	}
	if err := flush(&failing{rest: numbered(0, 5, 1, 1), err: boom}); !errors.Is(err, boom) {
		t.Errorf("failing iterator: error %v, want boom", err)
	}
	b.fault = func(string) (error, bool) { return store.ErrTooLarge, false }
	if err := flush(Slice(numbered(0, 100, 1, 1))); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("failing store: error %v, want ErrTooLarge", err)
	}
	b.fault = nil
	set := mustFlush(t, s, s.Empty(), nil)
	if set.Seq() != 1 || len(set.Runs()) != 0 {
		t.Errorf("empty flush covers %d with %d runs", set.Seq(), len(set.Runs()))
	}
}

func TestDiscardLeavesTheOriginAndLargeValues(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{LeafTarget: 1 << 10})
	entries := numbered(0, 300, 1, 1)
	entries[7].Value, entries[7].Ref = nil, &record.Ref{Blob: "t/0/value/7", Size: 9}
	b.data["t/0/value/7"] = []byte("elsewhere")
	origin := mustSave(t, s, mustFlush(t, s, s.Empty(), entries))
	kept := len(b.data)
	lost := mustMerge(t, s, mustFlush(t, s, origin, numbered(100, 150, 1, 2)), Policy{}, Budget{})
	lost = mustSave(t, s, lost)
	if err := s.Discard(t.Context(), origin, lost); err != nil {
		t.Fatal(err)
	}
	checkShape(t, origin)
	if len(b.data) > kept+2 { // leaves that a later step replaced are left to the collector
		t.Errorf("%d blobs remain of %d", len(b.data), kept)
	}
	if err := s.Discard(t.Context(), origin, lost); err != nil {
		t.Errorf("discarding again: %v", err)
	}
}

func TestBlobsNameLargeValues(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	b.data["t/0/value/7"] = []byte("elsewhere")
	e := record.Entry{Key: "k", Ref: &record.Ref{Blob: "t/0/value/7", Size: 9}}
	set := mustSave(t, s, mustFlush(t, s, s.Empty(), []record.Entry{e}))
	got := slices.Sorted(set.Blobs())
	want := []string{set.runs[0].Leaves[0].Blob, set.Name(), "t/0/value/7"}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range set.Blobs() {
		break // must not panic
	}
}
