package tree

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"golang.org/x/sync/errgroup"
)

// bulkSlice is the part of a load that belongs to one shard.
type bulkSlice struct {
	owner keyspace.ShardID
	// slots are those of the entries.
	slots keyspace.SlotSet
	count int64
	// part are the entries in memory, in order; nil if they are only in runs.
	part *bulk.Part
	// runs are the entries staged on the owner, without overlap, in order.
	runs []*shard.Staged
	// applied says that all of it is durable.
	applied bool
}

// bulkRun is a load, or a portion of one, on its way into the shards: all of it
// has one version.
type bulkRun struct {
	t       *Tree
	treeID  string
	version clock.Version
	slices  []*bulkSlice
}

// bulkVersion returns a version above the clock of every shard that owns slots,
// and above the wall clock: what the load brings replaces what is there, and
// gives way to what is written later.
func (t *Tree) bulkVersion(ctx context.Context, treeID string) (v clock.Version, err error) {
	err = t.routed(ctx, func(m *meta) error {
		if m.ID != treeID {
			return t.replaced()
		}
		clocks := make([]clock.HLC, len(m.owners))
		err := t.eachOwner(ctx, m, func(ctx context.Context, i int, l shardLog) (err error) {
			clocks[i], err = l.LastClock(ctx)
			return err
		})
		v = t.db.above(clocks...)
		return err
	})
	if err != nil {
		return v, fmt.Errorf("find a version for the load: %w", err)
	}
	return v, nil
}

// eachOwner calls f for every shard that owns slots, several at once.
func (t *Tree) eachOwner(ctx context.Context, m *meta, f func(ctx context.Context, i int, l shardLog) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, id := range m.owners {
		g.Go(func() error {
			if err := f(ctx, i, t.shard(m, id)); err != nil {
				return fmt.Errorf("shard %d of tree %q: %w", id, t.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// replaced reports that the tree of the name is not the one of the load.
func (t *Tree) replaced() error {
	return fmt.Errorf("tree %q was purged and created again: %w", t.name, ErrOperationNotFound)
}

// sorted divides a buffer by owner and sorts each part, several at once. A key
// that comes twice is a *bulk.DuplicateError.
func sorted(m *meta, buf *bulk.Buffer) ([]*bulkSlice, error) {
	parts := buf.Parts(m.shardMap.Owner)
	out := make([]*bulkSlice, len(parts))
	errs := make([]error, len(parts))
	inParallel(fanOut, len(parts), func(i int) {
		errs[i] = parts[i].Sort()
		out[i] = sliceOf(&parts[i])
	})
	return out, firstDuplicate(errs)
}

func sliceOf(p *bulk.Part) *bulkSlice {
	return &bulkSlice{owner: p.Shard, slots: p.Slots, count: int64(p.Len()), part: p}
}

// firstDuplicate returns, of duplicates, the one that came first.
func firstDuplicate(errs []error) error {
	var first *bulk.DuplicateError
	for _, err := range errs {
		var twice *bulk.DuplicateError
		switch {
		case err == nil:
		case !errors.As(err, &twice):
			return err
		case first == nil || twice.Index < first.Index:
			first = twice
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// apply writes every slice to its owner, and again to whoever owns it by then
// where a shard turns it away. Slices do not wait for each other, and what is
// applied stays, also on error.
func (b *bulkRun) apply(ctx context.Context) error {
	return b.t.routed(ctx, func(m *meta) error {
		if m.ID != b.treeID {
			return b.t.replaced()
		}
		if err := b.regroup(ctx, m); err != nil {
			return err
		}
		return b.round(ctx, m)
	})
}

// round applies what is not applied yet. An error that is not about routing goes
// before one that is.
func (b *bulkRun) round(ctx context.Context, m *meta) error {
	var (
		mu     sync.Mutex
		routed error
		g      errgroup.Group // not tied to ctx: one failure does not leave the others' outcome open
	)
	g.SetLimit(fanOut)
	for _, s := range b.slices {
		if s.applied {
			continue
		}
		g.Go(func() error {
			err := b.applySlice(ctx, m, s)
			mu.Lock()
			defer mu.Unlock()
			if turnedAway(err) {
				routed, err = err, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return routed
}

// applySlice grafts a slice onto its shard, or writes it as records if it is
// small or the shard takes no graft.
func (b *bulkRun) applySlice(ctx context.Context, m *meta, s *bulkSlice) error {
	l := b.t.shard(m, s.owner)
	if s.runs == nil && s.part.Bytes() < m.opts.BulkGraftBytes {
		return s.done(b.records(ctx, m, l, s.part.Iter(), nil))
	}
	if s.runs == nil {
		staged, err := stageAll(ctx, l, b.version, s.part.Iter(), nil)
		if err != nil {
			return err
		}
		s.runs = []*shard.Staged{staged}
	}
	err := l.Graft(ctx, s.runs...)
	if errors.Is(err, shard.ErrNotGraftable) {
		err = b.ungraftable(ctx, m, l, s)
	}
	return s.done(err)
}

// ungraftable writes a slice as records.
func (b *bulkRun) ungraftable(ctx context.Context, m *meta, l shardLog, s *bulkSlice) error {
	if s.part != nil {
		// The leaves are of no more use, whatever comes next.
		l.Discard(ctx, s.runs...)
		s.runs = nil
		return b.records(ctx, m, l, s.part.Iter(), nil)
	}
	for _, r := range s.runs {
		it, stop := r.ReadBack(ctx, 1)
		err := b.records(ctx, m, l, it, r.Load)
		stop()
		if err != nil {
			return err
		}
	}
	l.Discard(ctx, s.runs...)
	return nil
}

func (s *bulkSlice) done(err error) error {
	s.applied = err == nil
	return err
}

// accepted counts the entries that are durable.
func (b *bulkRun) accepted() (n int64) {
	for _, s := range b.slices {
		if s.applied {
			n += s.count
		}
	}
	return n
}

// regroup divides the slices anew whose slots do not all belong to their owner
// any more.
func (b *bulkRun) regroup(ctx context.Context, m *meta) error {
	out := make([]*bulkSlice, 0, len(b.slices))
	for i, s := range b.slices {
		if s.applied || s.ownedBy(m) {
			out = append(out, s)
			continue
		}
		parts, err := b.divide(ctx, m, s)
		if err != nil {
			b.slices = append(out, b.slices[i:]...)
			return err
		}
		b.t.shard(m, s.owner).Discard(ctx, s.runs...)
		out = append(out, parts...)
	}
	b.slices = out
	return nil
}

func (s *bulkSlice) ownedBy(m *meta) bool {
	for slot := range uint16(keyspace.Slots) {
		if s.slots.Has(slot) && m.shardMap.Owner(slot) != s.owner {
			return false
		}
	}
	return true
}

func (b *bulkRun) divide(ctx context.Context, m *meta, s *bulkSlice) ([]*bulkSlice, error) {
	if s.part == nil {
		return b.restage(ctx, m, s)
	}
	parts := s.part.Divide(m.shardMap.Owner)
	out := make([]*bulkSlice, len(parts))
	for i := range parts {
		out[i] = sliceOf(&parts[i])
	}
	return out, nil
}
