// Package timers holds the scheduled functions: one method a tick. A tick does
// bounded work, leaves its progress in the storage, and may run twice, late or
// side by side with another one; so it can be called by any host's scheduler,
// over HTTP or directly.
package timers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// The names of the ticks, as they stand in /internal/timers/{name}.
const (
	Checkpoint = "checkpoint"
	Collect    = "collect"
)

// Keeper is the maintenance that the ticks drive; a tree.DB has it.
type Keeper interface {
	// Checkpoint folds logs into blobs for as long as the budget lasts.
	Checkpoint(ctx context.Context, budget time.Duration) (tree.Report, error)
	// Collect deletes what is no longer needed, likewise.
	Collect(ctx context.Context, budget time.Duration) (tree.Report, error)
}

// Run describes a finished tick, for metrics.
type Run struct {
	// Timer is the name of the tick.
	Timer    string
	Duration time.Duration
	// Failed counts the shards or trees that could not be maintained.
	Failed int
	// Err is the failure of the tick as a whole.
	Err error
}

// Config is what Timers need.
type Config struct {
	Keeper Keeper
	Clock  clock.Source
	// Budget is how long a tick begins new work, TickBudget.
	Budget time.Duration
	// Grace is how long the work begun may still take when the budget is used
	// up; then it is cancelled.
	Grace time.Duration
	// Logger gets one line a tick. Nil is slog.Default.
	Logger *slog.Logger
	// Observe is told of every tick. Nil is silence.
	Observe func(Run)
}

// Timers runs ticks. It is safe for concurrent use and keeps nothing between
// them.
type Timers struct{ cfg Config }

// New returns Timers over a Keeper.
func New(cfg Config) *Timers {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Run) {}
	}
	return &Timers{cfg: cfg}
}

// Checkpoint folds the logs of shards into blobs where they are long enough.
func (t *Timers) Checkpoint(ctx context.Context) (Result, error) {
	return t.run(ctx, Checkpoint, t.cfg.Keeper.Checkpoint)
}

// Collect deletes old log rows and blobs, completes what was left half done,
// and purges trees that were deleted long enough ago.
func (t *Timers) Collect(ctx context.Context) (Result, error) {
	return t.run(ctx, Collect, t.cfg.Keeper.Collect)
}

// errOverrun ends a tick whose work went on beyond budget and grace.
var errOverrun = fmt.Errorf("tick overran its budget: %w", context.DeadlineExceeded)

func (t *Timers) run(ctx context.Context, name string, work func(context.Context, time.Duration) (tree.Report, error)) (Result, error) {
	start := t.cfg.Clock.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, t.cfg.Budget+t.cfg.Grace, errOverrun)
	defer cancel()
	report, err := work(ctx, t.cfg.Budget)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	took := t.cfg.Clock.Now().Mono - start.Mono
	t.cfg.Observe(Run{Timer: name, Duration: took, Failed: report.Failed, Err: err})
	t.log(ctx, name, took, &report, err)
	if err != nil {
		return Result{}, fmt.Errorf("run timer %s: %w", name, err)
	}
	return newResult(name, start, took, &report), nil
}

func (t *Timers) log(ctx context.Context, name string, took time.Duration, r *tree.Report, err error) {
	attrs := []slog.Attr{
		slog.String("timer", name), slog.Duration("duration", took), slog.Int("trees", r.Trees), slog.Int("shards", r.Shards),
		slog.Bool("complete", r.Complete), slog.Int("rows", r.Rows), slog.Int("blobs", r.Blobs), slog.Int("failed", r.Failed),
	}
	level := slog.LevelDebug
	if err == nil && r.Failed > 0 {
		err = r.Failures[0].Err
	}
	if err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	t.cfg.Logger.LogAttrs(ctx, level, "tick", attrs...)
}
