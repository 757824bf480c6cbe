package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// errSuperseded: another instance moved the checkpoint first, or this one took
// so long that its blobs may be gone.
var errSuperseded = errors.New("checkpoint superseded")

// CheckpointOptions bound a Checkpoint.
type CheckpointOptions struct {
	// Force writes a checkpoint of a log that is not long enough to need one.
	Force bool
	// Budget is how long merging may go on; zero is no merging beyond the step
	// that is due.
	Budget time.Duration
	// MergeBytes bounds one step of merging by its output; 0 is 32 MiB.
	MergeBytes int64
}

// CheckpointReport says what a Checkpoint did.
type CheckpointReport struct {
	// Rows is the number of log rows folded into blobs.
	Rows int
	// Merges is the number of merge steps.
	Merges int
	// Superseded says that another instance was faster; nothing is lost.
	Superseded bool
	// Due says that more merging waits.
	Due bool
}

const defaultMergeBytes = 32 << 20

// Checkpoint folds the log into blobs if it is long enough, and merges runs as
// far as due and bounded, each step on its own. Every step that is counted is
// durable; one that fails has changed nothing but left blobs that the collector
// finds. Any number of instances may checkpoint one shard at once.
func (s *Shard) Checkpoint(ctx context.Context, o CheckpointOptions) (CheckpointReport, error) {
	var rep CheckpointReport
	if !s.checkpointing.CompareAndSwap(false, true) {
		return rep, nil
	}
	defer s.checkpointing.Store(false)
	if err := s.refresh(ctx); err != nil {
		return rep, err
	}
	err := s.checkpoint(ctx, o, &rep)
	if errors.Is(err, errSuperseded) || errors.Is(err, errLeaseHeld) {
		rep.Superseded = true
		return rep, nil
	}
	return rep, err
}

// refresh opens the shard or brings it up to date.
func (s *Shard) refresh(ctx context.Context) error {
	return s.retry(ctx, func() error {
		if !s.opened() {
			return s.open(ctx)
		}
		return s.catchUp(ctx)
	})
}

func (s *Shard) checkpoint(ctx context.Context, o CheckpointOptions, rep *CheckpointReport) error {
	start := s.cfg.Clock.Now()
	if rows := s.dueRows(o.Force); rows > 0 {
		if err := s.step(ctx, s.flush); err != nil {
			return err
		}
		rep.Rows = rows
	}
	if o.MergeBytes == 0 {
		o.MergeBytes = defaultMergeBytes
	}
	for {
		merged, due := false, false
		err := s.step(ctx, func(ctx context.Context, v *View, _ uint64) (*run.Set, error) {
			next, more, err := s.runs.MergeStep(ctx, v.base, s.mergePolicy(v), run.Budget{Bytes: o.MergeBytes})
			merged, due = next != v.base, more
			return next, err
		})
		if err != nil {
			return err
		}
		if merged {
			rep.Merges++
		}
		rep.Due = due
		if !merged || !due || age(start, s.cfg.Clock.Now()) >= o.Budget {
			return nil
		}
	}
}

// dueRows returns how many rows a checkpoint would fold now, 0 if none is due.
func (s *Shard) dueRows(force bool) int {
	t := s.tuning.Load()
	s.mu.RLock()
	defer s.mu.RUnlock()
	rows := s.st.tail.rows()
	if s.st.prepared.bytes > maxRelog {
		return 0 // they must fit into the append that moves the pointer
	}
	if force || s.st.tail.bytes >= t.CheckpointTailBytes || rows >= t.CheckpointTailRows {
		return rows
	}
	return 0
}

// flush writes the log's tail as a run on top of the checkpoint.
func (s *Shard) flush(ctx context.Context, v *View, seq uint64) (*run.Set, error) {
	return s.runs.Flush(ctx, v.base, seq, v.tail.iter(Bounds{}, false))
}

func (s *Shard) mergePolicy(v *View) run.Policy {
	p := run.Policy{MergeRatio: s.cfg.MergeRatio, TombstoneGrace: s.tuning.Load().TombstoneGracePeriod}
	if moved := &v.meta.Moved; !moved.Empty() {
		p.Keep = func(key string) bool { return !moved.Has(keyspace.Slot(key)) }
	}
	if v.meta.migrating() {
		// A tombstone may still have to win against an older entry that is on
		// its way.
		p.TombstoneGrace = forever
	}
	return p
}

// forever is longer than anything lasts.
const forever = 1 << 62

// step makes new blobs from the present state and moves the head's pointer to
// them. Losing the race it drops them.
func (s *Shard) step(ctx context.Context, build func(context.Context, *View, uint64) (*run.Set, error)) error {
	start := s.cfg.Clock.Now()
	s.mu.Lock()
	if s.st == nil {
		s.mu.Unlock()
		return errSuperseded
	}
	v, h := s.st.view(s, start), s.st.head
	s.mu.Unlock()
	next, err := build(ctx, v, h.Seq)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %v", errSuperseded, err)
	}
	if err != nil || next == v.base {
		return err
	}
	next, err = s.runs.Save(ctx, v.base, next, s.cfg.BlobGracePeriod)
	if err != nil {
		return err
	}
	err = s.point(ctx, v.base, next, start, excessOf(&h, v, next), nil)
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) {
		// A courtesy: what stays behind the collector finds.
		_ = s.runs.Discard(ctx, v.base, next)
	}
	return err
}

// point moves the head from one manifest to the next, with its estimates less an
// excess; the manifest has the graft on top unless that is nil. Nobody sees the new head without the new checkpoint.
func (s *Shard) point(ctx context.Context, old, next *run.Set, start clock.Instant, x excess, g *graft) error {
	c := &control{note: "checkpoint", hasty: true, records: s.relog, base: next}
	if g != nil {
		c.hasty, c.grafts, c.clock = false, true, g.version.Time
		c.records = func() []record.Record { return append(s.relog(), g.note(next.Name())) }
	}
	c.apply = func(h *Head, now clock.Instant) error {
		m := *h.Meta()
		if m.Checkpoint.Manifest != old.Name() || s.stale(start, now) {
			return errSuperseded
		}
		if g != nil {
			if err := g.apply(s, h, next.Seq()); err != nil {
				return err
			}
		}
		x.takeFrom(h)
		m.Checkpoint = Checkpoint{Manifest: next.Name(), Seq: next.Seq()}
		return h.setMeta(m)
	}
	return s.submit(ctx, &pending{control: c})
}
