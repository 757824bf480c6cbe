package tree

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/txn"
	"golang.org/x/sync/errgroup"
)

// How readers and writers deal with keys that an atomic batch has prepared. The
// batch's row says whether it has happened; nobody guesses.

// outcomeOf returns how an attempt of a batch stands. One that is overdue is
// aborted first: its coordinator is gone, or too slow.
func (t *Tree) outcomeOf(ctx context.Context, m *meta, tx record.ID) (txn.Outcome, error) {
	o, err := t.db.txns.Lookup(ctx, m.ID, tx)
	if err == nil && o.State == txn.Pending && t.db.clock.Now().Milli() > o.Deadline {
		o, err = t.db.txns.Abort(ctx, m.ID, tx)
	}
	if err != nil {
		return txn.Outcome{}, fmt.Errorf("find out about an atomic batch: %w", err)
	}
	return o, nil
}

// looked is when shards were looked at that had undecided mutations.
type looked struct {
	at clock.Instant
	// old says that the look may be older than that.
	old bool
}

// tooOld reports whether decisions that were there when shards were looked at may
// have been forgotten by now: the process was frozen, or an old view was used. A
// decision is kept for TxDecisionRetention after every shard was told of it; half
// of that is for clocks that disagree.
func (l looked) tooOld(m *meta, now clock.Instant) bool {
	return l.old || age(l.at, now) > m.opts.TxDecisionRetention/2
}

// errForgotten: a decision may have been forgotten since the shards were looked at.
// Another look finds what came of the batch.
var errForgotten = fmt.Errorf("the decision of an atomic batch was forgotten meanwhile: %w", store.ErrUnavailable)

// outcomes returns those of several attempts that were committed, which were seen
// in a look at shards. It is errForgotten if that cannot be said any more.
func (t *Tree) outcomes(ctx context.Context, m *meta, txs []record.ID, l looked) (shard.Outcomes, error) {
	found := make([]txn.Outcome, len(txs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for i, tx := range txs {
		g.Go(func() (err error) {
			found[i], err = t.outcomeOf(gctx, m, tx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := make(shard.Outcomes, len(txs))
	for i, o := range found {
		if o.Gone && l.tooOld(m, t.db.clock.Now()) {
			return nil, errForgotten
		}
		if o.State == txn.Committed {
			out[txs[i]] = o.Version
		}
	}
	return out, nil
}

// settleRead answers a read that met undecided mutations of its key. While a
// batch is pending, what was there before it is the answer: it had not happened
// when its row was read. old says that an old view was asked.
func (t *Tree) settleRead(ctx context.Context, key string, p *shard.PendingError, old bool) (record.Entry, bool, error) {
	m, err := t.meta(ctx)
	if err != nil {
		return record.Entry{}, false, err
	}
	txs := make([]record.ID, len(p.Prepared))
	for i := range p.Prepared {
		txs[i] = p.Prepared[i].Tx
	}
	o, err := t.outcomes(ctx, m, txs, looked{at: p.At, old: old})
	if err != nil {
		return record.Entry{}, false, err
	}
	e, ok := p.Settle(o)
	if !ok || e.Ref == nil {
		return e, ok, nil
	}
	value, err := t.owner(m, key).Load(ctx, &e)
	if errors.Is(err, store.ErrNotFound) {
		// It was replaced and collected since; a second look finds the rest.
		return e, false, fmt.Errorf("a value was replaced while it was read: %w", store.ErrUnavailable)
	}
	e.Value, e.Ref = value, nil
	return e, ok, err
}

// giveWay removes an undecided batch from the way of a write: it tells the key's
// shard how the batch has ended, or waits a little if it has not. older, unless
// nil, says whether the caller goes before a pending batch, which is aborted
// then.
func (t *Tree) giveWay(ctx context.Context, key string, tx record.ID, try int, older func(clock.HLC) bool) error {
	m, err := t.meta(ctx)
	if err != nil {
		return err
	}
	o, err := t.outcomeOf(ctx, m, tx)
	if err == nil && o.State == txn.Pending && older != nil && older(o.Start) {
		o, err = t.db.txns.Abort(ctx, m.ID, tx)
	}
	if err != nil {
		return err
	}
	if o.State == txn.Pending {
		if err := t.db.reg.pause(ctx, try, 0); err != nil {
			return fmt.Errorf("the key is part of an undecided batch: %w: %w", store.ErrUnavailable, err)
		}
		return nil
	}
	return t.routed(ctx, func(m *meta) error { return tell(ctx, t.owner(m, key), tx, o, nil) })
}

// tell lets a shard know how an attempt of a batch has ended, and that earlier
// attempts are void. slots, unless nil, are those of the batch that the shard is
// taken to own: shard.ErrStaleRouting says that another owner must be told, too.
func tell(ctx context.Context, l shardLog, tx record.ID, o txn.Outcome, slots *keyspace.SlotSet, void ...record.ID) error {
	w := shard.Write{Op: shard.OpAbort, Tx: tx, Slots: slots}
	if o.State == txn.Committed {
		w.Op, w.Version = shard.OpCommit, o.Version
	}
	writes := []shard.Write{w}
	for _, tx := range void {
		writes = append(writes, shard.Write{Op: shard.OpAbort, Tx: tx})
	}
	results, err := l.Write(ctx, writes)
	return staleIn(results, err)
}
