package shard

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
)

// PendingError answers a read of a key of which transactions have prepared
// mutations that are not decided here. Who finds out how they ended has the
// answer at hand: see Settle.
type PendingError struct {
	// Prepared are the mutations, one as a rule.
	Prepared []Prepared
	// Current is the entry of the key without them, dead or alive; Exists says
	// whether there is one.
	Current record.Entry
	Exists  bool
	// Milli is the time for expiry, a Unix millisecond.
	Milli int64
	// At is when memory was looked at.
	At clock.Instant
}

// Error implements error.
func (e *PendingError) Error() string { return "the key is part of an undecided transaction" }

// Outcomes are the transactions of which it is known that they were committed,
// with the version of their entries. Of one that is not among them nothing is
// seen.
type Outcomes map[record.ID]clock.Version

// committed returns the newest entry that the outcomes make of mutations of one
// key, and whether they make any.
func (o Outcomes) committed(prepared []Prepared) (record.Entry, bool) {
	var (
		newest record.Entry
		found  bool
	)
	for i := range prepared {
		v, ok := o[prepared[i].Tx]
		if ok && (!found || v.Compare(newest.Version) > 0) {
			newest, found = prepared[i].Entry, true
			newest.Version = v
		}
	}
	return newest, found
}

// Settle returns the live entry of the key under the outcomes, and whether there
// is one.
func (e *PendingError) Settle(o Outcomes) (record.Entry, bool) {
	entry, exists := e.Current, e.Exists
	if c, ok := o.committed(e.Prepared); ok && (!exists || c.Version.Compare(entry.Version) > 0) {
		entry, exists = c, true
	}
	return entry, exists && entry.Live(e.Milli)
}

// undecidedView is what a view holds of undecided transactions.
type undecidedView struct {
	// prepared is nil if there is none.
	prepared *btree.Map[string, []Prepared]
	// entries are what the outcomes make of them, in order of keys.
	entries []record.Entry
}

// Undecided returns the transactions with mutations of keys in bounds that are
// not decided here.
func (v *View) Undecided(b Bounds) []record.ID {
	if v.undecided.prepared == nil {
		return nil
	}
	var out []record.ID
	v.undecided.prepared.Ascend(b.From, func(key string, at []Prepared) bool {
		if v.moved != nil && v.moved.Has(keyspace.Slot(key)) {
			return b.To == "" || key < b.To
		}
		for i := range at {
			if b.Contains(key) && !slices.Contains(out, at[i].Tx) {
				out = append(out, at[i].Tx)
			}
		}
		return b.To == "" || key < b.To
	})
	return out
}

// PreparedBy returns how many keys of slots that the caller owns up to a
// transaction has prepared and not decided here.
func (v *View) PreparedBy(tx record.ID, owns func(slot uint16) bool) (n int) {
	if v.undecided.prepared == nil {
		return 0
	}
	v.undecided.prepared.Scan(func(key string, at []Prepared) bool {
		for i := range at {
			if at[i].Tx == tx && owns(keyspace.Slot(key)) {
				n++
			}
		}
		return true
	})
	return n
}

// Settle returns the view under the outcomes of transactions: what was committed
// is seen with its version, and of the others nothing.
func (v *View) Settle(o Outcomes) *View {
	n := *v
	n.undecided.entries = nil
	if v.undecided.prepared == nil || len(o) == 0 {
		return &n
	}
	v.undecided.prepared.Scan(func(_ string, at []Prepared) bool {
		if e, ok := o.committed(at); ok {
			n.undecided.entries = append(n.undecided.entries, e)
		}
		return true
	})
	return &n
}

// Clock returns a time that no later write of the shard has a version below.
func (v *View) Clock() clock.HLC { return v.clock }

// Batch returns the highest version of what the view holds of transactions.
func (v *View) Batch() clock.HLC { return v.batch }

// Batches returns a number that is another whenever there is more of that.
func (v *View) Batches() uint64 { return v.batches }

// Batches is View.Batches of what memory knows now, which may be out of date: 0
// if it knows nothing of the shard.
func (s *Shard) Batches() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.st == nil {
		return 0
	}
	return s.st.head.Batches
}

// within returns the settled entries in bounds.
func (u *undecidedView) within(b Bounds) []record.Entry {
	from, _ := slices.BinarySearchFunc(u.entries, b.From, compareKey)
	to := len(u.entries)
	if b.To != "" {
		to, _ = slices.BinarySearchFunc(u.entries, b.To, compareKey)
	}
	return u.entries[min(from, to):to]
}

