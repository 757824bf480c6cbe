package client

import (
	"context"
	"crypto/rand"
)

// AtomicOptions qualify an Atomic.
type AtomicOptions struct {
	// OperationID names the batch, in up to 256 bytes; empty draws one. Whoever
	// repeats a batch under its name gets the first outcome, for as long as the
	// service remembers it (AtomicWriteRetention, a day by default), and the batch
	// is not done twice. What counts is the set of keys: the same name with other
	// keys is ErrOperationMismatch, but other values or conditions are not looked
	// at.
	OperationID string
}

// NewOperationID draws a name for an atomic batch. Who keeps it can ask for the
// outcome later, even in another process.
func NewOperationID() string { return rand.Text() }

// Atomic carries out operations on different keys, all or none, as of one
// moment, on however many shards: no reader sees a part of them. If a condition
// does not hold the error is ErrVersionMismatch, Error.Batch says which, and
// nothing is written.
//
// The batch has a name, and so it is repeated even when its outcome is unknown:
// it is done once. If Atomic gives up all the same, a later Atomic with the same
// OperationID and operations finds out, or brings it to its end. A name costs the
// service a record of the outcome; whoever writes many batches to single shards,
// and can do without safe repetition, uses Batch with Atomic and no OperationID.
func (t *Tree) Atomic(ctx context.Context, ops []Op, o AtomicOptions) ([]OpResult, error) {
	if o.OperationID == "" {
		o.OperationID = NewOperationID()
	}
	return t.Batch(ctx, Batch{Ops: ops, Atomic: true, OperationID: o.OperationID})
}

// BatchFailure says which conditions of an atomic batch did not hold.
type BatchFailure struct {
	// Failed are the operations concerned, in order; the first ones if they are
	// very many.
	Failed []FailedCondition
	// Count is how many there are.
	Count int
}

// FailedCondition is an operation whose condition did not hold.
type FailedCondition struct {
	// Index is its place in the batch, from 0.
	Index int    `json:"index"`
	Key   string `json:"key"`
	// Version is the one the key has; empty if the key is absent.
	Version string `json:"version"`
}

// batchProblem is the part of a problem that only atomic batches have.
type batchProblem struct {
	Failed      []FailedCondition `json:"failed"`
	FailedCount int               `json:"failedCount"`
}

func (p *batchProblem) batchFailure() *BatchFailure {
	if len(p.Failed) == 0 {
		return nil
	}
	return &BatchFailure{Failed: p.Failed, Count: max(p.FailedCount, len(p.Failed))}
}
