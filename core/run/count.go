package run

import (
	"context"

	"github.com/latticekv/lattice/core/record"
)

// Tally says what a range of a view holds. Every key is counted once, by its
// newest entry.
type Tally struct {
	// Live are live entries, Tombstones deleted ones that are remembered, and
	// Expired those past their expiry that are stored still.
	Live, Tombstones, Expired int64
}

// Tally counts the entries of a range at a Unix millisecond. above, unless nil,
// yields in ascending order entries of the range that are newer than all of the
// view.
//
// Leaves are taken from the index where that is exact: a leaf wholly within the
// range, none of whose entries expires, and whose keys nothing newer or older
// overlaps, is not read. The others are read as by Iter, and so are the errors.
func (s *Set) Tally(ctx context.Context, bounds Bounds, above Iterator, nowMilli int64) (Tally, error) {
	it := s.iter(bounds, false, above)
	it.readFirst(ctx)
	var t Tally
	for it.step(ctx) && len(it.heap) > 0 && it.takeLeaves(&t) {
		if err := it.heap[0].source.entry(ctx, &it.current); !it.fail(err) {
			break
		}
		t.add(&it.current, nowMilli)
	}
	return t, it.err
}

// TallyOf is Tally of the keys that keep admits alone. It must look at every key,
// and reads the leaves ahead.
func (s *Set) TallyOf(ctx context.Context, bounds Bounds, above Iterator, nowMilli int64, keep func(key string) bool) (Tally, error) {
	ctx, cancel := context.WithCancel(ctx)
	it := s.iter(bounds, false, above)
	reads := it.readAhead(s.store)
	defer reads.wait()
	defer cancel()
	var t Tally
	for it.Next(ctx) {
		if keep(it.Entry().Key) {
			t.add(it.Entry(), nowMilli)
		}
	}
	return t, it.Err()
}

func (t *Tally) add(e *record.Entry, nowMilli int64) {
	switch {
	case e.Live(nowMilli):
		t.Live++
	case e.Tombstone:
		t.Tombstones++
	default:
		t.Expired++
	}
}

// takeLeaves moves over the leaves at whose beginning the merger stands and
// which it need not read, counts them, and reports whether anything is left.
func (m *merger) takeLeaves(t *Tally) bool {
	for len(m.heap) > 0 {
		c, ok := m.heap[0].source.(*cursor)
		if !ok {
			return true
		}
		l, ok := c.whole()
		if !ok || l.Expiring > 0 || !c.covers(l) {
			return true
		}
		if other, ok := m.second(); ok && other <= l.Last {
			return true
		}
		t.Live += int64(l.Entries - l.Tombstones)
		t.Tombstones += int64(l.Tombstones)
		m.settleTop(c.skipLeaf())
	}
	return false
}

// covers reports whether the range reaches to the end of a leaf at whose first
// entry the cursor stands.
func (c *cursor) covers(l *Leaf) bool { return c.hi == "" || l.Last < c.hi }

// readAhead makes the cursor with the most leaves read them ahead. The caller
// ends the context of the reads, and then waits for them.
func (it *setIterator) readAhead(s *Store) *ahead {
	a := &ahead{read: s.page, depth: s.Options.parallelReads() / 2, pending: map[int]*fetch{}}
	var large *cursor
	for _, src := range it.sources {
		if c, ok := src.(*cursor); ok && (large == nil || len(c.leaves) > len(large.leaves)) {
			large = c
		}
	}
	if large != nil {
		a.leaves, large.ahead = large.leaves, a
	}
	return a
}
