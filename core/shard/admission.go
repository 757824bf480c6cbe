package shard

import "context"

// Admission is asked before a large value is read from its blob for a caller, with
// its size in bytes. An error refuses the read, and is what the read ends with. If
// the blob cannot be read it is told so, with the size below zero. Values that lie
// in a row or a leaf are in memory already. Safe for concurrent use.
type Admission func(n int64) error

type admissionKey struct{}

// WithAdmission returns a context whose reads of values are admitted by a. What a
// read does besides, such as to finish the split that is in its way, is not.
func WithAdmission(ctx context.Context, a Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// admissionOf returns the admission of a context, one of everything if it has none.
func admissionOf(ctx context.Context) Admission {
	if a, ok := ctx.Value(admissionKey{}).(Admission); ok {
		return a
	}
	return func(int64) error { return nil }
}
