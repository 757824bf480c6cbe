package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/tick"
)

func TestTimersRunAtTheirIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ran := time.Now(), map[string][]time.Duration{}
		ctx, cancel := context.WithCancel(t.Context())
		s := &schedule{
			clock: clock.NewSystem(), logger: slog.New(slog.DiscardHandler),
			every: map[string]time.Duration{"collect": 30 * time.Second},
			call: func(_ context.Context, timer string) (json.RawMessage, error) {
				ran[timer] = append(ran[timer], time.Since(start))
				return nil, nil
			},
		}
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		time.Sleep(95 * time.Second)
		cancel()
		<-done
		want := []time.Duration{30 * time.Second, 60 * time.Second, 90 * time.Second}
		if !slices.Equal(ran["collect"], want) {
			t.Fatalf("ran at %v, want %v", ran["collect"], want)
		}
	})
}

func TestEveryTimerHasItsInterval(t *testing.T) {
	o := options.Default()
	o.HotShardSampleInterval, o.MigrationsInterval, o.CheckpointInterval, o.CollectInterval, o.TransactionsInterval = 1, 2, 3, 4, 5
	every := intervals(&o)
	if want := map[string]time.Duration{"monitor": 1, "migrations": 2, "checkpoint": 3, "collect": 4, "transactions": 5}; !maps.Equal(every, want) {
		t.Errorf("intervals %v, want %v", every, want)
	}
	for _, timer := range tick.Names() {
		if every[timer] == 0 {
			t.Errorf("%s never runs", timer)
		}
	}
}

func TestTickNeverOverlapsItselfNorHoldsUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, slow, quick := 0, 0, make(chan struct{}, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		s := &schedule{
			clock: clock.NewSystem(), logger: slog.New(slog.DiscardHandler),
			every: map[string]time.Duration{"slow": time.Second, "quick": time.Second},
			call: func(_ context.Context, timer string) (json.RawMessage, error) {
				if timer == "quick" {
					quick <- struct{}{}
					return nil, nil
				}
				if running++; running > 1 {
					t.Error("a tick overlaps itself")
				}
				time.Sleep(10 * time.Second)
				running, slow = running-1, slow+1
				return nil, nil
			},
		}
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		time.Sleep(33*time.Second + time.Millisecond)
		cancel()
		<-done
		if slow != 3 || len(quick) != 33 {
			t.Fatalf("the slow timer ran %d times, the quick one %d; want 3 and 33", slow, len(quick))
		}
	})
}

func TestScheduleOutlivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ran := 0
		ctx, cancel := context.WithCancel(t.Context())
		s := &schedule{
			clock: clock.NewSystem(), logger: slog.New(slog.NewTextHandler(&log, nil)),
			every: map[string]time.Duration{"collect": time.Second},
			call: func(context.Context, string) (json.RawMessage, error) {
				ran++
				return nil, errors.New("storage is away")
			},
		}
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		time.Sleep(3*time.Second + time.Millisecond)
		cancel()
		<-done
		if ran != 3 || strings.Count(log.String(), "storage is away") != 3 {
			t.Fatalf("ran %d times, log:\n%s", ran, log.String())
		}
	})
}

func TestTickThatEndsWithTheServiceIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		s := &schedule{
			clock: clock.NewSystem(), logger: slog.New(slog.NewTextHandler(&log, nil)),
			every: map[string]time.Duration{"collect": time.Second},
			call: func(ctx context.Context, _ string) (json.RawMessage, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		time.Sleep(2 * time.Second)
		cancel()
		<-done
		if log.Len() != 0 {
			t.Fatalf("logged at shutdown:\n%s", log.String())
		}
	})
}
