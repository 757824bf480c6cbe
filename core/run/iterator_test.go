package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/record"
)

// failing yields entries and then an error.
type failing struct {
	rest    []record.Entry
	current record.Entry
	err     error
}

func (f *failing) Next(context.Context) bool {
	if len(f.rest) == 0 {
		return false
	}
	f.current, f.rest = f.rest[0], f.rest[1:]
	return true
}

func (f *failing) Entry() *record.Entry { return &f.current }

func (f *failing) Err() error {
	if len(f.rest) == 0 {
		return f.err
	}
	return nil
}

func TestMergedIteratorsYieldTheNewestOfEachKey(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		reverse := rapid.Bool().Draw(rt, "reverse")
		order := func(a, b record.Entry) int {
			if reverse {
				a, b = b, a
			}
			return cmp.Compare(a.Key, b.Key)
		}
		newest := map[string]record.Entry{}
		var its []Iterator
		for age := range rapid.IntRange(0, 6).Draw(rt, "inputs") {
			var entries []record.Entry
			for _, k := range rapid.SliceOfDistinct(rapid.IntRange(0, 30), rapid.ID[int]).Draw(rt, "keys") {
				e := put(fmt.Sprintf("%02d", k), fmt.Sprint(age), 100-age)
				entries = append(entries, e)
				if _, ok := newest[e.Key]; !ok {
					newest[e.Key] = e
				}
			}
			slices.SortFunc(entries, order)
			its = append(its, Slice(entries))
		}
		var want []record.Entry
		for _, e := range newest {
			want = append(want, e)
		}
		slices.SortFunc(want, order)
		got := contents(t, MergeIterators(reverse, its...))
		if !slices.EqualFunc(got, want, func(a, b record.Entry) bool { return a.Key == b.Key && a.Version == b.Version }) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestMergedIteratorsPassErrorsOn(t *testing.T) {
	boom := errors.New("boom")
	for n := range 3 {
		it := MergeIterators(false, Slice(numbered(0, 10, 1, 1)), &failing{rest: numbered(0, n, 1, 1), err: boom})
		yielded := 0
		for it.Next(t.Context()) {
			yielded++
		}
		if !errors.Is(it.Err(), boom) || yielded > n {
			t.Errorf("%d entries before the error: %d yielded, error %v", n, yielded, it.Err())
		}
		if it.Next(t.Context()) {
			t.Error("iteration goes on after an error")
		}
	}
}

func TestIterationEndsForGood(t *testing.T) {
	it := MergeIterators(false, Slice(numbered(0, 2, 1, 1)))
	if got := contents(t, it); len(got) != 2 {
		t.Fatalf("%d entries, want 2", len(got))
	}
	for range 3 {
		if it.Next(t.Context()) || it.Err() != nil {
			t.Error("iteration goes on after its end")
		}
	}
}
