package auth

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func enter(t *testing.T, l *limiters, id string, limits Limits) (leave func(), wait time.Duration) {
	t.Helper()
	leave, err := l.enter(&Principal{ID: id, Limits: limits})
	var w *WaitError
	if errors.As(err, &w) {
		if !errors.Is(err, ErrLimited) || w.RetryAfter <= 0 || leave != nil {
			t.Fatalf("%v after %s", err, w.RetryAfter)
		}
		return nil, w.RetryAfter
	}
	if err != nil {
		t.Fatal(err)
	}
	return leave, 0
}

func TestRateLetsABurstAndThenARhythm(t *testing.T) {
	c := newHandClock()
	l, limits := newLimiters(c), Limits{Rate: 2, Burst: 3}
	for range 3 {
		if _, wait := enter(t, l, "a", limits); wait != 0 {
			t.Fatal("a burst is refused")
		}
	}
	for range 5 { // a refusal costs nothing
		if _, wait := enter(t, l, "a", limits); wait != 500*time.Millisecond {
			t.Fatalf("wait %s", wait)
		}
	}
	if _, wait := enter(t, l, "b", limits); wait != 0 {
		t.Error("one credential limits another")
	}
	c.advance(500 * time.Millisecond)
	if _, wait := enter(t, l, "a", limits); wait != 0 {
		t.Errorf("after the wait: %s", wait)
	}
	if _, wait := enter(t, l, "a", limits); wait == 0 {
		t.Error("the rate is not kept")
	}
	if _, wait := enter(t, l, "a", Limits{Rate: 1000, Burst: 3}); wait > time.Millisecond {
		t.Errorf("a raised limit does not apply: %s", wait)
	}
}

func TestConcurrencyIsGivenBackOnce(t *testing.T) {
	l, limits := newLimiters(newHandClock()), Limits{Concurrent: 2}
	first, _ := enter(t, l, "a", limits)
	second, _ := enter(t, l, "a", limits)
	if _, wait := enter(t, l, "a", limits); wait != busyWait {
		t.Fatalf("a third at once: %s", wait)
	}
	first()
	first()
	third, wait := enter(t, l, "a", limits)
	if wait != 0 {
		t.Fatal("a place that is free is not given")
	}
	if _, wait := enter(t, l, "a", limits); wait == 0 {
		t.Fatal("leaving twice freed two places")
	}
	second()
	third()
	if got := l.byID["a"].active; got != 0 {
		t.Errorf("%d are counted at the end", got)
	}
}

func TestNoLimitsCountNothing(t *testing.T) {
	l := newLimiters(newHandClock())
	for range 100 {
		if leave, wait := enter(t, l, "a", Limits{}); wait != 0 || leave == nil {
			t.Fatal("refused")
		}
	}
	if len(l.byID) != 0 {
		t.Error("somebody without limits is counted")
	}
}

func TestLimitersAreBounded(t *testing.T) {
	c := newHandClock()
	l, limits := newLimiters(c), Limits{Rate: 1, Burst: 1}
	stay, _ := enter(t, l, "stays", limits)
	for i := range maxLimiters - 1 {
		leave, _ := enter(t, l, fmt.Sprint(i), limits)
		leave()
	}
	// Nobody can be forgotten: all have just used what they may. Newcomers share.
	if _, wait := enter(t, l, "x", limits); wait != 0 {
		t.Fatal("the first newcomer is refused")
	}
	if _, wait := enter(t, l, "y", limits); wait == 0 {
		t.Fatal("those beyond the bound are not limited")
	}
	c.advance(time.Second)
	if _, wait := enter(t, l, "y", limits); wait != 0 || l.byID["y"] == nil || len(l.byID) > maxLimiters {
		t.Errorf("%d limiters, wait %s", len(l.byID), wait)
	}
	for i := range maxLimiters {
		leave, _ := enter(t, l, fmt.Sprint("new", i), Limits{Concurrent: 1})
		leave()
	}
	if l.byID["stays"] == nil || len(l.byID) > maxLimiters {
		t.Error("one with a request in work was forgotten")
	}
	stay()
}
