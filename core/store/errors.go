package store

import (
	"errors"
	"fmt"
	"time"
)

// The categories into which providers translate, once, at their edge. The
// cause stays reachable underneath.
var (
	// ErrNotFound: the row or blob does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: an insert or create met an existing row or blob.
	ErrExists = errors.New("already exists")
	// ErrPrecondition: the stored ETag is not the one given.
	ErrPrecondition = errors.New("precondition failed")
	// ErrThrottled: the storage is over a limit; nothing was applied. The
	// error may be a *ThrottledError that says how long to wait.
	ErrThrottled = errors.New("throttled")
	// ErrUnavailable: the storage cannot be reached or failed before it
	// applied anything; trying again may help.
	ErrUnavailable = errors.New("unavailable")
	// ErrOutcomeUnknown: a write was sent and no reliable reply came back. It
	// may have been applied, or be applied later.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrTooLarge: a limit of the contract is exceeded.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: an argument the contract forbids, a fault of the caller.
	ErrInvalid = errors.New("invalid argument")
	// ErrCorrupt: stored data cannot be understood. Never retried, never
	// skipped.
	ErrCorrupt = errors.New("corrupt data")
)

// ThrottledError is an ErrThrottled with the storage's own advice.
type ThrottledError struct {
	// RetryAfter is how long the storage asks to wait; zero if it did not say.
	RetryAfter time.Duration
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("throttled (retry after %s): %v", e.RetryAfter, e.Err)
}

// Unwrap makes the error match ErrThrottled and its cause.
func (e *ThrottledError) Unwrap() []error { return []error{ErrThrottled, e.Err} }

// RetryAfter returns how long the storage asked to wait, or zero.
func RetryAfter(err error) time.Duration {
	var t *ThrottledError
	if errors.As(err, &t) {
		return t.RetryAfter
	}
	return 0
}

// Transient reports whether the same call may succeed a little later and is
// known not to have been applied.
func Transient(err error) bool {
	return errors.Is(err, ErrThrottled) || errors.Is(err, ErrUnavailable)
}

// LostRace reports whether a write failed because somebody else's came first,
// or because an earlier attempt of the same write did.
func LostRace(err error) bool {
	return errors.Is(err, ErrPrecondition) || errors.Is(err, ErrExists)
}

// Corruptf returns an ErrCorrupt that names what is wrong and where.
func Corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
