package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/txn"
	"golang.org/x/sync/errgroup"
)

// transaction is an atomic batch over several shards, as its coordinator sees it.
// The coordinator has no privilege: whoever meets what it left behind can finish
// it. See package txn.
type transaction struct {
	t      *Tree
	treeID string
	writes []shard.Write
	// places are the writes in order of keys: so the row has their results.
	places []int
	row    *txn.Row
	// top is the highest version of a prepared mutation.
	top clock.Version
	// existed, by write, says that the key was live.
	existed []bool
	// asked are the shards that may hold prepared mutations, with the slots of
	// those.
	mu    sync.Mutex
	asked map[keyspace.ShardID]*keyspace.SlotSet
}

// errRetry: the attempt was aborted by somebody else; the batch begins again.
var errRetry = errors.New("the attempt was aborted")

// maxAttempts bounds the attempts of one request. The oldest batch is never
// aborted by others before its deadline, so few are needed.
const maxAttempts = 64

// transact performs a batch by two-phase commit.
func (t *Tree) transact(ctx context.Context, writes []shard.Write, operation string) ([]BatchResult, error) {
	x := &transaction{t: t, writes: writes, places: make([]int, len(writes))}
	for i := range x.places {
		x.places[i] = i
	}
	slices.SortFunc(x.places, func(a, b int) int { return cmp.Compare(writes[a].Key, writes[b].Key) })
	results, over, err := x.begin(ctx, operation)
	if over || err != nil {
		return results, err
	}
	for attempt := 0; ; attempt++ {
		results, err := x.attempt(ctx)
		if !errors.Is(err, errRetry) {
			return results, err
		}
		if attempt == maxAttempts || t.db.reg.pause(ctx, attempt, 0) != nil {
			return nil, fmt.Errorf("atomic batch: %w: %w", err, store.ErrUnavailable)
		}
		if results, over, err = x.again(ctx); over || err != nil {
			return results, err
		}
	}
}

// begin records the batch. It is over if it was done before under the same name.
func (x *transaction) begin(ctx context.Context, operation string) (results []BatchResult, over bool, err error) {
	m, err := x.t.meta(ctx)
	if err != nil {
		return nil, false, err
	}
	x.treeID = m.ID
	now, first := x.t.db.clock.Now(), x.t.db.txns.FirstAttempt()
	r := txn.Row{
		ID: x.t.db.txns.NewID(), First: first, Attempt: first, State: txn.Pending,
		Start: clock.Next(0, now), Deadline: x.deadline(m, now), Operation: operation, Keys: len(x.writes),
	}
	owners := map[keyspace.ShardID]bool{}
	for i := range x.writes {
		r.Slots.Add(keyspace.Slot(x.writes[i].Key))
		owners[m.shardMap.OwnerOf(x.writes[i].Key)] = true
	}
	r.Shards = slices.Sorted(maps.Keys(owners))
	if operation != "" {
		keys := make([]string, len(x.writes))
		for i := range x.writes {
			keys[i] = x.writes[i].Key
		}
		r.ID, r.Fingerprint = txn.OperationID(operation), txn.Fingerprint(keys)
	}
	row, mine, err := x.t.db.txns.Begin(ctx, x.treeID, r, m.opts.TxDecisionRetention)
	if err != nil {
		return nil, false, err
	}
	x.row = row
	if mine && row.State == txn.Pending {
		return nil, false, nil
	}
	return x.inherit(ctx, &r)
}

func (x *transaction) deadline(m *meta, now clock.Instant) int64 {
	return now.Milli() + m.opts.TxTimeout.Milliseconds()
}

// inherit deals with a batch of the same name: its outcome is the caller's, if it
// has one, and if it never came to one the batch is taken over.
func (x *transaction) inherit(ctx context.Context, r *txn.Row) (results []BatchResult, over bool, err error) {
	if x.row.Operation != r.Operation || x.row.Fingerprint != r.Fingerprint {
		return nil, true, fmt.Errorf("operation %q was a batch of other keys: %w", r.Operation, ErrOperationMismatch)
	}
	for try := 0; x.row.State == txn.Pending; try++ {
		if x.t.db.clock.Now().Milli() > x.row.Deadline {
			if _, err = x.t.db.txns.Abort(ctx, x.treeID, x.row.Tx()); err != nil {
				return nil, true, err
			}
		} else if x.t.db.reg.pause(ctx, try, 0) != nil {
			return nil, true, fmt.Errorf("operation %q: %w", r.Operation, ErrOperationInProgress)
		}
		if x.row, err = x.t.db.txns.Read(ctx, x.treeID, x.row.ID); errors.Is(err, txn.ErrNoRow) {
			err = fmt.Errorf("operation %q was forgotten meanwhile: %w: %w", r.Operation, store.ErrUnavailable, err)
		}
		if err != nil {
			return nil, true, err
		}
	}
	return x.again(ctx)
}

