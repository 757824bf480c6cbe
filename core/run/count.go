package run

import "context"

// Count counts the live entries of a range at a Unix millisecond. above, unless
// nil, yields in ascending order entries of the range that are newer than all of
// the view. Leaves are taken from the index where that is exact: a leaf wholly
// within the range, none of whose entries expires, and whose keys nothing newer
// or older overlaps, is not read. The others are read as by Iter, and so are the
// errors.
func (s *Set) Count(ctx context.Context, bounds Bounds, above Iterator, nowMilli int64) (int64, error) {
	it := s.iter(bounds, false, above)
	it.readFirst(ctx)
	var n int64
	for it.step(ctx) && len(it.heap) > 0 {
		whole, more := it.takeLeaves()
		n += whole
		if !more {
			break
		}
		top := it.heap[0].source
		if err := top.entry(ctx, &it.current); !it.fail(err) {
			break
		}
		if it.current.Live(nowMilli) {
			n++
		}
	}
	return n, it.err
}

// takeLeaves moves over the leaves at whose beginning the merger stands and
// which it need not read, and returns the number of their live entries, and
// whether anything is left.
func (m *merger) takeLeaves() (n int64, more bool) {
	for len(m.heap) > 0 {
		c, ok := m.heap[0].source.(*cursor)
		if !ok {
			return n, true
		}
		l, ok := c.whole()
		if !ok || l.Expiring > 0 || !c.covers(l) {
			return n, true
		}
		if other, ok := m.second(); ok && other <= l.Last {
			return n, true
		}
		n += int64(l.Entries - l.Tombstones)
		m.settleTop(c.skipLeaf())
	}
	return n, false
}

// covers reports whether the range reaches to the end of a leaf at whose first
// entry the cursor stands.
func (c *cursor) covers(l *Leaf) bool { return c.hi == "" || l.Last < c.hi }
