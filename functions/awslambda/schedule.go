package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/latticekv/lattice/core/clock"
	table "github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/tick"
)

// errTooLate refuses a schedule that there is no time for; the next one comes.
var errTooLate = errors.New("the host leaves too little time to begin a timer; nothing was done")

// minRepeat is the least time in which a timer is run another time.
const minRepeat = 2 * time.Second

// schedule runs timers one after the other and returns what each did last. Each
// gets an equal share of the time that is left, so that a slow one takes nothing
// from those after it, and what a quick one leaves over is theirs. All are tried;
// a failure fails the invocation, which is how Lambda counts and retries. Timers
// that have more to do are run again until there is nothing left, the time is
// over, or the next invocation is near: EventBridge calls once a minute at most.
func (f *function) schedule(ctx context.Context, timers ...string) (map[string]json.RawMessage, error) {
	w, enough := newWindow(ctx)
	f.fits(w)
	if !enough {
		return nil, errTooLate
	}
	defer f.flush(ctx, w)
	if of, ok := lambdacontext.FromContext(ctx); ok {
		ctx = telemetry.WithRequestID(ctx, of.AwsRequestID)
	}
	waiting := len(timers)
	rounds := table.Rounds{Clock: clock.NewSystem(), Timers: timers, Lasts: w.lasts(), Call: func(ctx context.Context, timer string) (json.RawMessage, error) {
		result, err := f.tick(ctx, w.share(max(waiting, 1)), timer)
		waiting--
		if err != nil {
			f.logger.ErrorContext(ctx, "timer failed", "timer", timer, "error", err)
		}
		return result, err
	}}
	done, err := rounds.Run(ctx)
	if err == nil {
		return done, nil
	}
	if len(done) > 0 {
		err = fmt.Errorf("%w\ndone: %s", err, strings.Join(slices.Sorted(maps.Keys(done)), ", "))
	}
	return nil, err
}

// lasts returns how long timers may be run again.
func (w window) lasts() time.Duration {
	if w.finish.IsZero() {
		return table.RoundsLast
	}
	return min(table.RoundsLast, time.Until(w.finish)-minRepeat)
}

// share returns the window of the next of n pieces of work.
func (w window) share(n int) window {
	if w.finish.IsZero() {
		return w
	}
	now := time.Now()
	finish := now.Add(w.finish.Sub(now) / time.Duration(n))
	// What does not end is given up a little later, the last one at the cut.
	cut := finish.Add(w.cut.Sub(w.finish))
	if cut.After(w.cut) {
		cut = w.cut
	}
	return window{finish, cut}
}

// tick runs one timer within a window.
func (f *function) tick(ctx context.Context, w window, timer string) (json.RawMessage, error) {
	ctx, cancel := w.work(ctx)
	defer cancel()
	type outcome struct {
		result json.RawMessage
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		result, err := tick.InProcess(ctx, f.service, f.token, timer)
		ended <- outcome{result, err}
	}()
	cut, stop := w.untilCut()
	defer stop()
	select {
	case o := <-ended:
		return o.result, o.err
	case <-cut:
		return nil, fmt.Errorf("timer %s does not end: %w", timer, errTimeUp)
	}
}
