package tree

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/txn"
	"golang.org/x/sync/errgroup"
)

// A snapshot is the state of a tree at one cut of the hybrid clocks: it has
// exactly the entries with versions up to the cut, and those of a batch that an
// instance with a fast clock committed above it before the barriers.
//
// Opening it appends a barrier to every shard that lifts the shard's clock past
// the cut, so that whatever is written there later is above it, and pins the
// checkpoint and the log up to the barrier. The cut lies a little ahead of the
// clocks, so that nothing above it is there before the barrier. A batch that is
// undecided at the barrier is looked up in its row: committed up to the cut it is
// in, and one that is still pending is pushed above the cut. A batch that was
// committed up to the cut was prepared on every shard before the barrier there,
// for a prepare after a barrier is above the cut. So batches are in or out as a
// whole.
//
// Who owns a key is decided by the map of the moment of opening.

// ErrSnapshotExpired: the snapshot is not kept any more.
var ErrSnapshotExpired = errors.New("snapshot expired")

// ErrTooManySnapshots: the tree has as many snapshots open as it may,
// shard.MaxPins.
var ErrTooManySnapshots = errors.New("too many snapshots are open")

// snapshot is what must be known to read at a cut.
type snapshot struct {
	Cut clock.HLC `json:"cut"`
	// MapVersion and Slots are the shard map, as in a tree's row.
	MapVersion uint64      `json:"mapVersion"`
	Slots      [][3]uint32 `json:"slots"`
	// Pins are those of the shards that own slots, in order of shards.
	Pins []shardPin `json:"pins"`
	// Committed are the batches that were undecided on some shard and are in.
	Committed []committedBatch `json:"committed,omitempty"`
}

type shardPin struct {
	Shard keyspace.ShardID `json:"shard"`
	Pin   shard.Pin        `json:"pin"`
}

type committedBatch struct {
	Tx      record.ID     `json:"tx"`
	Version clock.Version `json:"version"`
}

const (
	// cutAhead is how far a cut lies ahead of all clocks: the time in which the
	// barriers should be there.
	cutAhead = 100 * time.Millisecond
	// cutTries bounds how often a cut is chosen: those who open snapshots at the
	// same moment lift the clocks past each other's cuts.
	cutTries = 32
)

// takeSnapshot opens a snapshot that is kept until the expiry, a Unix
// millisecond. Every shard costs one append.
func (t *Tree) takeSnapshot(ctx context.Context, id string, expiry int64) (snap *snapshot, treeID string, err error) {
	err = t.routed(ctx, func(m *meta) (err error) {
		treeID = m.ID
		snap, err = t.cut(ctx, m, id, expiry)
		if err != nil {
			// A courtesy: a pin that stays behind expires.
			_ = t.releasePins(ctx, m, m.owners, id)
		}
		return err
	})
	return snap, treeID, snapshotError(err)
}

func (t *Tree) cut(ctx context.Context, m *meta, id string, expiry int64) (*snapshot, error) {
	var least clock.HLC
	for try := 0; ; try++ {
		at := t.db.clock.Now()
		at.Wall = max(at.Wall, least.Milli()*int64(time.Millisecond)) + int64(cutAhead)
		s := &snapshot{Cut: clock.Next(least, at), MapVersion: m.MapVersion, Slots: m.Slots, Pins: make([]shardPin, len(m.owners))}
		err := t.pinAll(ctx, m, s, id, expiry)
		switch {
		case err == nil:
			return s, t.settleCut(ctx, m, s)
		case !errors.Is(err, shard.ErrPastCut):
			return nil, err
		}
		// A clock is ahead, the barriers took their time, or somebody else opened a
		// snapshot meanwhile.
		if try == cutTries || t.db.reg.pause(ctx, try, 0) != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
		if least, err = t.lastClock(ctx, m); err != nil {
			return nil, err
		}
	}
}

// lastClock returns the latest of the shards' clocks.
func (t *Tree) lastClock(ctx context.Context, m *meta) (clock.HLC, error) {
	clocks := make([]clock.HLC, len(m.owners))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, owner := range m.owners {
		g.Go(func() (err error) {
			clocks[i], err = t.shard(m, owner).LastClock(gctx)
			return err
		})
	}
	err := g.Wait()
	return slices.Max(clocks), err
}

