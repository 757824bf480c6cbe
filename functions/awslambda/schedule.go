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

	"github.com/latticekv/lattice/functions/tick"
)

// errTooLate refuses a schedule that there is no time for; the next one comes.
var errTooLate = errors.New("the host leaves too little time to begin a timer; nothing was done")

// schedule runs timers one after the other and returns what each did. Each gets
// an equal share of the time that is left, so that a slow one takes nothing from
// those after it, and what a quick one leaves over is theirs. All are tried; a
// failure fails the invocation, which is how Lambda counts and retries.
func (f *function) schedule(ctx context.Context, timers ...string) (map[string]json.RawMessage, error) {
	w, enough := newWindow(ctx)
	f.fits(w)
	if !enough {
		return nil, errTooLate
	}
	defer f.flush(ctx, w)
	done := map[string]json.RawMessage{}
	var failures []error
	for i, timer := range timers {
		result, err := f.tick(ctx, w.share(len(timers)-i), timer)
		if err != nil {
			f.logger.Error("timer failed", "timer", timer, "error", err)
			failures = append(failures, err)
			continue
		}
		done[timer] = result
	}
	if len(failures) == 0 {
		return done, nil
	}
	err := errors.Join(failures...)
	if len(done) > 0 {
		err = fmt.Errorf("%w\ndone: %s", err, strings.Join(slices.Sorted(maps.Keys(done)), ", "))
	}
	return nil, err
}

// share returns the window of the next of n pieces of work.
func (w window) share(n int) window {
	if w.finish.IsZero() {
		return w
	}
	now := time.Now()
	finish := now.Add(w.finish.Sub(now) / time.Duration(n))
	// What does not end is given up a little later, the last one at the cut.
	return window{finish, finish.Add(w.cut.Sub(w.finish) / time.Duration(n))}
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
