package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
)

// categories maps the sentinels of core to codes, the more telling first: an
// error may carry several (a lost reply because the deadline passed).
var categories = []struct {
	err    error
	code   Code
	detail string
}{
	{tree.ErrTreeNotFound, CodeTreeNotFound, "no tree has this name"},
	{tree.ErrTreeExists, CodeTreeExists, "a tree of this name exists with other settings"},
	{tree.ErrTreeDeleted, CodeTreeDeleted, "the tree is deleted; it can be recovered until it is purged"},
	{tree.ErrTreeNotDeleted, CodeTreeExists, "the tree is not deleted, which this needs"},
	{tree.ErrTreeNotEmpty, CodeTreeNotEmpty, "the tree holds keys, or remembers deleted ones; this load needs an empty tree"},
	{tree.ErrCursorNotFound, CodeCursorNotFound, "no cursor of this tree has this id; one that is not used expires"},
	{tree.ErrSnapshotExpired, CodeSnapshotExpired, "the snapshot of the cursor is not kept any more; open another cursor"},
	{tree.ErrTooManySnapshots, CodeQuotaExceeded, "the tree has as many snapshots open as it may; close one, or wait until one expires"},
	{tree.ErrOperationNotFound, CodeOperationNotFound, "no bulk load of this tree has this operation id"},
	{tree.ErrOperationInProgress, CodeOperationInProgress, "another bulk load of the tree is open; commit or abort it"},
	{tree.ErrOperationMismatch, CodeOperationMismatch, "the chunk was begun with other contents, or the bulk load has ended in another way"},
	{tree.ErrReshardInProgress, CodeOperationInProgress, "a reshard to another shard count is in progress; wait for its end"},
	{tree.ErrRoutingUnstable, CodeRoutingUnstable, "the owner of the key could not be found in time; try again"},
	{tree.ErrTopologyUnstable, CodeTopologyUnstable, "the shard map moved too often meanwhile; try again"},
	{store.ErrOutcomeUnknown, CodeUnavailable, "the storage's reply was lost: the write may have been applied or not"},
	{store.ErrThrottled, CodeStorageThrottled, "the storage is over a limit; try again later"},
	{store.ErrUnavailable, CodeUnavailable, "the storage cannot be reached; try again later"},
	{store.ErrTooLarge, CodeRequestTooLarge, "the request is larger than the storage takes"},
	{context.DeadlineExceeded, CodeUnavailable, "the time for the request ran out; a write may have been applied or not"},
	{context.Canceled, CodeUnavailable, "the request was cancelled"},
}

// classify is the one place where a category of error becomes a status.
func classify(err error) Problem {
	p := classifyCause(err)
	if l := (*lineError)(nil); errors.As(err, &l) {
		p.Line = l.line
		p.Detail = clip(fmt.Sprintf("line %d: %s", l.line, p.Detail), maxDetailBytes)
	}
	if l := (*streamError)(nil); errors.As(err, &l) {
		p.AcceptedEntryCount = &l.accepted
	}
	return p
}

func classifyCause(err error) Problem {
	if p, ok := classifyTyped(err); ok {
		return p
	}
	if p, ok := classifyBulk(err); ok {
		return p
	}
	if errors.Is(err, store.ErrCorrupt) {
		return newProblem(CodeInternal, "stored data cannot be understood: "+err.Error())
	}
	for _, c := range categories {
		if errors.Is(err, c.err) {
			p := newProblem(c.code, c.detail)
			p.OutcomeUnknown = errors.Is(err, store.ErrOutcomeUnknown)
			return advise(p, err)
		}
	}
	return newProblem(CodeInternal, "an unexpected error; the log has it under the request id")
}

