package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// ErrViewExpired: blobs that a view needs were replaced and collected. A new
// view has what replaced them.
var ErrViewExpired = errors.New("view expired")

// View is the state of a shard at one moment, immutable. Of transactions that were
// undecided then it shows nothing, unless it was settled. It takes no storage
// and needs no closing; it lasts as long as the collector spares its blobs, at
// least BlobGracePeriod.
type View struct {
	s     *Shard
	etag  store.ETag
	base  *run.Set
	tail  tailSnapshot
	milli int64
	moved *keyspace.SlotSet // that the shard refuses, nil if there are none
	meta  *Meta

	undecided undecidedView
	clock     clock.HLC
	batch     clock.HLC
	batches   uint64
	pinned    bool // what is missing of it has expired for good
}

// View returns the state as current as the options demand: one proof, then any
// number of reads.
func (s *Shard) View(ctx context.Context, o ReadOptions) (*View, error) {
	s.counted()
	if s.reportDue(s.cfg.Clock.Now().Mono) {
		s.report(ctx)
	}
	if err := s.current(ctx, o, func(*plan) bool { return true }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.st.barrier(); err != nil {
		return nil, err
	}
	return s.st.view(s, s.cfg.Clock.Now()), nil
}

// view freezes the state. The caller holds the lock.
func (st *state) view(s *Shard, now clock.Instant) *View {
	if st.snap == nil {
		snap := st.tail.snapshot()
		st.snap = &snap
	}
	if st.locks == nil && st.prepared.byKey.Len() > 0 {
		st.locks = st.prepared.byKey.Copy()
	}
	return &View{
		undecided: undecidedView{prepared: st.locks}, clock: st.head.Clock, batch: st.head.Batch, batches: st.head.Batches,
		s: s, etag: st.etag, base: st.base, tail: *st.snap, milli: st.milli(now),
		moved: st.head.meta.refused, meta: st.head.Meta(),
	}
}

// Moved returns the slots whose keys the view does not answer for, nil if it
// answers for all. The caller does not modify it.
func (v *View) Moved() *keyspace.SlotSet { return v.moved }

// Get returns the live entry of a key. ErrStaleRouting if its slot moved away.
func (v *View) Get(ctx context.Context, key string) (record.Entry, bool, error) {
	if v.moved != nil && v.moved.Has(keyspace.Slot(key)) {
		return record.Entry{}, false, ErrStaleRouting
	}
	v.s.heat.touch(key)
	return v.get(ctx, key)
}

// expired translates a missing blob.
func (v *View) expired(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		if v.pinned {
			return fmt.Errorf("%w: %v", ErrPinExpired, err)
		}
		return fmt.Errorf("%w: %v", ErrViewExpired, err)
	}
	return err
}

// Entries returns a cursor over the live entries in bounds, in bytewise order
// of keys, ascending or descending. Keys that moved away are left out.
func (v *View) Entries(b Bounds, reverse bool) *Cursor {
	return &Cursor{v: v, it: v.iter(b, reverse)}
}

// iter walks all entries, dead ones included.
func (v *View) iter(b Bounds, reverse bool) run.Iterator {
	rb := run.Bounds{From: b.From, To: b.To}
	it := run.MergeIterators(reverse, v.tail.iter(b, reverse), v.base.Iter(rb, reverse))
	return v.overlay(it, b, reverse)
}

// Count counts the live entries in bounds whose slots the caller owns up to;
// nil is all that did not move away. A shard that never took part in a migration
// holds nothing but what it owns: it does not ask, and counts most leaves unread.
func (v *View) Count(ctx context.Context, b Bounds, owns func(slot uint16) bool) (int64, error) {
	n, err := v.Tally(ctx, b, owns)
	return n.Live, err
}

// Tally counts likewise what else there is: tombstones, and what has expired.
func (v *View) Tally(ctx context.Context, b Bounds, owns func(slot uint16) bool) (n run.Tally, err error) {
	if len(v.undecided.within(b)) > 0 {
		return v.tallyEach(ctx, b, owns)
	}
	bounds, tail := run.Bounds{From: b.From, To: b.To}, v.tail.iter(b, false)
	if v.meta.settled() && !v.pinned {
		n, err = v.base.Tally(ctx, bounds, tail, v.milli)
	} else {
		n, err = v.base.TallyOf(ctx, bounds, tail, v.milli, func(key string) bool {
			slot := keyspace.Slot(key)
			return (v.moved == nil || !v.moved.Has(slot)) && (owns == nil || owns(slot))
		})
	}
	return n, v.expired(err)
}

// settled reports whether the shard never took part in a migration.
func (m *Meta) settled() bool {
	return !m.migrating() && len(m.Ended) == 0 && m.Moved.Empty()
}

// Cursor walks the live entries of a view.
type Cursor struct {
	v  *View
	it run.Iterator
}

// Next steps to the next entry; false at the end or on an error.
func (c *Cursor) Next(ctx context.Context) bool {
	for c.it.Next(ctx) {
		e := c.it.Entry()
		if e.Live(c.v.milli) && (c.v.moved == nil || !c.v.moved.Has(keyspace.Slot(e.Key))) {
			return true
		}
	}
	return false
}

// Entry returns the present entry, valid until the next step.
func (c *Cursor) Entry() *record.Entry { return c.it.Entry() }

// Err returns why the cursor ended early, nil at the end of the range.
// ErrViewExpired asks for a new view, to go on after the last key.
func (c *Cursor) Err() error { return c.v.expired(c.it.Err()) }

// Load reads the value of an entry of the view, from its blob if it is large.
// ErrViewExpired if the blob was collected because the entry was replaced.
func (v *View) Load(ctx context.Context, e *record.Entry) ([]byte, error) {
	value, err := v.s.Load(ctx, e)
	return value, v.expired(err)
}