// pinAll pins every shard under the cut.
func (t *Tree) pinAll(ctx context.Context, m *meta, s *snapshot, id string, expiry int64) error {
	owned := make(map[keyspace.ShardID]*keyspace.SlotSet, len(m.owners))
	for slot := range uint16(keyspace.Slots) {
		owner := m.shardMap.Owner(slot)
		if owned[owner] == nil {
			owned[owner] = &keyspace.SlotSet{}
		}
		owned[owner].Add(slot)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, owner := range m.owners {
		g.Go(func() (err error) {
			s.Pins[i].Shard = owner
			s.Pins[i].Pin, err = t.shard(m, owner).Pin(gctx, id, s.Cut, expiry, owned[owner])
			return err
		})
	}
	return g.Wait()
}

// settleCut finds out which of the batches that are undecided at the cut belong
// to it, and keeps the pending ones above it. Committed up to the cut a batch is
// in. And it is in if it was committed above the cut, by an instance whose clock
// is ahead, when all of its parts were prepared before the barriers: it may have
// happened, and been seen, before the snapshot was asked for.
func (t *Tree) settleCut(ctx context.Context, m *meta, s *snapshot) error {
	views := make([]shardView, len(s.Pins))
	for i := range s.Pins {
		v, err := t.shard(m, s.Pins[i].Shard).Pinned(ctx, s.Pins[i].Pin)
		if err != nil {
			return err
		}
		views[i] = v
	}
	seen := map[record.ID]bool{}
	for _, v := range views {
		for _, tx := range v.Undecided(shard.Bounds{}) {
			if seen[tx] {
				continue
			}
			seen[tx] = true
			o, err := t.db.txns.Push(ctx, m.ID, tx, s.Cut)
			if err != nil {
				return fmt.Errorf("find out about an atomic batch: %w", err)
			}
			if o.State == txn.Committed && (o.Version.Time <= s.Cut || o.Keys == s.prepared(m, views, tx)) {
				s.Committed = append(s.Committed, committedBatch{Tx: tx, Version: o.Version})
			}
		}
	}
	return nil
}

// prepared returns how many keys of a batch are prepared in the pinned views of
// their owners.
func (s *snapshot) prepared(m *meta, views []shardView, tx record.ID) (n int) {
	for i, v := range views {
		n += v.PreparedBy(tx, func(slot uint16) bool { return m.shardMap.Owner(slot) == s.Pins[i].Shard })
	}
	return n
}

// openSnapshot reads the snapshot's entries in a range, in key order, each from
// the shard that owned its slot at the cut.
func (t *Tree) openSnapshot(ctx context.Context, m *meta, s *snapshot, b Bounds, reverse bool) (*merge, error) {
	old := row{MapVersion: s.MapVersion, Slots: s.Slots, NextShard: m.NextShard}
	shardMap, err := old.shardMap()
	if err != nil {
		return nil, err
	}
	committed := make(shard.Outcomes, len(s.Committed))
	for _, c := range s.Committed {
		committed[c.Tx] = c.Version
	}
	sources := make([]*source, len(s.Pins))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, p := range s.Pins {
		g.Go(func() error {
			v, err := t.shard(m, p.Shard).Pinned(gctx, p.Pin)
			if err != nil {
				return err
			}
			v = v.Settle(committed)
			src := &source{id: p.Shard, m: shardMap, view: v, cur: v.Entries(shard.Bounds(b), reverse)}
			more, err := src.advance(gctx)
			if more {
				sources[i] = src
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, snapshotError(err)
	}
	out := &merge{reverse: reverse}
	for _, s := range sources {
		if s != nil {
			out.sources = append(out.sources, s)
		}
	}
	heap.Init(out)
	return out, nil
}

// snapshotError says in words of the tree that something is not kept any more.
func snapshotError(err error) error {
	switch {
	case errors.Is(err, shard.ErrPinExpired):
		return fmt.Errorf("%w: %w", ErrSnapshotExpired, err)
	case errors.Is(err, shard.ErrTooManyPins):
		return fmt.Errorf("%w: %w", ErrTooManySnapshots, err)
	}
	return err
}

// renewPins moves the expiry of a snapshot's pins.
func (t *Tree) renewPins(ctx context.Context, m *meta, s *snapshot, id string, expiry int64) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i := range s.Pins {
		g.Go(func() error {
			if err := t.shard(m, s.Pins[i].Shard).Repin(gctx, id, expiry); err != nil {
				return snapshotError(err)
			}
			s.Pins[i].Pin.Expiry = expiry
			return nil
		})
	}
	return g.Wait()
}

// releasePins gives the pins of a snapshot up.
func (t *Tree) releasePins(ctx context.Context, m *meta, shards []keyspace.ShardID, id string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, owner := range shards {
		g.Go(func() error {
			err := t.shard(m, owner).Unpin(gctx, id)
			if errors.Is(err, shard.ErrNoShard) || errors.Is(err, shard.ErrClosed) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

func (s *snapshot) shards() (ids []keyspace.ShardID) {
	for _, p := range s.Pins {
		ids = append(ids, p.Shard)
	}
	return ids
}
