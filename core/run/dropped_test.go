package run

import (
	"testing"
	"time"

	"github.com/latticekv/lattice/core/record"
)

// What a merge replaces is remembered by the manifests that follow, for the
// grace period: its leaves, and the manifest itself.
func TestManifestsRememberWhatTheyDropped(t *testing.T) {
	const grace = 10 * time.Minute
	s, now := newStore(newBlobs(), Options{})
	save := func(old, set *Set) *Set {
		t.Helper()
		saved, err := s.Save(t.Context(), old, set, grace)
		if err != nil {
			t.Fatal(err)
		}
		return mustOpen(t, fresh(s), saved.Name())
	}
	entries := func(at int) []record.Entry { return []record.Entry{put("a", "1", at), put("b", "2", at)} }
	first := save(s.Empty(), mustFlush(t, s, s.Empty(), entries(1)))
	if n := len(first.Dropped()); n != 0 {
		t.Fatalf("the first view dropped %d blobs", n)
	}
	now.advance(time.Minute)
	second := save(first, mustMerge(t, s, mustFlush(t, s, first, entries(2)), Policy{}, Budget{}))
	dropped := map[string]int64{}
	for _, d := range second.Dropped() {
		dropped[d.Blob] = d.At
	}
	for name := range first.Blobs() {
		if dropped[name] != now.Now().Milli() {
			t.Errorf("%s of the replaced view is not remembered: %v", name, dropped)
		}
		delete(dropped, name)
	}
	if len(dropped) != 0 {
		t.Errorf("remembered beside it: %v", dropped)
	}
	for _, after := range []time.Duration{grace - time.Second, 2 * time.Second} {
		now.advance(after)
		next := save(second, mustFlush(t, s, second, entries(3)))
		kept := map[string]bool{}
		for _, d := range next.Dropped() {
			kept[d.Blob] = true
		}
		if within := after > time.Minute; kept[first.Name()] != within || !kept[second.Name()] {
			t.Errorf("%s later the first is remembered: %v, the second: %v", after, kept[first.Name()], kept[second.Name()])
		}
	}
}
