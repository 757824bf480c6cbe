package run

import (
	"context"
	"fmt"
	"slices"
)

// Flush writes entries, in ascending key order and at most one for each key, as
// a new run, and returns the view with it on top, which covers the log up to
// seq. Each entry must have a higher version than any that the view holds for
// its key. The leaves are durable on return; the view is not until Save. Keys
// out of order are store.ErrInvalid. The view given stays as it is, also on
// error.
func (s *Store) Flush(ctx context.Context, set *Set, seq uint64, entries Iterator) (*Set, error) {
	w := s.newWriter(ctx, true)
	for entries.Next(w.ctx) {
		if err := w.add(entries.Entry()); err != nil {
			return nil, w.abandon(fmt.Errorf("flush: %w", err))
		}
	}
	if err := entries.Err(); err != nil {
		return nil, w.abandon(fmt.Errorf("flush: %w", err))
	}
	leaves, err := w.wait()
	if err != nil {
		return nil, fmt.Errorf("flush: %w", err)
	}
	runs := slices.Clone(set.runs)
	if len(leaves) > 0 {
		r := newRun(Run{Leaves: leaves, slot: noSlot})
		r.Level = s.levelOf(r.total.raw)
		runs = slices.Insert(runs, 0, r)
	}
	return set.with(seq, runs), nil
}

// levelOf returns the level of a flushed run of that size.
func (s *Store) levelOf(raw int64) int {
	level := 0
	for size := raw / TierFactor; size >= s.Options.tierUnit(); size /= TierFactor {
		level++
	}
	return level
}
