package tree

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
)

// BatchMismatchError says that conditions of an atomic batch did not hold:
// nothing was written.
type BatchMismatchError struct {
	// Failed are the operations concerned, in order.
	Failed []FailedCondition
}

// FailedCondition is an operation whose condition did not hold.
type FailedCondition struct {
	// Index is its place in the batch, from 0.
	Index int
	Key   string
	// Current is the version the key had; zero if it was absent.
	Current clock.Version
}

// Error implements error.
func (e *BatchMismatchError) Error() string {
	return fmt.Sprintf("%d conditions do not hold, the first on key %q", len(e.Failed), cut(e.Failed[0].Key))
}

// maxOperationID bounds the id that a caller gives to a batch, in bytes.
const maxOperationID = 256

// AtomicBatch performs operations on different keys, all or none, as of one
// moment: no reader, through whichever instance, sees some of them and not the
// others, and none has happened if a condition does not hold
// (*BatchMismatchError). Results stand in the order of ops; what a batch over
// several shards sets has one version. It is strictly serializable together with
// operations on single keys.
//
// operation, unless empty, names the batch: whoever repeats it within
// AtomicWriteRetention gets the first outcome, and it is not done twice. The same
// name with other keys is ErrOperationMismatch; while the first is under way it
// may be ErrOperationInProgress.
//
// When it returns nil everything is durable. After any other error but
// store.ErrOutcomeUnknown nothing was written.
func (t *Tree) AtomicBatch(ctx context.Context, ops []BatchOp, operation string) ([]BatchResult, error) {
	if len(operation) > maxOperationID {
		return nil, &ArgumentError{Field: "operationId", Reason: fmt.Sprintf("%d bytes, at most %d allowed", len(operation), maxOperationID)}
	}
	writes, err := t.planAtomic(ctx, ops)
	if err != nil {
		return nil, err
	}
	if len(writes) == 0 {
		_, err := t.meta(ctx)
		return []BatchResult{}, err
	}
	if operation == "" {
		if results, done, err := t.atomicOnOneShard(ctx, writes); done || err != nil {
			return results, err
		}
	}
	return t.transact(ctx, writes, operation)
}

// planAtomic turns operations into writes, and refuses the batch for any fault.
func (t *Tree) planAtomic(ctx context.Context, ops []BatchOp) ([]shard.Write, error) {
	if len(ops) > t.db.opts.MaxBatchOperations {
		return nil, &ArgumentError{Field: "operations", Reason: fmt.Sprintf("%d operations, at most %d allowed", len(ops), t.db.opts.MaxBatchOperations)}
	}
	out := make([]BatchResult, len(ops))
	writes, _, err := t.plan(ops, out)
	if err != nil {
		return nil, err
	}
	sets := false
	seen := make(map[string]int, len(ops))
	for i := range ops {
		if out[i].Err != nil {
			return nil, out[i].Err
		}
		if first, twice := seen[ops[i].Key]; twice {
			return nil, &ArgumentError{Field: operation(i) + "key", Reason: fmt.Sprintf("is that of operation %d as well", first)}
		}
		seen[ops[i].Key] = i
		sets = sets || !ops[i].Delete
		writes[i].Blind = false
	}
	if sets {
		if err := t.checkQuota(ctx); err != nil {
			return nil, err
		}
	}
	return writes, nil
}

// atomicOnOneShard does a batch whose keys are all on one shard with one append;
// done is false if they are not, or are too much for one.
func (t *Tree) atomicOnOneShard(ctx context.Context, writes []shard.Write) (out []BatchResult, done bool, err error) {
	for try := 0; ; try++ {
		var results []shard.WriteResult
		err := t.routed(ctx, func(m *meta) (err error) {
			id, one := soleOwner(m, writes)
			if !one {
				results = nil
				return nil
			}
			results, err = t.shard(m, id).WriteAtomic(ctx, writes)
			return staleIn(results, err)
		})
		if errors.Is(err, shard.ErrNotAtomic) {
			return nil, false, nil
		}
		if err != nil || results == nil {
			return nil, false, err
		}
		if waiting, err := t.giveWayAll(ctx, writes, results, try); err != nil {
			return nil, false, err
		} else if len(waiting) > 0 {
			continue
		}
		if err := mismatches(writes, results); err != nil {
			return nil, false, err
		}
		return batchResults(results), true, nil
	}
}

// soleOwner returns the shard that owns all keys, if one does.
func soleOwner(m *meta, writes []shard.Write) (keyspace.ShardID, bool) {
	id := m.shardMap.OwnerOf(writes[0].Key)
	for i := range writes[1:] {
		if m.shardMap.OwnerOf(writes[1+i].Key) != id {
			return 0, false
		}
	}
	return id, true
}

// staleIn makes a write that was turned away the error of its request.
func staleIn(results []shard.WriteResult, err error) error {
	for i := range results {
		if err == nil && results[i].Status == shard.StatusStale {
			return shard.ErrStaleRouting
		}
	}
	return err
}

// mismatches returns a *BatchMismatchError if conditions did not hold.
func mismatches(writes []shard.Write, results []shard.WriteResult) error {
	var e BatchMismatchError
	for i := range results {
		if results[i].Status == shard.StatusMismatch {
			e.Failed = append(e.Failed, FailedCondition{Index: i, Key: writes[i].Key, Current: results[i].Version})
		}
	}
	if len(e.Failed) == 0 {
		return nil
	}
	return &e
}

func batchResults(results []shard.WriteResult) []BatchResult {
	out := make([]BatchResult, len(results))
	for i := range results {
		out[i] = batchResult(results[i])
	}
	return out
}
