package split

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

// worker is one coordinator at work on one split.
type worker struct {
	c        *Coordinator
	tree     Tree
	s        *State
	rows     rows
	deadline time.Duration
}

// steps carry the phases out. Each returns the phase that follows, which may be
// its own if its work is not over.
var steps = map[Phase]func(*worker, context.Context) (Phase, error){
	PhaseBeginShadowWrite: (*worker).beginShadowWrite,
	PhaseDrain:            (*worker).drain,
	PhaseSwap:             (*worker).swap,
	PhaseReject:           (*worker).reject,
	PhaseComplete:         (*worker).complete,
}

// step carries out the present phase, or a part of it, and saves what came of
// it.
func (w *worker) step(ctx context.Context) error {
	if err := w.save(ctx); err != nil {
		return err
	}
	was := w.s.Phase
	next, err := steps[was](w, ctx)
	if err != nil && w.overtaken(ctx) {
		// What failed was closed by whoever is ahead.
		err = fmt.Errorf("%w: %w", errOvertaken, err)
	}
	if err != nil {
		return fmt.Errorf("split of shard %d, %s: %w", w.s.Source, was, err)
	}
	now := w.c.Clock.Now().Milli()
	if next != was {
		w.s.Phase = next
		if _, again := w.s.Entered[next]; !again {
			w.s.Entered[next] = now
		}
		if f := w.c.Events.Phase; f != nil {
			f(ctx, w.tree, w.s, was, time.Duration(now-w.s.Entered[was])*time.Millisecond)
		}
	}
	if next == PhaseDone {
		w.s.Ended, w.s.Driver, w.s.Until = now, 0, 0
		return w.settle(ctx, w.rows.finish(ctx, w.tree.ID(), w.s))
	}
	return w.save(ctx)
}

// overtaken reports whether another coordinator has saved a newer state.
func (w *worker) overtaken(ctx context.Context) bool {
	have, err := w.rows.load(ctx, w.tree.ID(), w.s.Source)
	return err == nil && (have == nil || have.etag != w.s.etag)
}

// save writes the state and takes, or keeps, the split for this coordinator.
func (w *worker) save(ctx context.Context) error {
	w.s.Driver = w.c.Driver
	w.s.Until = w.c.Clock.Now().Milli() + driverLease.Milliseconds()
	return w.settle(ctx, w.rows.save(ctx, w.tree.ID(), w.s))
}

// settle finds out what became of a write of the state that failed. A newer
// state that is not ours ends this coordinator's work.
func (w *worker) settle(ctx context.Context, err error) error {
	if err == nil || store.Transient(err) {
		return err
	}
	have, lerr := w.rows.load(ctx, w.tree.ID(), w.s.Source)
	switch {
	case lerr != nil:
		return errors.Join(err, lerr)
	case have == nil && w.s.Phase == PhaseDone:
		return nil // the reply of the end was lost, or another coordinator ended it
	case have == nil || have.ID != w.s.ID || have.Driver != w.s.Driver || have.Until != w.s.Until || have.Phase != w.s.Phase:
		return fmt.Errorf("shard %d: %w", w.s.Source, errOvertaken)
	}
	w.s.etag = have.etag
	return nil
}

// source and target are the shards concerned.
func (w *worker) source() *shard.Shard { return w.tree.Shard(w.s.Source) }
func (w *worker) target() *shard.Shard { return w.tree.Shard(w.s.Target) }

// beginShadowWrite allocates the target, opens the migration there, and then
// the shadow-write window on the source.
func (w *worker) beginShadowWrite(ctx context.Context) (Phase, error) {
	if !w.s.HasTarget {
		id, err := w.tree.Allocate(ctx)
		if err != nil {
			return 0, err
		}
		// Saved before anything is done to the target. A crash in between
		// wastes an index.
		w.s.Target, w.s.HasTarget = id, true
		return PhaseBeginShadowWrite, nil
	}
	if err := w.target().Create(ctx); err != nil {
		return 0, err
	}
	in := shard.Incoming{ID: w.s.ID, Source: w.tree.Partition(w.s.Source), Slots: w.s.Slots}
	if err := w.target().BeginIncoming(ctx, in); err != nil {
		return 0, err
	}
	out := shard.Outgoing{ID: w.s.ID, Target: w.tree.Partition(w.s.Target), Slots: w.s.Slots}
	if err := w.source().BeginOutgoing(ctx, out); err != nil {
		return 0, err
	}
	have, _, err := w.source().Migrations(ctx)
	if err != nil {
		return 0, err
	}
	if have == nil || have.ID != w.s.ID {
		return 0, errOvertaken
	}
	if err := w.sweep(ctx); err != nil {
		return 0, err
	}
	w.s.LogSeq = have.Since
	return PhaseDrain, nil
}

// sweep replays on the target every mutation that was prepared on the source
// before the window opened and is not decided, under its transaction, version
// and expiry. One that is decided meanwhile is in the log after Since, which the
// drain follows: so no prepared mutation outlives its transaction there.
func (w *worker) sweep(ctx context.Context) error {
	prepared, err := w.source().Prepared(ctx, &w.s.Slots)
	if err != nil || len(prepared) == 0 {
		return err
	}
	records := make([]record.Record, len(prepared))
	for i, p := range prepared {
		records[i] = record.Record{Kind: record.KindPrepare, Tx: p.Tx, Entry: p.Entry}
	}
	if err := w.source().Forward(ctx, w.target(), w.s.ID, records, false); err != nil {
		return err
	}
	w.s.Retroactive += int64(len(prepared))
	return nil
}

