package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/tick"
)

// within runs a test under virtual time with an invocation of the given length.
func within(t *testing.T, left time.Duration, test func(t *testing.T, ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		defer cancel()
		test(t, ctx)
	})
}

func problemOf(t *testing.T, answer any) (status int, code, retryAfter string, outcomeUnknown bool) {
	t.Helper()
	a, ok := answer.(events.APIGatewayV2HTTPResponse)
	if !ok {
		t.Fatalf("answered a %T", answer)
	}
	var problem struct {
		Code           string
		OutcomeUnknown bool
	}
	if err := json.Unmarshal([]byte(a.Body), &problem); err != nil {
		t.Fatalf("%v in %s", err, a.Body)
	}
	return a.StatusCode, problem.Code, a.Headers["Retry-After"], problem.OutcomeUnknown
}

func TestMarginIsBetweenItsBounds(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		time.Second: minMargin, 3 * time.Second: minMargin, 10 * time.Second: minMargin, 30 * time.Second: 1500 * time.Millisecond,
		60 * time.Second: 3 * time.Second, 15 * time.Minute: maxMargin,
	} {
		if got := marginOf(left); got != want {
			t.Errorf("of %s the margin is %s, want %s", left, got, want)
		}
	}
}

func TestHandlerIsToldToEndBeforeTheHostEndsIt(t *testing.T) {
	within(t, 60*time.Second, func(t *testing.T, ctx context.Context) {
		start := time.Now()
		f := newFunction(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), errTimeUp) {
				t.Errorf("ended for %v", context.Cause(r.Context()))
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		answer, err := f.handle(ctx, httpEvent("PUT", "/", "", nil, false, nil))
		if err != nil || answer.(events.APIGatewayV2HTTPResponse).StatusCode != 503 || time.Since(start) != 57*time.Second {
			t.Fatalf("%+v after %s: %v", answer, time.Since(start), err)
		}
	})
}

func TestHandlerThatDoesNotEndIsAnsweredFor(t *testing.T) {
	for method, unknown := range map[string]bool{"PUT": true, "POST": true, "DELETE": true, "GET": false, "HEAD": false} {
		within(t, 10*time.Second, func(t *testing.T, ctx context.Context) {
			release := make(chan struct{})
			defer close(release)
			f := newFunction(func(http.ResponseWriter, *http.Request) { <-release })
			start := time.Now()
			answer, err := f.handle(ctx, httpEvent(method, "/", "", nil, false, nil))
			if err != nil {
				t.Fatal(err)
			}
			status, code, retry, outcomeUnknown := problemOf(t, answer)
			if status != 503 || code != "unavailable" || retry == "" || outcomeUnknown != unknown {
				t.Errorf("%s: %d %s, retry after %q, outcome unknown %v", method, status, code, retry, outcomeUnknown)
			}
			if took := time.Since(start); took != 9750*time.Millisecond {
				t.Errorf("%s was answered after %s", method, took)
			}
		})
	}
}

func TestTooLittleTimeIsRefusedAtOnce(t *testing.T) {
	for _, left := range []time.Duration{-time.Second, 0, time.Millisecond, minMargin + minWork - time.Millisecond} {
		within(t, left, func(t *testing.T, ctx context.Context) {
			f := newFunction(func(http.ResponseWriter, *http.Request) { t.Error("the service was called") })
			start := time.Now()
			answer, err := f.handle(ctx, httpEvent("PUT", "/", "", nil, false, nil))
			if err != nil {
				t.Fatal(err)
			}
			if status, code, retry, unknown := problemOf(t, answer); status != 503 || code != "unavailable" || retry == "" || unknown {
				t.Errorf("%s: %d %s, retry after %q, outcome unknown %v", left, status, code, retry, unknown)
			}
			if _, err := f.handle(ctx, json.RawMessage(`{"timer":"collect"}`)); !errors.Is(err, errTooLate) {
				t.Errorf("%s: the timer gave %v", left, err)
			}
			if time.Since(start) != 0 {
				t.Errorf("it took %s to refuse", time.Since(start))
			}
		})
	}
	within(t, minMargin+minWork, func(t *testing.T, ctx context.Context) {
		f := newFunction(func(http.ResponseWriter, *http.Request) {})
		if answer, err := f.handle(ctx, httpEvent("GET", "/", "", nil, false, nil)); err != nil || answer.(events.APIGatewayV2HTTPResponse).StatusCode != 200 {
			t.Errorf("the least time gave %+v, %v", answer, err)
		}
	})
}

// timerName is the timer that a request calls.
func timerName(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/internal/timers/") }

func TestTimersShareTheTimeThatIsLeft(t *testing.T) {
	within(t, 20*time.Second, func(t *testing.T, ctx context.Context) {
		shares := map[string]time.Duration{}
		f := newFunction(func(w http.ResponseWriter, r *http.Request) {
			end, _ := r.Context().Deadline()
			shares[timerName(r)] = time.Until(end)
			if timerName(r) == tick.Names()[1] {
				time.Sleep(100 * time.Millisecond) // a quick one: the others have more
				return
			}
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"detail":"out of time"}`)
		})
		start := time.Now()
		_, err := f.handle(ctx, json.RawMessage(`{"source":"aws.events"}`))
		if took := time.Since(start); took != 19*time.Second {
			t.Errorf("the invocation took %s of 19s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "out of time") || !strings.HasSuffix(err.Error(), "done: "+tick.Names()[1]) {
			t.Errorf("the invocation ended with %v", err)
		}
		want := []time.Duration{3800 * time.Millisecond, 3800 * time.Millisecond}
		for range 3 {
			want = append(want, (19*time.Second-3900*time.Millisecond)/3)
		}
		for i, name := range tick.Names() {
			if diff := (shares[name] - want[i]).Abs(); diff > time.Microsecond {
				t.Errorf("%s had %s, want %s", name, shares[name], want[i])
			}
		}
	})
}

func TestTimerThatDoesNotEndIsGivenUp(t *testing.T) {
	within(t, 20*time.Second, func(t *testing.T, ctx context.Context) {
		release := make(chan struct{})
		defer close(release)
		var calls atomic.Int64
		f := newFunction(func(_ http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			<-release
		})
		start := time.Now()
		_, err := f.handle(ctx, json.RawMessage(`{"source":"aws.events"}`))
		if !errors.Is(err, errTimeUp) || !strings.Contains(err.Error(), "does not end") || int(calls.Load()) != len(tick.Names()) {
			t.Errorf("%d timers ran, ended with %v", calls.Load(), err)
		}
		if took := time.Since(start); took >= 20*time.Second {
			t.Errorf("the host would have ended it: %s", took)
		}
	})
}
