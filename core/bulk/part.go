package bulk

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
)

// DuplicateError says that a key comes twice.
type DuplicateError struct {
	Key string
	// Index is that of the second of the entries, -1 if it is not known.
	Index int64
}

// Error implements error.
func (e *DuplicateError) Error() string { return fmt.Sprintf("key %q comes twice", e.Key) }

// Part is the entries of a buffer that belong to one shard. It is void once the
// buffer is reset.
type Part struct {
	Shard keyspace.ShardID
	// Slots are those of the entries.
	Slots keyspace.SlotSet

	b    *Buffer
	refs []ref
}

// Len returns the number of entries.
func (p *Part) Len() int { return len(p.refs) }

// Bytes returns the length of all keys and values.
func (p *Part) Bytes() int64 {
	var n int64
	for _, r := range p.refs {
		n += int64(p.b.size(r))
	}
	return n
}

// Sort puts the entries into the order of their keys. A key that comes twice is
// a *DuplicateError: of several, the one whose repetition came first.
func (p *Part) Sort() error {
	if p.b.ordered || len(p.refs) == 0 {
		return nil
	}
	skip := p.common()
	for i := range p.refs {
		p.refs[i].prefix = prefix(p.b.key(p.refs[i])[skip:])
	}
	slices.SortFunc(p.refs, func(x, y ref) int { return p.b.compare(x, y, skip) })
	var twice *DuplicateError
	for i := 1; i < len(p.refs); i++ {
		x, y := p.refs[i-1], p.refs[i]
		if x.prefix != y.prefix || p.b.compare(x, y, skip) != 0 {
			continue
		}
		if at := max(p.b.index(x), p.b.index(y)); twice == nil || at < twice.Index {
			twice = &DuplicateError{Key: string(p.b.key(x)), Index: at}
		}
	}
	if twice != nil {
		return twice
	}
	return nil
}

// common returns the length of what all keys begin with.
func (p *Part) common() int {
	first := p.b.key(p.refs[0])
	n := len(first)
	for _, r := range p.refs[1:] {
		key := p.b.key(r)
		n = min(n, len(key))
		i := 0
		for i < n && key[i] == first[i] {
			i++
		}
		n = i
	}
	return n
}

// prefix returns up to 8 bytes as a number that sorts as they do, as far as it
// tells them apart.
func prefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// Divide divides the part by another map, keeping the order of its entries. The
// part itself stays as it is.
func (p *Part) Divide(owner func(slot uint16) keyspace.ShardID) []Part {
	return p.b.divide(p.refs, make([]ref, len(p.refs)), owner)
}

// Iter walks the entries in their present order. What an entry's fields point to
// lies in the buffer.
func (p *Part) Iter() run.Iterator { return &partIterator{p: p} }

type partIterator struct {
	p    *Part
	next int
	e    record.Entry
}

// Next implements run.Iterator.
func (it *partIterator) Next(context.Context) bool {
	if it.next == len(it.p.refs) {
		return false
	}
	it.p.b.entry(it.p.refs[it.next], &it.e)
	it.next++
	return true
}

// Entry implements run.Iterator.
func (it *partIterator) Entry() *record.Entry { return &it.e }

// Err implements run.Iterator.
func (it *partIterator) Err() error { return nil }
