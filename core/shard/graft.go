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

// ErrNotGraftable: staged leaves cannot become part of the shard as they are,
// because it takes part in a migration, whose log must tell of every entry, or
// because it may hold newer entries of their keys. The entries can still be
// written one by one, with OpMerge.
var ErrNotGraftable = errors.New("entries cannot be grafted")

// Stage writes entries of one version as leaves that nothing refers to yet. It
// is used by one goroutine.
type Stage struct {
	s       *Shard
	ctx     context.Context
	version clock.Version
	start   clock.Instant
	leaves  *run.Stage
	slots   keyspace.SlotSet
	bytes   int64
}

// Staged are entries that lie in leaves and are not part of the shard. They last
// as long as the collector spares what nothing refers to: Graft refuses them
// after half of BlobGracePeriod.
type Staged struct {
	s       *Shard
	version clock.Version
	start   clock.Instant
	run     *run.Run
	slots   keyspace.SlotSet
	bytes   int64
}

// Stage begins to stage entries of a version.
func (s *Shard) Stage(ctx context.Context, v clock.Version) *Stage {
	return &Stage{s: s, ctx: ctx, version: v, start: s.cfg.Clock.Now(), leaves: s.runs.Stage(ctx)}
}

// Add adds a copy of an entry, whose key must be above the last one. A value
// that is too large for a leaf is stored in a blob of its own.
func (g *Stage) Add(e *record.Entry) error {
	c := *e
	c.Version = g.version
	if int64(len(c.Value)) > int64(g.s.tuning.Load().InlineValueBytes) {
		ref, err := g.s.storeValue(g.ctx, c.Value)
		if err != nil {
			return err
		}
		c.Value, c.Ref = nil, ref
	}
	g.slots.Add(keyspace.Slot(c.Key))
	g.bytes += c.Size()
	return g.leaves.Add(&c)
}

// Finish returns what was staged, durable and without effect; nil if nothing
// was.
func (g *Stage) Finish() (*Staged, error) {
	r, err := g.leaves.Finish()
	if err != nil || r == nil {
		return nil, err
	}
	return &Staged{s: g.s, version: g.version, start: g.start, run: r, slots: g.slots, bytes: g.bytes}, nil
}

// Abandon ends the stage without a result.
func (g *Stage) Abandon() { _ = g.leaves.Abandon(nil) }

// Len is the number of entries, First and Last the bounds of their keys, both
// inclusive.
func (r *Staged) Len() int { return r.run.Entries() }

// First is the least key.
func (r *Staged) First() string { return r.run.First() }

// Last is the greatest key.
func (r *Staged) Last() string { return r.run.Last() }

// Iter reads the entries back, in order of keys. Large values are not loaded:
// see Load.
func (r *Staged) Iter() run.Iterator { return r.s.runs.Loose(r.run).Iter(run.Bounds{}, false) }

// Load reads the value of an entry of Iter, from its blob if it is large.
func (r *Staged) Load(ctx context.Context, e *record.Entry) ([]byte, error) {
	return r.s.value(ctx, e)
}

// Discard deletes the leaves of what was staged and will not be grafted: a
// courtesy to the collector.
func (s *Shard) Discard(ctx context.Context, staged ...*Staged) {
	for _, r := range staged {
		_ = s.runs.Discard(ctx, s.runs.Empty(), s.runs.Loose(r.run))
	}
}

// maxGrafts bounds how often a graft is prepared anew because the shard was
// checkpointed or written meanwhile.
const maxGrafts = 16

// Graft makes staged entries, all of one version and without overlap, part of
// the shard: with one append, which also folds the log's tail, so that they
// stand above all that is older. When it returns nil they are durable and every
// reader sees them. To graft entries again that the shard has changes nothing.
//
// ErrNotGraftable and ErrStaleRouting (the shard does not own a slot of theirs)
// leave the shard as it is; so does any other error but store.ErrOutcomeUnknown.
func (s *Shard) Graft(ctx context.Context, staged ...*Staged) error {
	if len(staged) == 0 {
		return nil
	}
	g := newGraft(staged)
	for try := 0; ; try++ {
		err := s.refresh(ctx)
		if err == nil {
			err = s.graft(ctx, g)
		}
		if !errors.Is(err, errSuperseded) || g.late(s) || try == maxGrafts {
			return g.explain(s, err)
		}
	}
}

// graft is what is to be grafted at once.
type graft struct {
	version     clock.Version
	start       clock.Instant
	runs        []*run.Run
	first, last string
	slots       keyspace.SlotSet
	entries     int64
	bytes       int64
}

func newGraft(staged []*Staged) *graft {
	g := &graft{version: staged[0].version, start: staged[0].start, first: staged[0].First(), last: staged[0].Last()}
	for _, r := range staged {
		g.runs = append(g.runs, r.run)
		g.first, g.last = min(g.first, r.First()), max(g.last, r.Last())
		if r.start.Mono < g.start.Mono {
			g.start = r.start
		}
		g.slots.Union(&r.slots)
		g.entries += int64(r.Len())
		g.bytes += r.bytes
	}
	return g
}

