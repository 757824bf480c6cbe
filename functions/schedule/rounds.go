package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// Rounds carry out one invocation of a scheduler that cannot call more often
// than once a minute. Every timer runs once, in order. Those whose tick says
// that more is to be done (see timers.Ran) run again, each after its time
// (Timer.Again), for as long as there is time; when nobody has more to do the
// invocation ends. So an idle service pays for a moment of each minute, and a
// split or a long log does not wait for the next one.
type Rounds struct {
	Clock clock.Source
	// Timers are run, in this order.
	Timers []string
	// Call runs one of them and returns the JSON that says what it did. It
	// returns soon after ctx has ended.
	Call func(ctx context.Context, timer string) (json.RawMessage, error)
	// Lasts is how long, from the beginning, ticks may still begin. The first
	// round is not bound by it: a schedule that never reaches its last timer
	// would be worse than one that overlaps itself.
	Lasts time.Duration
}

// RoundsLast is what suits a scheduler that calls once a minute: the last tick
// begins before the next invocation does.
const RoundsLast = Coarsest - 5*time.Second

// Run returns the last answer of every timer that gave one, and the failures
// joined, each timer's last. A timer that failed is not run again: the next
// invocation does it. Run ends early when ctx does; timers that were not
// reached by then are failures.
func (r *Rounds) Run(ctx context.Context) (map[string]json.RawMessage, error) {
	end := r.Clock.Now().Mono + r.Lasts
	answers, failed := map[string]json.RawMessage{}, map[string]error{}
	due := map[string]time.Duration{}
	run := func(timer string) {
		began := r.Clock.Now().Mono
		answer, err := r.Call(ctx, timer)
		delete(due, timer)
		if failed[timer] = err; err != nil {
			return
		}
		if answers[timer] = answer; more(answer) {
			t, _ := Find(timer)
			due[timer] = max(began+t.Again, r.Clock.Now().Mono)
		}
	}
	for _, timer := range r.Timers {
		if err := context.Cause(ctx); err != nil {
			failed[timer] = fmt.Errorf("timer %s did not run: %w", timer, err)
			continue
		}
		run(timer)
	}
	for {
		timer, at := r.next(due)
		if timer == "" || max(at, r.Clock.Now().Mono) >= end || r.Clock.Sleep(ctx, at-r.Clock.Now().Mono) != nil {
			break
		}
		run(timer)
	}
	var failures []error
	for _, timer := range r.Timers {
		failures = append(failures, failed[timer])
	}
	return answers, errors.Join(failures...)
}

// next returns the timer that is due first, and when.
func (r *Rounds) next(due map[string]time.Duration) (first string, at time.Duration) {
	for _, timer := range r.Timers {
		if when, ok := due[timer]; ok && (first == "" || when < at) {
			first, at = timer, when
		}
	}
	return first, at
}

// more reports whether a tick has said that more is to be done.
func more(answer json.RawMessage) bool {
	var said struct{ More bool }
	return json.Unmarshal(answer, &said) == nil && said.More
}
