package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	table "github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/telemetry"
)

// schedule stands in for the timers of a cloud host: it calls the service's
// own timer endpoints in process, each at its interval: they need no place among
// the connections.
type schedule struct {
	clock clock.Source
	// every is the interval of each timer.
	every map[string]time.Duration
	// call runs one timer.
	call   func(ctx context.Context, timer string) (json.RawMessage, error)
	logger *slog.Logger
}

// intervals are those of every timer.
func intervals(o *options.Options) map[string]time.Duration {
	every := map[string]time.Duration{}
	for _, t := range table.All() {
		every[t.Name] = t.Interval(o)
	}
	return every
}

// run works until ctx ends and the ticks under way have returned. A timer
// never overlaps itself: its interval begins when its last tick is over.
func (s *schedule) run(ctx context.Context) {
	var timers sync.WaitGroup
	for timer, interval := range s.every {
		timers.Go(func() {
			for s.clock.Sleep(ctx, interval) == nil {
				s.tick(ctx, timer)
			}
		})
	}
	timers.Wait()
}

func (s *schedule) tick(ctx context.Context, timer string) {
	ctx = telemetry.WithRequestID(ctx, "")
	began := s.clock.Now().Mono
	result, err := s.call(ctx, timer)
	took := s.clock.Now().Mono - began
	switch {
	case err == nil:
		s.logger.DebugContext(ctx, "timer ran", "timer", timer, "took", took, "result", string(result))
	case ctx.Err() == nil:
		// The next tick comes anyway; what this one did not do waits for it.
		s.logger.WarnContext(ctx, "timer failed", "timer", timer, "took", took, "error", err)
	}
}