// classifyTyped handles the errors that carry data.
func classifyTyped(err error) (Problem, bool) {
	if f := (*Failure)(nil); errors.As(err, &f) {
		p := newProblem(f.Code, f.Detail)
		p.Limit = f.Limit
		p.challenge = f.challenge
		if f.RetryAfter > 0 {
			p.RetryAfter = retrySeconds(f.RetryAfter)
		}
		return advise(p, err), true
	}
	if a := (*tree.ArgumentError)(nil); errors.As(err, &a) {
		return newProblem(CodeInvalidArgument, a.Error()), true
	}
	if l := (*tree.LimitError)(nil); errors.As(err, &l) {
		p := newProblem(limitCode(l), l.Error())
		p.Limit, p.Key = l.Limit, clip(l.Key, maxProblemKeyBytes)
		return p, true
	}
	if m := (*tree.MismatchError)(nil); errors.As(err, &m) {
		p := newProblem(CodeVersionMismatch, m.Error())
		p.current = m.Current
		return p, true
	}
	if m := (*tree.BatchMismatchError)(nil); errors.As(err, &m) {
		p := newProblem(CodeVersionMismatch, m.Error()+"; nothing was written")
		p.batchProblem = newBatchProblem(m)
		if len(m.Failed) > 0 {
			p.Key, p.current = clip(m.Failed[0].Key, maxProblemKeyBytes), m.Failed[0].Current
		}
		return p, true
	}
	return classifyBatch(err)
}

// classifyBatch handles what an atomic batch says about its operation id. Unlike
// a bulk load, an operation under way is over soon: its outcome can be had.
func classifyBatch(err error) (Problem, bool) {
	if b := (*batchError)(nil); !errors.As(err, &b) {
		return Problem{}, false
	}
	switch {
	case errors.Is(err, tree.ErrOperationMismatch):
		return newProblem(CodeOperationMismatch, "an atomic batch of other keys has this operation id; nothing was written"), true
	case errors.Is(err, tree.ErrOperationInProgress):
		p := newProblem(CodeOperationInProgress, "the atomic batch of this operation id is under way; ask again for its outcome")
		p.RetryAfter = retrySeconds(store.RetryAfter(err))
		return p, true
	}
	return Problem{}, false
}

func limitCode(l *tree.LimitError) Code {
	switch l.What {
	case "key":
		return CodeKeyTooLong
	case "value":
		return CodeValueTooLarge
	}
	return CodeRequestTooLarge
}

// classifyBulk handles the errors of bulk loads and admission caps that carry
// data.
func classifyBulk(err error) (Problem, bool) {
	if o := (*tree.OrderError)(nil); errors.As(err, &o) {
		p := newProblem(CodeBulkLoadOrder, o.Error())
		p.Tree, p.Key, p.PreviousKey = o.Tree, clip(o.Key, maxProblemKeyBytes), clip(o.Previous, maxProblemKeyBytes)
		if o.Chunk >= 0 {
			p.ChunkIndex = &o.Chunk
		}
		if o.Index >= 0 {
			p.EntryIndex = &o.Index
		}
		return p, true
	}
	if s := (*tree.SequenceError)(nil); errors.As(err, &s) {
		p := newProblem(CodeChunkOutOfSequence, s.Error())
		p.ChunkIndex, p.ExpectedChunkIndex = &s.Index, &s.Expected
		return p, true
	}
	if q := (*tree.QuotaError)(nil); errors.As(err, &q) {
		p := newProblem(CodeQuotaExceeded, q.Error())
		p.Limit = q.Limit
		return p, true
	}
	return classifySession(err)
}

// advise adds when to try again to a 503.
func advise(p Problem, err error) Problem {
	if p.Status != meanings[CodeUnavailable].status {
		return p
	}
	wait := store.RetryAfter(err)
	if f := (*Failure)(nil); wait == 0 && errors.As(err, &f) {
		wait = f.RetryAfter
	}
	p.RetryAfter = retrySeconds(wait)
	return p
}

// argument returns an error about one argument, in the caller's words.
func argument(field, format string, args ...any) error {
	return &tree.ArgumentError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
