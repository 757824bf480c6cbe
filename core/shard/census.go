package shard

import (
	"context"
	"fmt"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// Census is what a view holds, counted entry by entry.
type Census struct {
	// Live are live entries, Tombstones deleted ones that are remembered, and
	// Expired those past their expiry that are stored still.
	Live, Tombstones, Expired int64
	// Bytes are the keys and values of the live entries.
	Bytes int64
}

// lookUpEvery is how many entries are counted between two looks at the context.
const lookUpEvery = 4096

// Census counts the entries of the slots that the caller owns up to; nil is all
// that did not move away. It reads every leaf.
func (v *View) Census(ctx context.Context, owns func(slot uint16) bool) (Census, error) {
	var c Census
	it := v.iter(Bounds{}, false)
	for n := 1; it.Next(ctx); n++ {
		if n%lookUpEvery == 0 && ctx.Err() != nil {
			return Census{}, fmt.Errorf("count the entries of %s: %w: %w", v.s.partition, store.ErrUnavailable, context.Cause(ctx))
		}
		e := it.Entry()
		slot := keyspace.Slot(e.Key)
		if v.moved != nil && v.moved.Has(slot) || owns != nil && !owns(slot) {
			continue
		}
		switch {
		case e.Live(v.milli):
			c.Live++
			c.Bytes += e.Size()
		case e.Tombstone:
			c.Tombstones++
		default:
			c.Expired++
		}
	}
	return c, v.expired(it.Err())
}

// Estimates returns the estimates of the live entries and their user data that
// the head holds now: one read, and the shard need not be open.
func (s *Shard) Estimates(ctx context.Context) (live, bytes int64, err error) {
	h, err := s.readHead(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read the head of %s: %w", s.partition, err)
	}
	return h.Live, h.Bytes, nil
}
