package shard

import (
	"context"

	"github.com/tidwall/btree"

	"github.com/latticekv/lattice/core/record"
)

// tail is the sorted in-memory state of the log rows above the checkpoint: the
// newest entry of each key they touch. It is guarded by the shard's lock;
// snapshots of it are immutable.
type tail struct {
	items btree.Map[string, *tailItem]
	// marks are the rows in it, oldest first, to know its size after a
	// checkpoint has taken some away.
	marks []rowMark
	bytes int64
}

// tailItem is an entry with the row that wrote it. It is immutable.
type tailItem struct {
	record.Entry
	seq uint64
}

// rowMark is the size of one row.
type rowMark struct {
	seq   uint64
	bytes int64
}

// tailSnapshot is the tail at one moment.
type tailSnapshot struct{ items *btree.Map[string, *tailItem] }

func (t *tail) get(key string) (*tailItem, bool) { return t.items.Get(key) }

// set records that row seq left the key in this state.
func (t *tail) set(seq uint64, e *record.Entry) {
	t.items.Set(e.Key, &tailItem{Entry: *e, seq: seq})
}

// mark records that the tail holds row seq, of so many stored bytes.
func (t *tail) mark(seq uint64, bytes int) {
	t.marks = append(t.marks, rowMark{seq: seq, bytes: int64(bytes)})
	t.bytes += int64(bytes)
}

// rows returns the number of log rows the tail stands for.
func (t *tail) rows() int { return len(t.marks) }

// tombstones counts the keys that are deleted.
func (t *tail) tombstones() (n int64) {
	t.items.Scan(func(_ string, it *tailItem) bool {
		if it.Tombstone {
			n++
		}
		return true
	})
	return n
}

// snapshot returns the present state; it costs a copy of the nodes that are
// changed later.
func (t *tail) snapshot() tailSnapshot { return tailSnapshot{items: t.items.Copy()} }

// above returns a tail without what rows up to seq wrote last.
func (t *tail) above(seq uint64) *tail {
	kept := &tail{}
	t.items.Scan(func(key string, it *tailItem) bool {
		if it.seq > seq {
			kept.items.Set(key, it)
		}
		return true
	})
	for _, m := range t.marks {
		if m.seq > seq {
			kept.marks = append(kept.marks, m)
			kept.bytes += m.bytes
		}
	}
	return kept
}

// iter returns the entries in bounds, tombstones included.
func (s tailSnapshot) iter(b Bounds, reverse bool) *tailIterator {
	return &tailIterator{it: s.items.Iter(), bounds: b, reverse: reverse}
}

// tailIterator walks a snapshot. It implements run.Iterator.
type tailIterator struct {
	it      btree.MapIter[string, *tailItem]
	bounds  Bounds
	reverse bool
	started bool
	entry   *record.Entry
}

// Next steps to the next entry in order.
func (t *tailIterator) Next(context.Context) bool {
	if !t.advance() || !t.bounds.Contains(t.it.Key()) {
		t.entry = nil
		return false
	}
	t.entry = &t.it.Value().Entry
	return true
}

func (t *tailIterator) advance() bool {
	if t.started {
		if t.reverse {
			return t.it.Prev()
		}
		return t.it.Next()
	}
	t.started = true
	if t.reverse {
		return t.seekLast()
	}
	return t.it.Seek(t.bounds.From)
}

// seekLast finds the greatest key below the upper bound.
func (t *tailIterator) seekLast() bool {
	if t.bounds.To == "" || !t.it.Seek(t.bounds.To) {
		return t.it.Last()
	}
	return t.it.Prev()
}

// Entry returns the present entry.
func (t *tailIterator) Entry() *record.Entry { return t.entry }

// Err returns nil: memory does not fail.
func (t *tailIterator) Err() error { return nil }
