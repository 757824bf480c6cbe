package azhttp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/store"
)

var patient = Retry{Attempts: 4, Wait: 100 * time.Millisecond, MaxWait: time.Second}

// failing returns a call that fails with each error in turn, then succeeds, and
// counts its calls.
func failing(calls *int, errs ...error) func(context.Context) error {
	return func(context.Context) error {
		*calls++
		if *calls <= len(errs) {
			return errs[*calls-1]
		}
		return nil
	}
}

func throttled(after time.Duration) error {
	return &store.ThrottledError{RetryAfter: after, Err: errors.New("busy")}
}

func TestRetryRepeatsOnlyWhatHadNoEffect(t *testing.T) {
	for _, tc := range []struct {
		name  string
		errs  []error
		calls int
		want  error
	}{
		{"Success", nil, 1, nil},
		{"Unavailable", []error{store.ErrUnavailable}, 2, nil},
		{"Throttled", []error{throttled(0), throttled(0)}, 3, nil},
		{"UnknownOutcome", []error{store.ErrOutcomeUnknown}, 1, store.ErrOutcomeUnknown},
		{"NotFound", []error{store.ErrNotFound}, 1, store.ErrNotFound},
		{"LostRace", []error{store.ErrPrecondition}, 1, store.ErrPrecondition},
		{"ForEver", []error{store.ErrUnavailable, store.ErrUnavailable, store.ErrUnavailable, store.ErrUnavailable, store.ErrUnavailable}, 4, store.ErrUnavailable},
		{"MorePatienceThanWeHave", []error{throttled(time.Minute)}, 1, store.ErrThrottled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := patient.Do(t.Context(), failing(&calls, tc.errs...))
				if !errors.Is(err, tc.want) || calls != tc.calls {
					t.Fatalf("%d calls and %v, want %d and %v", calls, err, tc.calls, tc.want)
				}
			})
		})
	}
}

func TestRetryWaitsLongerEachTimeAndAsAdvised(t *testing.T) {
	for _, tc := range []struct {
		name     string
		errs     []error
		min, max time.Duration
	}{
		{"Doubling", []error{store.ErrUnavailable, store.ErrUnavailable, store.ErrUnavailable}, 350 * time.Millisecond, 700 * time.Millisecond},
		{"Advised", []error{throttled(900 * time.Millisecond)}, 900 * time.Millisecond, 900 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, calls := time.Now(), 0
				if err := patient.Do(t.Context(), failing(&calls, tc.errs...)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < tc.min || took > tc.max {
					t.Fatalf("took %s, want %s to %s", took, tc.min, tc.max)
				}
			})
		})
	}
}

func TestRetryGivesUpBeforeADeadlineItWouldMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start, calls := time.Now(), 0
		err := patient.Do(ctx, failing(&calls, throttled(500*time.Millisecond)))
		if !errors.Is(err, store.ErrThrottled) || calls != 1 || time.Since(start) != 0 {
			t.Fatalf("%d calls, %v after %s", calls, err, time.Since(start))
		}
	})
}

func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		calls := 0
		err := patient.Do(ctx, failing(&calls, fmt.Errorf("first: %w", store.ErrUnavailable)))
		if !errors.Is(err, store.ErrUnavailable) || calls != 1 {
			t.Fatalf("%d calls, %v", calls, err)
		}
	})
}
