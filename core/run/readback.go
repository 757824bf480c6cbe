package run

import (
	"context"
)

// ReadBack walks the entries of a staged run once, in order of keys, reading so
// many leaves ahead and keeping none in the cache. Its reads end with ctx; the
// function ends them earlier, and is to be called in any case.
func (s *Store) ReadBack(ctx context.Context, r *Run, depth int) (Iterator, func()) {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{read: s.pageOnce, leaves: r.Leaves, depth: depth, pending: map[int]*fetch{}}
	c := newCursor(s.pageOnce, r, Bounds{}, false)
	c.ahead = a
	m := newMerger(false)
	m.add(c)
	return &readBack{merger: m, ctx: ctx}, func() {
		cancel()
		a.wait()
	}
}

// readBack is an iterator whose reads have a context of their own.
type readBack struct {
	*merger
	ctx context.Context
}

// Next implements Iterator.
func (it *readBack) Next(context.Context) bool { return it.merger.Next(it.ctx) }