func compareKey(e record.Entry, key string) int {
	switch {
	case e.Key < key:
		return -1
	case e.Key > key:
		return 1
	}
	return 0
}

// settledIterator lays settled entries over others: of one key the greater
// version is seen. Both are in the same order.
type settledIterator struct {
	settled []record.Entry
	under   run.Iterator
	reverse bool
	started bool
	more    bool // under stands at an entry
	over    bool // the present entry is settled[0]
	both    bool // and that of under has the same key
}

// overlay lays the settled entries of a view over an iterator.
func (v *View) overlay(it run.Iterator, b Bounds, reverse bool) run.Iterator {
	settled := v.undecided.within(b)
	if len(settled) == 0 {
		return it
	}
	if reverse {
		settled = slices.Clone(settled)
		slices.Reverse(settled)
	}
	return &settledIterator{settled: settled, under: it, reverse: reverse}
}

// Next implements run.Iterator.
func (s *settledIterator) Next(ctx context.Context) bool {
	if !s.started {
		s.started, s.more = true, s.under.Next(ctx)
	} else {
		s.leave(ctx)
	}
	if s.under.Err() != nil {
		return false
	}
	s.both = false
	switch {
	case len(s.settled) == 0:
		s.over = false
		return s.more
	case !s.more:
		s.over = true
		return true
	}
	a, b := &s.settled[0], s.under.Entry()
	s.both = a.Key == b.Key
	if s.both {
		s.over = a.Version.Compare(b.Version) > 0
	} else {
		s.over = (a.Key < b.Key) != s.reverse
	}
	return true
}

// leave moves past the present entry.
func (s *settledIterator) leave(ctx context.Context) {
	if s.over || s.both {
		s.settled = s.settled[1:]
	}
	if !s.over || s.both {
		s.more = s.under.Next(ctx)
	}
}

// Entry implements run.Iterator.
func (s *settledIterator) Entry() *record.Entry {
	if s.over {
		return &s.settled[0]
	}
	return s.under.Entry()
}

// Err implements run.Iterator.
func (s *settledIterator) Err() error { return s.under.Err() }

// get looks a key up in a view, settled entries included.
func (v *View) get(ctx context.Context, key string) (record.Entry, bool, error) {
	l := looked{base: v.base, milli: v.milli}
	if it, ok := v.tail.items.Get(key); ok {
		l.entry = &it.Entry
	}
	e, ok, err := l.find(ctx, key)
	if err != nil {
		return e, false, v.expired(err)
	}
	if i, found := slices.BinarySearchFunc(v.undecided.entries, key, compareKey); found {
		if c := &v.undecided.entries[i]; !ok || c.Version.Compare(e.Version) > 0 {
			e, ok = *c, true
		}
	}
	return e, ok && e.Live(v.milli), nil
}

// WriteAtomic performs writes of different keys of this shard in one append: all
// of them or none. Results as of Write, but that nothing was written unless every
// one of them is StatusApplied: those of writes that would have been done by
// themselves have no Status then.
//
// ErrNotAtomic says that they do not fit one append.
func (s *Shard) WriteAtomic(ctx context.Context, writes []Write) ([]WriteResult, error) {
	end, bytes := s.portion(writes, 0)
	if end < len(writes) {
		return nil, ErrNotAtomic
	}
	writes, err := s.storeValues(ctx, writes)
	if err != nil {
		return nil, err
	}
	p := &pending{writes: writes, results: make([]WriteResult, len(writes)), bytes: bytes, records: len(writes), atomic: true}
	if err = s.prepare(ctx, p); err == nil {
		err = s.submit(ctx, p)
	}
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", s.partition, err)
	}
	s.relieve(ctx)
	return p.results, nil
}

// tallyEach is Tally entry by entry, for a view with settled entries.
func (v *View) tallyEach(ctx context.Context, b Bounds, owns func(slot uint16) bool) (n run.Tally, err error) {
	it := v.iter(b, false)
	for it.Next(ctx) {
		e := it.Entry()
		slot := keyspace.Slot(e.Key)
		switch {
		case v.moved != nil && v.moved.Has(slot) || owns != nil && !owns(slot):
		case e.Live(v.milli):
			n.Live++
		case e.Tombstone:
			n.Tombstones++
		default:
			n.Expired++
		}
	}
	return n, v.expired(it.Err())
}
