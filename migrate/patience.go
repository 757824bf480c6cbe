package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/latticekv/lattice/client"
)

const (
	basePause = 200 * time.Millisecond
	maxPause  = 10 * time.Second
	// throttledFactor is how much longer a service may throttle that answers and
	// says when to come again.
	throttledFactor = 12
)

// patiently makes a call until it succeeds, fails for good, or RetryFor is
// over. A service that asks to wait is waited for as long as it asks, and
// longer in total, for it is alive.
func (m *migration) patiently(ctx context.Context, call func() error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := call()
		if err == nil || !client.Retryable(err) || ctx.Err() != nil {
			m.reached = m.reached || !client.Retryable(err)
			return m.interruptedOr(ctx, err)
		}
		patience := m.RetryFor
		switch asked := client.RetryAfter(err); {
		case asked > 0:
			m.reached = true
			patience = m.RetryFor * throttledFactor
		case !m.reached:
			patience = min(patience, firstContact)
		}
		wait := client.Pause(n, basePause, maxPause, err)
		if spent := time.Since(start); spent+wait > patience {
			return fmt.Errorf("%w: it was waited for during %s: %w", ErrPatience, spent.Round(time.Second), err)
		}
		if err := m.wait(ctx, wait, err); err != nil {
			return err
		}
	}
}

// wait pauses, and says so.
func (m *migration) wait(ctx context.Context, d time.Duration, why error) error {
	m.Stats.trouble.Store(&why)
	m.Stats.Waiting.Add(1)
	defer m.Stats.Waiting.Add(-1)
	m.Notify(Event{Kind: EventWait, Text: fmt.Sprintf("the service does not answer well; trying again in %s", d.Round(100*time.Millisecond))})
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return m.interruptedOr(ctx, ctx.Err())
	}
}

// interruptedOr returns ErrInterrupted if the context has ended.
func (m *migration) interruptedOr(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}
