package tree

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
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

// discard deletes the leaves of what was not applied and cannot have been.
func (b *bulkRun) discard(ctx context.Context, m *meta) {
	for _, s := range b.slices {
		if !s.applied {
			b.t.shard(m, s.owner).Discard(ctx, s.runs...)
		}
	}
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

// restage reads what was staged and stages it on the shards that own it now.
func (b *bulkRun) restage(ctx context.Context, m *meta, s *bulkSlice) ([]*bulkSlice, error) {
	d := &division{b: b, m: m, stages: map[keyspace.ShardID]*shard.Stage{}, parts: map[keyspace.ShardID]*bulkSlice{}}
	for _, r := range s.runs {
		if err := d.add(ctx, r); err != nil {
			d.abandon()
			return nil, err
		}
	}
	return d.finish()
}

// division divides what was staged on one shard by a newer map.
type division struct {
	b      *bulkRun
	m      *meta
	stages map[keyspace.ShardID]*shard.Stage
	parts  map[keyspace.ShardID]*bulkSlice
}

// add takes the entries of a run, which follow those of the runs before.
func (d *division) add(ctx context.Context, r *shard.Staged) error {
	it, stop := r.ReadBack(ctx, 1)
	defer stop()
	for it.Next(ctx) {
		slot := keyspace.Slot(it.Entry().Key)
		id := d.m.shardMap.Owner(slot)
		if d.stages[id] == nil {
			d.stages[id] = d.b.t.shard(d.m, id).Stage(ctx, d.b.version)
			d.parts[id] = &bulkSlice{owner: id}
		}
		d.parts[id].slots.Add(slot)
		d.parts[id].count++
		if err := addLoaded(ctx, d.stages[id], it.Entry(), r.Load); err != nil {
			return err
		}
	}
	return it.Err()
}

func (d *division) abandon() {
	for _, g := range d.stages {
		g.Abandon()
	}
}

func (d *division) finish() ([]*bulkSlice, error) {
	var out []*bulkSlice
	for id, g := range d.stages {
		staged, err := g.Finish()
		delete(d.stages, id)
		if err != nil {
			d.abandon()
			return nil, err
		}
		d.parts[id].runs = []*shard.Staged{staged}
		out = append(out, d.parts[id])
	}
	return out, nil
}

// loader reads the value of an entry from its blob.
type loader func(ctx context.Context, e *record.Entry) ([]byte, error)

// addLoaded stages an entry, complete with its value: a blob of the value
// belongs to the stage that wrote it.
func addLoaded(ctx context.Context, g *shard.Stage, e *record.Entry, load loader) error {
	if e.Ref == nil {
		return g.Add(e)
	}
	c := *e
	var err error
	if c.Value, err = load(ctx, e); err != nil {
		return err
	}
	c.Ref = nil
	return g.Add(&c)
}

// stageAll stages entries, in ascending order of keys.
func stageAll(ctx context.Context, l shardLog, v clock.Version, it run.Iterator, load loader) (*shard.Staged, error) {
	g := l.Stage(ctx, v)
	for it.Next(ctx) {
		if err := addLoaded(ctx, g, it.Entry(), load); err != nil {
			g.Abandon()
			return nil, err
		}
	}
	staged, err := g.Finish()
	if ierr := it.Err(); ierr != nil {
		if err == nil && staged != nil {
			l.Discard(ctx, staged)
		}
		return nil, ierr
	}
	return staged, err
}

// records writes entries as records of the log, portion by portion. Writing them
// twice changes nothing.
func (b *bulkRun) records(ctx context.Context, m *meta, l shardLog, it run.Iterator, load loader) error {
	p := portion{version: b.version, bytes: int(m.opts.GroupCommitMaxBytes), entries: m.opts.GroupCommitMaxRecords}
	for it.Next(ctx) {
		e := *it.Entry()
		if e.Ref != nil {
			value, err := load(ctx, &e)
			if err != nil {
				return err
			}
			e.Value, e.Ref = value, nil
		}
		if !p.fits(&e) {
			if err := p.write(ctx, l); err != nil {
				return err
			}
		}
		p.add(&e)
	}
	if err := it.Err(); err != nil {
		return err
	}
	return p.write(ctx, l)
}

// portion gathers the records of one append. The log keeps keys and values, so
// they are copied, each entry into one piece.
type portion struct {
	version        clock.Version
	bytes, entries int
	size           int
	writes         []shard.Write
}

// recordOverhead bounds what a record takes beside key and value.
const recordOverhead = 128

func (p *portion) fits(e *record.Entry) bool {
	return len(p.writes) == 0 || len(p.writes) < p.entries && p.size+len(e.Key)+len(e.Value)+len(e.Type)+recordOverhead <= p.bytes
}

func (p *portion) add(e *record.Entry) {
	p.size += len(e.Key) + len(e.Value) + len(e.Type) + recordOverhead
	kept := make([]byte, 0, len(e.Key)+len(e.Value))
	kept = append(append(kept, e.Key...), e.Value...)
	p.writes = append(p.writes, shard.Write{
		Op: shard.OpMerge, Key: frame.Text(kept[:len(e.Key)]), Value: kept[len(e.Key):],
		Type: e.Type, Expiry: e.Expiry, Version: p.version,
	})
}

func (p *portion) write(ctx context.Context, l shardLog) error {
	if len(p.writes) == 0 {
		return nil
	}
	results, err := l.Write(ctx, p.writes)
	if err != nil {
		return err
	}
	for i := range results {
		if results[i].Status != shard.StatusApplied {
			return shard.ErrStaleRouting
		}
	}
	p.writes, p.size = nil, 0
	return nil
}
