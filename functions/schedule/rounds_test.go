package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// rehearsal runs rounds in virtual time and notes what ran when.
type rehearsal struct {
	// took is how long a tick takes; left is how often a timer has more to do.
	took time.Duration
	left map[string]int
	fail map[string]error
	ran  []string
}

func (h *rehearsal) run(t *testing.T, ctx context.Context, timers ...string) (map[string]json.RawMessage, error) {
	t.Helper()
	c := clock.NewSystem()
	start := c.Now().Mono
	r := &Rounds{Clock: c, Timers: timers, Lasts: RoundsLast, Call: func(ctx context.Context, timer string) (json.RawMessage, error) {
		h.ran = append(h.ran, fmt.Sprintf("%s@%s", timer, c.Now().Mono-start))
		if err := c.Sleep(ctx, h.took); err != nil {
			return nil, err
		}
		if err := h.fail[timer]; err != nil {
			return nil, err
		}
		h.left[timer]--
		return json.RawMessage(fmt.Sprintf(`{"timer":%q,"more":%t}`, timer, h.left[timer] >= 0)), nil
	}}
	return r.Run(ctx)
}

func TestIdleServiceIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &rehearsal{took: 100 * time.Millisecond, left: map[string]int{}}
		answers, err := h.run(t, t.Context(), Names()...)
		want := []string{"monitor@0s", "migrations@100ms", "transactions@200ms", "checkpoint@300ms", "collect@400ms"}
		if err != nil || len(answers) != 5 || !slices.Equal(h.ran, want) {
			t.Fatalf("ran %q with %d answers: %v", h.ran, len(answers), err)
		}
	})
}

func TestWhatHasMoreToDoRunsAgainAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &rehearsal{took: time.Second, left: map[string]int{"migrations": 2, "checkpoint": 1, "collect": 100}}
		if _, err := h.run(t, t.Context(), Names()...); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"monitor@0s", "migrations@1s", "transactions@2s", "checkpoint@3s", "collect@4s",
			"migrations@6s", "migrations@11s", "checkpoint@18s",
		}
		if !slices.Equal(h.ran, want) {
			t.Fatalf("ran %q, want %q", h.ran, want)
		}
	})
}

func TestRoundsEndBeforeTheNextInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := &rehearsal{took: time.Second, left: map[string]int{"migrations": 1000}}
		if _, err := h.run(t, t.Context(), "migrations"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); len(h.ran) != 11 || took != 51*time.Second {
			t.Fatalf("ran %q in %s", h.ran, took)
		}
	})
}

func TestSlowFirstRoundReachesEveryTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &rehearsal{took: 30 * time.Second, left: map[string]int{"monitor": 1000}}
		if _, err := h.run(t, t.Context(), Names()...); err != nil || len(h.ran) != 5 {
			t.Fatalf("ran %q: %v", h.ran, err)
		}
	})
}

func TestFailedTimerWaitsForTheNextInvocationAndStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("storage is away")
		h := &rehearsal{left: map[string]int{"collect": 1}, fail: map[string]error{"monitor": away}}
		answers, err := h.run(t, t.Context(), "monitor", "collect")
		if !errors.Is(err, away) || len(answers) != 1 || len(h.ran) != 2 {
			t.Fatalf("ran %q, answers %s: %v", h.ran, answers, err)
		}
	})
}

func TestRoundsStopWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		h := &rehearsal{took: time.Second, left: map[string]int{"migrations": 9}}
		_, err := h.run(t, ctx, Names()...)
		if len(h.ran) != 3 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timer collect did not run") {
			t.Fatalf("ran %q: %v", h.ran, err)
		}
		h = &rehearsal{left: map[string]int{"migrations": 9}}
		ctx, cancel = context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		if _, err := h.run(t, ctx, "migrations"); err != nil || len(h.ran) != 3 {
			t.Fatalf("ran %q: %v", h.ran, err)
		}
	})
}
