package shard

import (
	"context"

	"github.com/latticekv/lattice/core/record"
)

// Admission is asked before a large value is read from its blob for a caller, with
// its size in bytes. An error refuses the read, and is what the read ends with.
// Values that lie in a row or a leaf are in memory already. Safe for concurrent use.
type Admission func(n int64) error

type admissionKey struct{}

// WithAdmission returns a context whose reads of values are admitted by a. What a
// read does besides, such as to finish the split that is in its way, is not.
func WithAdmission(ctx context.Context, a Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// admitted asks whether a value may be brought into memory.
func admitted(ctx context.Context, e *record.Entry) error {
	admit, ok := ctx.Value(admissionKey{}).(Admission)
	if !ok || e.Ref == nil {
		return nil
	}
	return admit(e.Ref.Size)
}