// again begins another attempt of an aborted batch, under the same row. It is
// over if the row has the outcome: another request of the same name may have
// taken the batch over, and what it decided stands.
func (x *transaction) again(ctx context.Context) (results []BatchResult, over bool, err error) {
	m, err := x.t.meta(ctx)
	if err != nil {
		return nil, false, err
	}
	for {
		switch {
		case x.row.State == txn.Committed:
			return x.committed(), true, nil
		case x.row.Final:
			return nil, true, x.mismatch()
		case x.row.State == txn.Pending:
			return nil, true, fmt.Errorf("operation %q: %w", x.row.Operation, ErrOperationInProgress)
		}
		err = x.t.db.txns.Change(ctx, x.treeID, x.row, func(r *txn.Row) {
			r.Attempt++
			r.State, r.Floor, r.Told = txn.Pending, 0, false
			r.Deadline = x.deadline(m, x.t.db.clock.Now())
		})
		switch {
		case errors.Is(err, txn.ErrNoRow):
			return nil, true, fmt.Errorf("atomic batch: %w: %w", store.ErrUnavailable, err)
		case !errors.Is(err, txn.ErrLost):
			return nil, err != nil, err
		}
		// The tick has noted that the shards were told, as a rule.
	}
}

// attempt prepares, decides, and tells the shards. errRetry says that somebody
// else aborted it.
func (x *transaction) attempt(ctx context.Context) ([]BatchResult, error) {
	x.top, x.existed, x.asked = clock.Version{}, make([]bool, len(x.writes)), map[keyspace.ShardID]*keyspace.SlotSet{}
	tx := x.row.Tx()
	results, err := x.prepare(ctx, tx)
	if err == nil {
		if err = mismatches(x.writes, results); err == nil {
			if err = x.commit(ctx); err == nil {
				// Readers and ticks finish what fails here: the batch has happened.
				if x.tellAll(ctx, tx, txn.Outcome{State: txn.Committed, Version: x.row.Version}) == nil && x.row.Operation == "" {
					x.t.db.txns.Done(x.treeID, x.row)
				}
				return x.committed(), nil
			}
			return nil, err
		}
	}
	return nil, x.abandon(ctx, tx, results, err)
}

// abandon aborts an attempt and frees its keys, for the reason given.
func (x *transaction) abandon(ctx context.Context, tx record.ID, results []shard.WriteResult, cause error) error {
	var mismatch *BatchMismatchError
	final := errors.As(cause, &mismatch)
	err := x.t.db.txns.Change(ctx, x.treeID, x.row, func(r *txn.Row) {
		r.State, r.Final = txn.Aborted, final
		if final {
			r.Results = x.outcomesOf(results)
		}
	})
	lost := errors.Is(err, txn.ErrLost)
	if err == nil || lost {
		_ = x.tellAll(ctx, tx, txn.Outcome{State: txn.Aborted})
	}
	switch {
	case lost && final:
		return errRetry // so that the outcome is recorded under its name
	case err != nil && final && x.row.Operation != "":
		return err // whoever asks again may hear of another outcome
	}
	return cause
}

// prepare stages every write on its shard, until all are, or a condition does not
// hold, or the attempt is over.
func (x *transaction) prepare(ctx context.Context, tx record.ID) ([]shard.WriteResult, error) {
	prepares := make([]shard.Write, len(x.writes))
	for i, w := range x.writes {
		w.Tombstone = w.Op == shard.OpDelete
		w.Op, w.Tx, w.Blind = shard.OpPrepare, tx, false
		prepares[i] = w
	}
	results := make([]shard.WriteResult, len(prepares))
	pending := make([]int, len(prepares))
	for i := range pending {
		pending[i] = i
	}
	for try := 0; ; try++ {
		err := x.t.routed(ctx, func(m *meta) (err error) {
			if m.ID != x.treeID {
				return fmt.Errorf("tree %q was purged and created again: %w", x.t.name, ErrTreeNotFound)
			}
			x.ask(m, prepares, pending)
			pending, err = x.t.writeRound(ctx, m, prepares, results, pending)
			return err
		})
		if err != nil {
			return results, err
		}
		if pending = x.conflicts(results); len(pending) == 0 || mismatches(x.writes, results) != nil {
			x.note(results)
			return results, nil
		}
		if err := x.contend(ctx, prepares, results, pending, try); err != nil {
			return results, err
		}
	}
}

// ask notes which shards are about to be asked to prepare.
func (x *transaction) ask(m *meta, prepares []shard.Write, places []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, i := range places {
		slot := keyspace.Slot(prepares[i].Key)
		id := m.shardMap.Owner(slot)
		if x.asked[id] == nil {
			x.asked[id] = &keyspace.SlotSet{}
		}
		x.asked[id].Add(slot)
	}
}

func (x *transaction) conflicts(results []shard.WriteResult) (places []int) {
	for i := range results {
		if results[i].Status == shard.StatusPending {
			places = append(places, i)
		}
	}
	return places
}