const (
	// batchBytes bounds a batch of the drain beside SplitDrainBatchSize.
	batchBytes = 8 << 20
	// logRows bounds the log rows that one catch-up pass takes.
	logRows = 256
	// fewRows is what may be left of the log when the slots are sealed; after
	// maxPasses they are sealed whatever is left.
	fewRows   = 32
	maxPasses = 50
)

// drain walks the source by key, one pass a step, and then follows its log
// until little is left of it.
func (w *worker) drain(ctx context.Context) (Phase, error) {
	if !w.s.Drained {
		return PhaseDrain, w.walk(ctx)
	}
	left, err := w.followLog(ctx)
	if err != nil {
		return 0, err
	}
	w.s.Passes++
	if left <= fewRows || w.s.Passes >= maxPasses {
		return PhaseSwap, nil
	}
	return PhaseDrain, nil
}

// walk forwards the moved entries that follow the cursor, batch by batch, until
// the bounds of a pass are reached.
func (w *worker) walk(ctx context.Context) error {
	o := w.tree.Options()
	start, scanned := w.c.Clock.Now().Mono, int64(0)
	bound := int64(o.BackgroundDrainLeavesPerPass) * o.LeafBytes
	for {
		step := shard.Walk{After: w.s.Cursor, Entries: o.SplitDrainBatchSize, Bytes: batchBytes, Scanned: 1 << 62}
		if bound > 0 {
			step.Scanned = max(bound-scanned, 1)
		}
		p, err := w.source().Moving(ctx, &w.s.Slots, step)
		if err != nil {
			return err
		}
		if err := w.forward(ctx, shard.Merges(p.Entries)); err != nil {
			return err
		}
		scanned += p.Scanned
		w.s.Cursor, w.s.Drained = p.Last, p.Done
		took := w.c.Clock.Now().Mono - start
		long := o.BackgroundDrainMaxDuration > 0 && took >= o.BackgroundDrainMaxDuration
		if p.Done || long || bound > 0 && scanned >= bound || took >= driverLease/2 {
			return nil
		}
	}
}

// followLog forwards what the log has grown by, and returns how many rows are
// left.
func (w *worker) followLog(ctx context.Context) (left uint64, err error) {
	p, err := w.source().LogSince(ctx, w.s.LogSeq, &w.s.Slots, logRows)
	if err != nil {
		return 0, err
	}
	batch := w.tree.Options().SplitDrainBatchSize
	for rest := p.Records; len(rest) > 0; {
		n := min(batch, len(rest))
		if err := w.forward(ctx, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	w.s.LogSeq = p.Last
	return p.Head - p.Last, nil
}

func (w *worker) forward(ctx context.Context, records []record.Record) error {
	if err := w.source().Forward(ctx, w.target(), w.s.ID, records, false); err != nil {
		return err
	}
	w.s.Forwarded += int64(len(records))
	if f := w.c.Events.Forwarded; f != nil && len(records) > 0 {
		f(w.tree, len(records))
	}
	return nil
}

// swap seals the slots on the source, carries over what the log has got until
// then, and only then moves the map.
func (w *worker) swap(ctx context.Context) (Phase, error) {
	if err := w.source().Seal(ctx, w.s.ID); err != nil {
		return 0, err
	}
	if err := w.finalPass(ctx); err != nil {
		return 0, err
	}
	v, err := w.tree.Move(ctx, w.s.Source, w.s.Target, &w.s.Slots, w.stillOurs)
	if err != nil {
		return 0, err
	}
	w.s.MapVersion = v
	return PhaseReject, nil
}

// finalPass follows the log to its end. The seal stands, so what comes after
// cannot concern the slots.
func (w *worker) finalPass(ctx context.Context) error {
	for {
		left, err := w.followLog(ctx)
		if err != nil || left == 0 {
			return err
		}
	}
}

// stillOurs makes sure that the split has not been completed by another while
// this coordinator was frozen.
func (w *worker) stillOurs(ctx context.Context) error {
	have, err := w.rows.load(ctx, w.tree.ID(), w.s.Source)
	if err != nil {
		return err
	}
	if have == nil || have.ID != w.s.ID {
		return errOvertaken
	}
	return nil
}

// reject asserts the seal once more; it changes nothing.
func (w *worker) reject(ctx context.Context) (Phase, error) {
	return PhaseComplete, w.source().Seal(ctx, w.s.ID)
}

// complete takes stragglers along, closes the migration on the target, and then
// records the slots as moved away on the source.
func (w *worker) complete(ctx context.Context) (Phase, error) {
	out, _, err := w.source().Migrations(ctx)
	if err != nil {
		return 0, err
	}
	if out != nil && out.ID == w.s.ID {
		if _, incoming, err := w.target().Migrations(ctx); err != nil {
			return 0, err
		} else if open(incoming, w.s.ID) {
			if err := w.finalPass(ctx); err != nil {
				return 0, err
			}
		}
	}
	if err := w.target().EndIncoming(ctx, w.s.ID); err != nil {
		return 0, err
	}
	if err := w.source().EndOutgoing(ctx, w.s.ID); err != nil {
		return 0, err
	}
	return PhaseDone, nil
}

func open(incoming []shard.Incoming, id string) bool {
	for _, in := range incoming {
		if in.ID == id {
			return true
		}
	}
	return false
}
