package shard

import (
	"context"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/run"
)

// excess is by how much the estimates of a head are certain to be too high: a
// blind put counts as an insert, and what has expired still counts. Whoever
// moves the pointer to a checkpoint knows better, without reading anything.
type excess struct {
	live, bytes int64
	// ended are the migrations that were over then.
	ended []string
}

// excessOf compares the estimates of a head with what a checkpoint of its log
// holds, together with the tail above that: no more keys can be live. Bytes go
// with the keys.
func excessOf(h *Head, v *View, next *run.Set) excess {
	if h.Live <= 0 {
		return excess{}
	}
	held := next.Stats()
	most := held.Entries - held.Tombstones
	if next.Seq() < h.Seq {
		most += v.tail.live(next.Seq())
	}
	x := excess{live: max(h.Live-most, 0), ended: v.meta.Ended}
	x.bytes = int64(float64(max(h.Bytes, 0)) * float64(x.live) / float64(h.Live))
	return x
}

// takeFrom corrects a head, perhaps a later one: but not one whose estimates have
// been divided since, by the end of a migration.
func (x excess) takeFrom(h *Head) {
	if !slices.Equal(x.ended, h.Meta().Ended) {
		return
	}
	h.Live -= x.live
	h.Bytes -= x.bytes
}

// live counts the keys that rows after a number left undeleted.
func (s *tailSnapshot) live(after uint64) (n int64) {
	s.items.Scan(func(_ string, it *tailItem) bool {
		if it.seq > after && !it.Tombstone {
			n++
		}
		return true
	})
	return n
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
