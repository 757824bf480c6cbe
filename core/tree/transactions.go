package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/txn"
	"golang.org/x/sync/errgroup"
)

// TransactionsReport says what a tick of Transactions did.
type TransactionsReport struct {
	// Trees and Rows are the numbers looked at; Complete says that the walk came
	// round.
	Trees, Rows int
	Complete    bool
	// Aborted are batches that were overdue, Told those of which the shards were
	// told, Removed those that were forgotten.
	Aborted, Told, Removed int
	// Failed counts failures; the first ones are in Failures.
	Failed   int
	Failures []Failure
}

// txPage is how many rows a tick reads at a time, maxTxRows how many of one tree
// it looks at.
const (
	txPage    = 200
	maxTxRows = 10_000
)

// Transactions finishes atomic batches whose coordinator is gone: it aborts what
// is overdue, tells the shards what was decided, and forgets what is done, tree
// after tree for as long as the budget lasts (0 is TickBudget). Calls may
// overlap.
func (db *DB) Transactions(ctx context.Context, budget time.Duration) (TransactionsReport, error) {
	var (
		out TransactionsReport
		rep Report
		cut bool
	)
	w := db.walker("~walk-transactions", budget, &rep)
	w.tree = func(ctx context.Context, s stored) (bool, error) {
		if s.State != StateActive || !s.Settled {
			return false, nil
		}
		done, err := db.finishBatches(ctx, s, w.deadline, &out)
		cut = cut || !done
		return false, err
	}
	err := w.run(ctx)
	out.Trees, out.Complete, out.Failed, out.Failures = rep.Trees, rep.Complete && !cut, rep.Failed, rep.Failures
	return out, err
}

// finishBatches looks at the batches of one tree, and at one at least. It reports
// whether it came to the end before the deadline; what is left is met again by
// the next tick, which passes quickly over what is done.
func (db *DB) finishBatches(ctx context.Context, s stored, deadline time.Duration, rep *TransactionsReport) (done bool, err error) {
	m, err := newMeta(s, db.opts, db.clock.Now())
	if err != nil {
		return true, err
	}
	t := &db.entryOf(s.Name).reader
	var failed []error
	for place, n := "", 0; n < maxTxRows; {
		page, err := db.txns.List(ctx, m.ID, place, txPage)
		if err != nil {
			return true, errors.Join(append(failed, err)...)
		}
		for i, r := range page.Rows {
			if n+i > 0 && db.clock.Now().Mono >= deadline {
				return false, errors.Join(failed...)
			}
			rep.Rows++
			if err := t.finishBatch(ctx, m, r, rep); err != nil && len(failed) < maxFailures {
				failed = append(failed, err)
			}
		}
		n += len(page.Rows)
		if place = page.Next; place == "" {
			return true, errors.Join(failed...)
		}
	}
	return false, errors.Join(failed...)
}

// finishBatch brings one batch forward.
func (t *Tree) finishBatch(ctx context.Context, m *meta, r *txn.Row, rep *TransactionsReport) error {
	now := t.db.clock.Now()
	if r.State == txn.Pending {
		if now.Milli() <= r.Deadline {
			return nil
		}
		o, err := t.db.txns.Abort(ctx, m.ID, r.Tx())
		if err != nil {
			return err
		}
		if o.State == txn.Aborted {
			rep.Aborted++
		}
		if r, err = t.db.txns.Read(ctx, m.ID, r.ID); err != nil {
			return ignore(err, txn.ErrNoRow)
		}
	}
	keep := m.opts.TxDecisionRetention
	if r.Operation != "" {
		keep = m.opts.AtomicWriteRetention
	}
	age := r.Age(now)
	if !r.Told && !t.db.txns.IsDone(m.ID, r) && (r.State == txn.Aborted || age >= m.opts.TxTimeout) {
		if err := t.tellOwners(ctx, m, r); err != nil {
			return ignore(err, shard.ErrStaleRouting) // under the new map, next time
		}
		rep.Told++
		err := t.db.txns.Change(ctx, m.ID, r, func(r *txn.Row) { r.Told = true })
		return ignore(err, txn.ErrLost)
	}
	if r.Told && age >= keep || age >= 2*keep && t.db.txns.IsDone(m.ID, r) {
		rep.Removed++
		return t.db.txns.Remove(ctx, m.ID, r)
	}
	return nil
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// tellOwners tells how a batch has ended to every shard that was asked to prepare
// a part of it, and to those that own its keys by now: shard.ErrStaleRouting if
// the map does not say who does.
func (t *Tree) tellOwners(ctx context.Context, m *meta, r *txn.Row) error {
	ids := map[keyspace.ShardID]*keyspace.SlotSet{}
	for _, id := range r.Shards {
		ids[id] = &keyspace.SlotSet{}
	}
	for _, run := range r.Slots.Ranges() {
		for slot := int(run[0]); slot <= int(run[1]); slot++ {
			id := m.shardMap.Owner(uint16(slot))
			if ids[id] == nil {
				ids[id] = &keyspace.SlotSet{}
			}
			ids[id].Add(uint16(slot))
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if int(id) >= len(m.partitions) {
			return store.Corruptf("transaction %x names shard %d, which tree %q never had", r.ID, id, t.name)
		}
		g.Go(func() error {
			err := tell(gctx, t.shard(m, id), r.Tx(), txn.Outcome{State: r.State, Version: r.Version}, ids[id], r.Void()...)
			if errors.Is(err, shard.ErrNoShard) {
				return nil // given up in a migration that ended long ago
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("tell how an atomic batch ended: %w", err)
	}
	return nil
}