// late reports whether the collector may have taken the leaves.
func (g *graft) late(s *Shard) bool { return s.stale(g.start, s.cfg.Clock.Now()) }

// explain says why a graft was given up.
func (g *graft) explain(s *Shard, err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errSuperseded):
		return fmt.Errorf("graft onto %s: %w", s.partition, err)
	case g.late(s):
		return fmt.Errorf("graft onto %s: the leaves were staged too long ago: %w", s.partition, store.ErrUnavailable)
	default:
		return fmt.Errorf("graft onto %s: too many writers: %w", s.partition, store.ErrUnavailable)
	}
}

// graft tries once: it writes the log's tail as a run, a manifest with the staged
// runs above it, and moves the head's pointer.
func (s *Shard) graft(ctx context.Context, g *graft) error {
	start := s.cfg.Clock.Now()
	s.mu.Lock()
	if s.st == nil {
		s.mu.Unlock()
		return errSuperseded
	}
	v, h := s.st.view(s, start), s.st.head
	crowded := s.st.prepared.bytes > maxRelog
	s.mu.Unlock()
	if err := g.admitted(&h, crowded); err != nil {
		return err
	}
	if g.outdated(v, &h) {
		return ErrNotGraftable
	}
	flushed, err := s.runs.Flush(ctx, v.base, h.Seq, v.tail.iter(Bounds{}, false))
	if err != nil {
		return superseded(err)
	}
	next, err := s.runs.Stack(flushed, g.runs...)
	if err != nil {
		return err
	}
	if next, err = s.runs.Save(ctx, v.base, next, s.cfg.BlobGracePeriod); err != nil {
		return err
	}
	err = s.point(ctx, v.base, next, start, excess{}, g)
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		keep, kerr := s.runs.Stack(v.base, g.runs...)
		if kerr == nil {
			_ = s.runs.Discard(ctx, keep, next)
		}
	}
	return err
}

// superseded translates a missing blob: the checkpoint was replaced meanwhile.
func superseded(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %v", errSuperseded, err)
	}
	return err
}

// admitted reports whether a shard with the given head takes a graft.
func (g *graft) admitted(h *Head, crowded bool) error {
	switch m := h.Meta(); {
	case m.Closed:
		return ErrClosed
	case h.meta.refused != nil && h.meta.refused.Intersects(&g.slots):
		return ErrStaleRouting
	case m.migrating() || crowded:
		return ErrNotGraftable
	}
	return nil
}

// outdated reports whether the shard may hold an entry of the keys that is
// newer: the graft would hide it.
func (g *graft) outdated(v *View, h *Head) bool {
	if h.Clock < g.version.Time {
		return false
	}
	if v.base.Overlaps(g.first, g.last) {
		return true
	}
	return v.tail.any(g.first, g.last, func(it *tailItem) bool { return it.Version.Compare(g.version) >= 0 })
}

// overtaken reports whether the log has grown, since a row, by an entry of the
// keys that is older than the graft: it would hide the graft.
func (g *graft) overtaken(s *Shard, since uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st == nil || (&tailSnapshot{items: &s.st.tail.items}).any(g.first, g.last, func(it *tailItem) bool {
		return it.seq > since && it.Version.Compare(g.version) < 0
	})
}

// apply makes a head take the graft.
func (g *graft) apply(s *Shard, h *Head, covered uint64) error {
	if err := g.admitted(h, false); err != nil {
		return err
	}
	if g.late(s) || g.overtaken(s, covered) {
		return errSuperseded
	}
	h.Live += g.entries
	h.Bytes += g.bytes
	return nil
}

// note is the log's word of a graft.
func (g *graft) note(manifest string) record.Record {
	return record.Record{Kind: record.KindGraft, Note: fmt.Appendf(nil, "%d entries, %s", g.entries, manifest)}
}

// any reports whether an item with a key between two, both inclusive, satisfies
// f.
func (s *tailSnapshot) any(first, last string, f func(*tailItem) bool) bool {
	found := false
	s.items.Ascend(first, func(key string, it *tailItem) bool {
		if key > last {
			return false
		}
		found = f(it)
		return !found
	})
	return found
}

// Empty reports whether the shard holds nothing of the slots it owns: no live
// key, no tombstone, no expired entry. The answer is linearizable.
func (s *Shard) Empty(ctx context.Context) (bool, error) {
	for range maxMissed {
		v, err := s.View(ctx, ReadOptions{})
		if err != nil {
			return false, err
		}
		empty, err := v.empty(ctx)
		if !errors.Is(err, ErrViewExpired) {
			return empty, err
		}
		if err := s.reopen(ctx, v.etag, err); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("look through %s: %w", s.partition, ErrViewExpired)
}

func (v *View) empty(ctx context.Context) (bool, error) {
	it := v.iter(Bounds{}, false)
	for it.Next(ctx) {
		if v.moved == nil || !v.moved.Has(keyspace.Slot(it.Entry().Key)) {
			return false, nil
		}
	}
	return it.Err() == nil, v.expired(it.Err())
}
