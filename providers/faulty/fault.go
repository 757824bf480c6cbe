package faulty

import (
	"context"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// Fault does something to a call. It gets the instance, the call, and a
// function that performs the call on the store (or passes it to the next
// rule), and returns what the caller is told. A fault that performs the call
// twice reports the second result. When it returns an error, the caller sees
// no result.
type Fault func(ctx context.Context, in *Instance, c *Call, perform func(context.Context) error) error

// Fail refuses the call before it has any effect: with store.ErrUnavailable,
// store.ErrThrottled (or a *store.ThrottledError), as cause says.
func Fail(cause error) Fault {
	return func(_ context.Context, _ *Instance, c *Call, _ func(context.Context) error) error {
		return injected("before", c, cause)
	}
}

// Lose performs the call and loses the reply: a write reports
// store.ErrOutcomeUnknown, whether it succeeded or not, a read
// store.ErrUnavailable.
func Lose() Fault {
	return func(ctx context.Context, _ *Instance, c *Call, perform func(context.Context) error) error {
		_ = perform(ctx) // The reply is what gets lost.
		return injected("after", c, lostReply(c.Kind))
	}
}

// Drop loses the request: as Lose, but the call is never performed.
func Drop() Fault {
	return func(_ context.Context, _ *Instance, c *Call, _ func(context.Context) error) error {
		return injected("instead of", c, lostReply(c.Kind))
	}
}

// Delay lets at least before pass ahead of the call and after ahead of its
// reply, each with up to as much again by chance.
func Delay(before, after time.Duration) Fault {
	return func(ctx context.Context, in *Instance, c *Call, perform func(context.Context) error) error {
		if err := in.wait(ctx, before); err != nil {
			return injected("delaying", c, fmt.Errorf("%w: %w", store.ErrUnavailable, err))
		}
		err := perform(ctx)
		if cause := in.wait(ctx, after); cause != nil {
			return injected("delaying the reply of", c, fmt.Errorf("%w: %w", lostReply(c.Kind), cause))
		}
		return err
	}
}

// Duplicate performs the call twice, as a client library does that retries on
// its own, and reports the second result: a conditional write that succeeded
// reports that its condition does not hold.
func Duplicate() Fault {
	return func(ctx context.Context, _ *Instance, _ *Call, perform func(context.Context) error) error {
		_ = perform(ctx) // The first reply is the one that gets lost.
		return perform(ctx)
	}
}

// Hold reports store.ErrOutcomeUnknown at once, and performs the write later:
// when Instance.Release is called, or after delay if that is positive. A held
// write lands even if its instance was killed: it is on its way. A read is not
// held but fails with store.ErrUnavailable.
func Hold(delay time.Duration) Fault {
	return func(ctx context.Context, in *Instance, c *Call, perform func(context.Context) error) error {
		if c.Kind.Writes() {
			c.detach()
			in.hold(context.WithoutCancel(ctx), c, perform, delay)
		}
		return injected("holding back", c, lostReply(c.Kind))
	}
}

// Crash kills the instance at the call, before the call has any effect or
// after it; see Instance.KillAt.
func Crash(point Point) Fault {
	return func(ctx context.Context, in *Instance, c *Call, perform func(context.Context) error) error {
		if point == AfterEffect {
			_ = perform(ctx) // Nobody is left to hear the reply.
		}
		in.Kill()
		return injected(point.String(), c, fmt.Errorf("%w: %w", lostReply(c.Kind), ErrKilled))
	}
}

// Do calls fn ahead of the call, which fails with fn's error if there is one.
// fn may block, to hold the call until a test has done something else.
func Do(fn func(ctx context.Context, c *Call) error) Fault {
	return func(ctx context.Context, _ *Instance, c *Call, perform func(context.Context) error) error {
		if err := fn(ctx, c); err != nil {
			return injected("before", c, err)
		}
		return perform(ctx)
	}
}

// Storm returns rules under which a share of all calls, 0 to 1, goes wrong in
// every way of this package, short of a crash, with delays of up to twice d.
func Storm(share float64, d time.Duration) []Rule {
	each := share / 7
	return []Rule{
		{Name: "slow", When: Any, Chance: each, Do: Delay(d, d)},
		{Name: "unavailable", When: Any, Chance: each, Do: Fail(store.ErrUnavailable)},
		{Name: "throttled", When: Any, Chance: each, Do: Fail(&store.ThrottledError{RetryAfter: d, Err: ErrInjected})},
		{Name: "reply lost", When: Any, Chance: each, Do: Lose()},
		{Name: "request lost", When: Any, Chance: each, Do: Drop()},
		{Name: "reply doubled", When: Any, Chance: each, Do: Duplicate()},
		{Name: "write late", When: Writes, Chance: each, Do: Hold(d)},
	}
}

// lostReply is what a caller learns when no reply comes.
func lostReply(k Kind) error {
	if k.Writes() {
		return store.ErrOutcomeUnknown
	}
	return store.ErrUnavailable
}

func injected(where string, c *Call, cause error) error {
	return fmt.Errorf("%w %s %s: %w", ErrInjected, where, c, cause)
}

// wait sleeps for d and up to d more by chance.
func (in *Instance) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return in.clock.Sleep(ctx, clock.Jitter(in.clock, 2*d))
}
