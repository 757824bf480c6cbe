package run

import (
	"context"

	"github.com/latticekv/lattice/core/record"
)

// Bounds is a range of keys: From inclusive, To exclusive, empty meaning
// unbounded.
type Bounds struct{ From, To string }

// Iterator yields entries in strict key order.
type Iterator interface {
	// Next moves to the next entry, the first one when called first. It
	// reports false at the end and after an error.
	Next(ctx context.Context) bool
	// Entry returns the current entry. It is valid until the next call of
	// Next; what its fields point to stays valid and must not be modified.
	Entry() *record.Entry
	// Err returns the error that ended the iteration, nil at its proper end.
	Err() error
}

// Slice iterates over entries, which must be in the order wanted.
func Slice(entries []record.Entry) Iterator { return &sliceIterator{rest: entries} }

type sliceIterator struct {
	rest    []record.Entry
	current *record.Entry
}

func (s *sliceIterator) Next(context.Context) bool {
	if len(s.rest) == 0 {
		return false
	}
	s.current, s.rest = &s.rest[0], s.rest[1:]
	return true
}

func (s *sliceIterator) Entry() *record.Entry { return s.current }

func (s *sliceIterator) Err() error { return nil }

// MergeIterators merges iterators that are all ascending, or all descending if
// reverse. Of entries with the same key it yields the one of the iterator that
// stands first.
func MergeIterators(reverse bool, newestFirst ...Iterator) Iterator {
	m := newMerger(reverse)
	for _, it := range newestFirst {
		m.add(&iteratorSource{it: it})
	}
	return m
}

// source is one input of a merger. Its key is known before its entry is read,
// so that leaves are not read before they are needed.
type source interface {
	// start moves to the first entry and reports whether there is one.
	start(ctx context.Context) (bool, error)
	// advance moves on.
	advance(ctx context.Context) (bool, error)
	// key returns the key of the current entry.
	key() string
	// entry sets e to the current entry.
	entry(ctx context.Context, e *record.Entry) error
}

// iteratorSource makes an Iterator a source.
type iteratorSource struct{ it Iterator }

func (s *iteratorSource) start(ctx context.Context) (bool, error) { return s.advance(ctx) }

func (s *iteratorSource) advance(ctx context.Context) (bool, error) {
	if s.it.Next(ctx) {
		return true, nil
	}
	return false, s.it.Err()
}

func (s *iteratorSource) key() string { return s.it.Entry().Key }

func (s *iteratorSource) entry(_ context.Context, e *record.Entry) error {
	*e = *s.it.Entry()
	return nil
}
