package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// Stage writes a run that no view holds yet. Until one does, its leaves are
// orphans. It is used by one goroutine.
type Stage struct {
	store *Store
	w     *writer
}

// Stage begins a run. ctx is that of all its writes.
func (s *Store) Stage(ctx context.Context) *Stage {
	return &Stage{store: s, w: s.newWriter(ctx, true)}
}

// Add adds a copy of an entry, whose key must be above the last one
// (store.ErrInvalid).
func (g *Stage) Add(e *record.Entry) error {
	if err := context.Cause(g.w.ctx); err != nil {
		return err // a write has failed: Finish will say which
	}
	return g.w.add(e)
}

// Finish returns the run, nil if nothing was added. Its leaves are durable.
func (g *Stage) Finish() (*Run, error) {
	leaves, err := g.w.wait()
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if len(leaves) == 0 {
		return nil, nil
	}
	return g.store.loose(leaves), nil
}

// Abandon waits for the writes begun and returns what went wrong first, err if
// nothing did. The blobs are left to Discard, or to the collector.
func (g *Stage) Abandon(err error) error { return g.w.abandon(err) }

// loose makes a run of leaves that no view holds.
func (s *Store) loose(leaves []Leaf) *Run {
	r := newRun(Run{Leaves: leaves, slot: noSlot})
	r.Level = s.levelOf(r.total.raw)
	return r
}

// Stack returns an unsaved view with staged runs, as one, on top of another. The
// runs must not overlap each other (store.ErrInvalid), and every entry in them
// must have a higher version than any that the view holds for its key.
func (s *Store) Stack(set *Set, staged ...*Run) (*Set, error) {
	staged = slices.Clone(staged)
	slices.SortFunc(staged, func(a, b *Run) int { return cmp.Compare(a.First(), b.First()) })
	var leaves []Leaf
	for _, r := range staged {
		leaves = append(leaves, r.Leaves...)
	}
	if !ascending(leaves) {
		return nil, fmt.Errorf("staged runs overlap: %w", store.ErrInvalid)
	}
	if len(leaves) == 0 {
		return set, nil
	}
	return set.with(set.seq, slices.Insert(slices.Clone(set.runs), 0, s.loose(leaves))), nil
}

// Loose returns the view of one staged run alone, to read it back.
func (s *Store) Loose(r *Run) *Set { return s.Empty().with(0, []*Run{r}) }

// First and Last are the bounds of the keys, both inclusive.
func (r *Run) First() string { return r.Leaves[0].First }

// Last is the greatest key.
func (r *Run) Last() string { return r.Leaves[len(r.Leaves)-1].Last }

// Entries is the number of entries, tombstones included.
func (r *Run) Entries() int { return r.total.entries }

// Overlaps reports whether a run of the view may hold a key between two, both
// inclusive. It reads nothing.
func (s *Set) Overlaps(first, last string) bool {
	for _, r := range s.runs {
		i := r.lower(max(first, r.From))
		if i < len(r.Leaves) && r.Leaves[i].First <= last {
			return true
		}
	}
	return false
}
