package source

import (
	"context"
	"time"
)

// EndedError is the caller's reason to stop, which is nobody's fault: a source
// does not explain it.
type EndedError struct{ cause error }

// Error implements error.
func (e *EndedError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *EndedError) Unwrap() error { return e.cause }

// Ended returns why a context has ended, as an error that matches the cause and
// says nothing but it.
func Ended(ctx context.Context) error { return &EndedError{context.Cause(ctx)} }

// Pause waits, and returns Ended if the context ends first.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return Ended(ctx)
	case <-t.C:
		return nil
	}
}