// contend deals with other batches that hold keys of this one: those that began
// later are aborted, those that began earlier waited for. Holding on to what is
// prepared meanwhile is safe, since waiting goes from the younger to the older.
func (x *transaction) contend(ctx context.Context, prepares []shard.Write, results []shard.WriteResult, places []int, try int) error {
	met := map[record.ID]bool{}
	for _, i := range places {
		tx := results[i].Tx
		if met[tx] {
			continue
		}
		met[tx] = true
		if err := x.t.giveWay(ctx, prepares[i].Key, tx, try, x.older(tx)); err != nil {
			return err
		}
	}
	// Somebody older may have aborted this one meanwhile.
	now, err := x.t.db.txns.Lookup(ctx, x.treeID, x.row.Tx())
	if err == nil && now.State == txn.Aborted {
		return errRetry
	}
	return err
}

// older reports whether this batch began before another that began at start; the
// id decides between those of the same time.
func (x *transaction) older(other record.ID) func(clock.HLC) bool {
	mine := x.row.Tx()
	return func(start clock.HLC) bool {
		if x.row.Start != start {
			return x.row.Start < start
		}
		return string(mine[:]) < string(other[:])
	}
}

// note takes from the results what the decision needs.
func (x *transaction) note(results []shard.WriteResult) {
	for i, r := range results {
		x.existed[i] = r.Existed
		if r.Version.Compare(x.top) > 0 {
			x.top = r.Version
		}
	}
}

// commit makes the batch happen: the row's change to committed is the moment.
func (x *transaction) commit(ctx context.Context) error {
	for {
		row := *x.row
		err := x.t.db.txns.Change(ctx, x.treeID, x.row, func(r *txn.Row) {
			r.State = txn.Committed
			r.Version = clock.Version{Time: clock.Next(max(x.top.Time, r.Floor), x.t.db.clock.Now()), Writer: x.top.Writer}
			if r.Operation != "" {
				r.Results = x.outcomesOf(nil)
			}
		})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, txn.ErrLost):
			return err
		case errors.Is(err, txn.ErrNoRow):
			return errRetry
		case x.row.Attempt == row.Attempt && x.row.State == txn.Committed:
			return nil // by this very call, and changed again since
		case x.row.Attempt != row.Attempt || x.row.State != txn.Pending:
			_ = x.tellAll(ctx, row.Tx(), txn.Outcome{State: txn.Aborted})
			return errRetry
		}
		// A snapshot has raised the floor: once more, above it.
	}
}

// tellAll tells every shard that was asked how the attempt has ended. An error
// says that some shard may not know, one that has become the owner of keys among
// them.
func (x *transaction) tellAll(ctx context.Context, tx record.ID, o txn.Outcome) error {
	m, err := x.t.meta(ctx)
	if err != nil || m.ID != x.treeID {
		return err
	}
	x.mu.Lock()
	asked := maps.Clone(x.asked)
	x.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(fanOut)
	for id, slots := range asked {
		g.Go(func() error { return tell(ctx, x.t.shard(m, id), tx, o, slots) })
	}
	return g.Wait()
}

// outcomesOf returns the results in order of keys, as the row keeps them: those
// of the shards, or what is known of a commit.
func (x *transaction) outcomesOf(results []shard.WriteResult) []txn.Result {
	out := make([]txn.Result, len(x.places))
	for i, place := range x.places {
		out[i].Existed = x.existed[place]
		if results != nil && results[place].Status == shard.StatusMismatch {
			out[i].Mismatch = true
			if v := results[place].Version; !v.IsZero() {
				out[i].Current = v.String()
			}
		}
	}
	return out
}

// committed returns the results of a committed batch in order of its operations.
func (x *transaction) committed() []BatchResult {
	out := make([]BatchResult, len(x.writes))
	for i, place := range x.places {
		r := &out[place]
		if i < len(x.row.Results) {
			r.Existed = x.row.Results[i].Existed
		} else if x.existed != nil {
			r.Existed = x.existed[place]
		}
		if x.writes[place].Op != shard.OpDelete || r.Existed {
			r.Version = x.row.Version
		}
	}
	return out
}

// mismatch returns the conditions that did not hold, as the row has them.
func (x *transaction) mismatch() error {
	var e BatchMismatchError
	for i, place := range x.places {
		if i >= len(x.row.Results) || !x.row.Results[i].Mismatch {
			continue
		}
		v, err := clock.ParseVersion(x.row.Results[i].Current)
		if x.row.Results[i].Current != "" && err != nil {
			return store.Corruptf("transaction %x: version of a result: %v", x.row.ID, err)
		}
		e.Failed = append(e.Failed, FailedCondition{Index: place, Key: x.writes[place].Key, Current: v})
	}
	if len(e.Failed) == 0 {
		return store.Corruptf("transaction %x has no reason for its end", x.row.ID)
	}
	slices.SortFunc(e.Failed, func(a, b FailedCondition) int { return cmp.Compare(a.Index, b.Index) })
	return &e
}
