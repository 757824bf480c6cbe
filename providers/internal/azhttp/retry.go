package azhttp

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// Retry bounds how often and how patiently a call is repeated that is known to
// have had no effect.
type Retry struct {
	// Attempts is how often the call is made in all, at least once.
	Attempts int
	// Wait is the pause after the first failure; it doubles from there.
	Wait time.Duration
	// MaxWait bounds each pause. A service that asks for more gets its error
	// handed to the caller, who knows better whether to wait.
	MaxWait time.Duration
}

// Reads is the policy for calls without effect.
var Reads = Retry{Attempts: 4, Wait: 50 * time.Millisecond, MaxWait: 2 * time.Second}

// Do calls f until it succeeds, fails for good, or the attempts or the context
// are used up, and returns its last error.
func (r Retry) Do(ctx context.Context, f func(context.Context) error) error {
	wait := r.Wait
	for attempt := 1; ; attempt++ {
		err := f(ctx)
		if err == nil || !store.Transient(err) || attempt >= r.Attempts || ctx.Err() != nil {
			return err
		}
		pause := jitter(wait)
		if asked := store.RetryAfter(err); asked > r.MaxWait {
			return err
		} else if asked > 0 {
			pause = asked
		}
		if !sleep(ctx, pause) {
			return err
		}
		wait = min(2*wait, r.MaxWait)
	}
}

// jitter spreads callers that failed together over half to all of the pause.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// sleep waits, and reports false if the context ends first or would.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
