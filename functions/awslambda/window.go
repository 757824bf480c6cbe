package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/latticekv/lattice/functions/telemetry"
)

const (
	// minMargin is kept free at the end of an invocation for a handler to notice
	// that its time is over, to say so, and for the answer to get out: tens of
	// milliseconds each, on a small machine that collects garbage meanwhile.
	minMargin = 500 * time.Millisecond
	// marginShare makes the margin a 20th of a longer time, because a handler with
	// more time has more to put away; maxMargin is enough for anything.
	marginShare = 20
	maxMargin   = 5 * time.Second
	// minWork is the least time beside the margin with which anything can be
	// done: a few round trips to the storage.
	minWork = 250 * time.Millisecond
)

// errTimeUp ends what is still at work when the host's time is nearly over.
var errTimeUp = fmt.Errorf("the host's time for the invocation ran out: %w", context.DeadlineExceeded)

// window is the time that an invocation has. The zero one is without bounds.
type window struct {
	// finish is when the work is told to end, cut when it is answered for whether
	// it ended or not. The host kills the process a little after that.
	finish, cut time.Time
}

// newWindow divides the time until the context's deadline. It reports whether
// there is enough to begin anything.
func newWindow(ctx context.Context) (w window, enough bool) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return window{}, true
	}
	// The deadline is a time of the wall clock: a freeze has used it up as well.
	left := time.Until(end)
	margin := marginOf(left)
	return window{end.Add(-margin), end.Add(-margin / 2)}, left >= margin+minWork
}

// marginOf returns what is kept free of the time of an invocation.
func marginOf(left time.Duration) time.Duration {
	return min(max(left/marginShare, minMargin), maxMargin)
}

// work returns the context of the work: it ends at finish.
func (w window) work(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.finish.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, w.finish, errTimeUp)
}

// untilCut returns a channel that delivers at the cut, and what frees it.
func (w window) untilCut() (<-chan time.Time, func()) {
	if w.finish.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(w.cut))
	return timer.C, func() { timer.Stop() }
}

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack []byte
}

// Error implements error.
func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.value) }

// serve runs the service's handler. A panic becomes an error: in a goroutine of
// ours it would end the process.
func (f *function) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			failure := &panicError{p, debug.Stack()}
			f.logger.Error("handler panicked", telemetry.RequestID, r.Header.Get("X-Request-Id"), "panic", fmt.Sprint(p), "stack", string(failure.stack))
			err = failure
		}
	}()
	f.service.ServeHTTP(w, r)
	return nil
}
