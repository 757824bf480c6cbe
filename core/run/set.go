package run

import (
	"context"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
)

// Set is one immutable view of the checkpointed state. It is safe for
// concurrent use.
type Set struct {
	store *Store
	name  string
	seq   uint64
	runs  []*Run
	index indexRef
	// dropped are blobs of earlier views, still within their grace.
	dropped []Dropped
}

// indexRef names the index blob of a view.
type indexRef struct {
	// name is empty if there is none.
	name string
	// leaves and bytes are what it holds, whether or not still referenced;
	// bytes before compression.
	leaves, bytes int
}

// Empty returns the view of a shard that has no checkpoint. Its name is "".
func (s *Store) Empty() *Set { return &Set{store: s} }

// Name returns the name of the manifest blob; empty for a view that is not
// saved.
func (s *Set) Name() string { return s.name }

// Seq returns the sequence number of the last log row that the view covers.
func (s *Set) Seq() uint64 { return s.seq }

// Runs returns the runs from the newest to the oldest. They must not be
// modified.
func (s *Set) Runs() []*Run { return s.runs }

// with returns an unsaved view with other runs.
func (s *Set) with(seq uint64, runs []*Run) *Set {
	return &Set{store: s.store, seq: seq, runs: runs, index: s.index}
}

// Get returns the newest entry of a key, which may be a tombstone or expired,
// and whether there is one. It reads one leaf for each run that may hold the
// key until one does: normally one. Key and value alias a cached page. A blob
// that is missing is store.ErrNotFound, naming it: the view is outdated and was
// collected. A damaged one is store.ErrCorrupt.
func (s *Set) Get(ctx context.Context, key string) (record.Entry, bool, error) {
	hash := leaf.Hash(key)
	for _, r := range s.runs {
		l, ok := r.find(key)
		if !ok || !l.Filter.MayHold(hash) {
			continue
		}
		page, err := s.store.page(ctx, l)
		if err != nil {
			return record.Entry{}, false, err
		}
		if e, ok := page.Get(key); ok {
			return e, true, nil
		}
	}
	return record.Entry{}, false, nil
}

// Iter returns an iterator over the newest entries of the keys in a range,
// tombstones and expired ones included, descending if reverse. It reads leaves
// as it needs them and holds one for each run.
func (s *Set) Iter(bounds Bounds, reverse bool) Iterator { return s.iter(bounds, reverse, nil) }

// iter is Iter with newer entries, unless nil, above those of the view.
func (s *Set) iter(bounds Bounds, reverse bool, above Iterator) *setIterator {
	it := &setIterator{merger: newMerger(reverse), parallel: s.store.Options.parallelReads()}
	if above != nil {
		it.add(&iteratorSource{it: above})
	}
	for _, r := range s.runs {
		c := newCursor(s.store.page, r, bounds, reverse)
		it.add(c)
		if c.within && !s.store.adopt(c) {
			it.cold = append(it.cold, c)
		}
	}
	return it
}

// setIterator is a merger that reads the leaves at which the range begins at
// once, so that a cold scan does not wait for one run after the other.
type setIterator struct {
	*merger
	cold     []*cursor
	parallel int
}

// Next implements Iterator.
func (it *setIterator) Next(ctx context.Context) bool {
	it.readFirst(ctx)
	return it.merger.Next(ctx)
}

// readFirst reads the leaves at which the range begins, once.
func (it *setIterator) readFirst(ctx context.Context) {
	if len(it.cold) > 1 {
		var reads errgroup.Group
		reads.SetLimit(it.parallel)
		for _, c := range it.cold {
			reads.Go(func() error { return c.load(ctx) })
		}
		it.fail(reads.Wait())
	}
	it.cold = nil
}

// Blobs yields the name of every blob that the view refers to: manifest, index,
// leaves, and large values. A name may come more than once. What is not named
// by a view that is in use may be collected.
func (s *Set) Blobs() iter.Seq[string] {
	return func(yield func(string) bool) {
		s.ownBlobs(yield, true)
	}
}

// ownBlobs visits the names until yield says no; large values only if large.
func (s *Set) ownBlobs(yield func(string) bool, large bool) {
	for _, name := range []string{s.name, s.index.name} {
		if name != "" && !yield(name) {
			return
		}
	}
	for _, r := range s.runs {
		for i := range r.Leaves {
			if !r.Leaves[i].blobs(yield, large) {
				return
			}
		}
	}
}

func (l *Leaf) blobs(yield func(string) bool, large bool) bool {
	if !yield(l.Blob) {
		return false
	}
	if !large {
		return true
	}
	for _, name := range l.Large {
		if !yield(name) {
			return false
		}
	}
	return true
}

// Stats sum up a view.
type Stats struct {
	Runs, Leaves int
	// Entries counts entries in all runs: an upper bound of the keys, since a
	// key may be in several. Tombstones are included.
	Entries, Tombstones int64
	// Bytes is the size of the leaf blobs, Raw that of their payloads before
	// compression.
	Bytes, Raw int64
	// BaseEntries counts the entries of the base, or of the part of it that a
	// merge in progress has not reached.
	BaseEntries int64
	// Merging says that a merge is in progress.
	Merging bool
}

// Stats sums up the view.
func (s *Set) Stats() Stats {
	st := Stats{Runs: len(s.runs)}
	for _, r := range s.runs {
		st.Leaves += len(r.Leaves)
		st.Entries += int64(r.total.entries)
		st.Tombstones += int64(r.total.tombstones)
		st.Bytes += r.total.size
		st.Raw += r.total.raw
		st.Merging = st.Merging || r.Inputs > 0
		if r.Base {
			st.BaseEntries += int64(r.total.entries)
		}
	}
	return st
}
