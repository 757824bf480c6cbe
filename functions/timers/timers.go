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
	"math"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/telemetry"
)

// The names of the ticks, as they stand in /internal/timers/{name}.
const (
	Checkpoint = "checkpoint"
	Collect    = "collect"
	Migrations = "migrations"
	Monitor    = "monitor"
	// Transactions finishes atomic batches whose coordinator is gone.
	Transactions = "transactions"
)

// Keeper is the maintenance that the ticks drive; a tree.DB has it.
type Keeper interface {
	// Checkpoint folds logs into blobs for as long as the budget lasts.
	Checkpoint(ctx context.Context, budget time.Duration) (tree.Report, error)
	// Collect deletes what is no longer needed, likewise.
	Collect(ctx context.Context, budget time.Duration) (tree.Report, error)
	// Migrations carries splits on, likewise.
	Migrations(ctx context.Context, budget time.Duration) (tree.MigrationReport, error)
	// Monitor begins splits of hot shards, likewise.
	Monitor(ctx context.Context, budget time.Duration) (tree.MonitorReport, error)
	// Transactions finishes atomic batches, likewise.
	Transactions(ctx context.Context, budget time.Duration) (tree.TransactionsReport, error)
}

// Run describes a finished tick, for metrics.
type Run struct {
	// Timer is the name of the tick.
	Timer    string
	Duration time.Duration
	// Failed counts the shards or trees that could not be maintained; Corrupt is
	// how many of the failures that are described met stored data that nobody can
	// read.
	Failed, Corrupt int
	// Err is the failure of the tick as a whole.
	Err error
}

// Config is what Timers need.
type Config struct {
	Keeper Keeper
	Clock  clock.Source
	// Budget is how long a tick begins new work, TickBudget. It is cut if the
	// caller's context ends earlier than budget and grace.
	Budget time.Duration
	// Grace is how long the work begun may still take when the budget is used
	// up; then it is cancelled.
	Grace time.Duration
	// Beats records that a tick ran and how it ended, for all instances to see.
	// Nil records nothing. What it returns does not fail the tick.
	Beats Recorder
	// Logger gets one line a tick. Nil is slog.Default.
	Logger *slog.Logger
	// Telemetry makes the spans of ticks. Nil is none.
	Telemetry *telemetry.Telemetry
	// Observe is told of every tick. Nil is silence.
	Observe func(Run)
	// Monitored is told what every tick of the monitor saw, whole or in part.
	// Nil is silence.
	Monitored func(*tree.MonitorReport)
	// Finished likewise, of every tick that finishes atomic batches.
	Finished func(*tree.TransactionsReport)
	// Collected likewise, of every tick that collects.
	Collected func(*tree.Report)
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
	if cfg.Monitored == nil {
		cfg.Monitored = func(*tree.MonitorReport) {}
	}
	if cfg.Finished == nil {
		cfg.Finished = func(*tree.TransactionsReport) {}
	}
	if cfg.Collected == nil {
		cfg.Collected = func(*tree.Report) {}
	}
	return &Timers{cfg: cfg}
}

// Checkpoint folds the logs of shards into blobs where they are long enough.
func (t *Timers) Checkpoint(ctx context.Context) (Result, error) {
	return t.maintain(ctx, Checkpoint, t.cfg.Keeper.Checkpoint)
}

// Collect deletes old log rows and blobs, completes what was left half done,
// and purges trees that were deleted long enough ago.
func (t *Timers) Collect(ctx context.Context) (Result, error) {
	return t.maintain(ctx, Collect, func(ctx context.Context, budget time.Duration) (tree.Report, error) {
		report, err := t.cfg.Keeper.Collect(ctx, budget)
		t.cfg.Collected(&report)
		return report, err
	})
}

func (t *Timers) maintain(ctx context.Context, name string, work func(context.Context, time.Duration) (tree.Report, error)) (Result, error) {
	var report tree.Report
	ran, err := t.run(ctx, name, func(ctx context.Context, budget time.Duration) (o outcome, err error) {
		report, err = work(ctx, budget)
		return outcome{report.Failed, report.Failures, []slog.Attr{
			slog.Int("trees", report.Trees), slog.Int("shards", report.Shards), slog.Bool("complete", report.Complete),
			slog.Int("rows", report.Rows), slog.Int("blobs", report.Blobs),
		}}, err
	})
	if err != nil {
		return Result{}, err
	}
	return newResult(ran, &report), nil
}

// Migrations carries the splits of all trees on.
func (t *Timers) Migrations(ctx context.Context) (MigrationResult, error) {
	var report tree.MigrationReport
	ran, err := t.run(ctx, Migrations, func(ctx context.Context, budget time.Duration) (o outcome, err error) {
		report, err = t.cfg.Keeper.Migrations(ctx, budget)
		return outcome{report.Failed, report.Failures, []slog.Attr{
			slog.Int("trees", report.Trees), slog.Int("splits", report.Splits), slog.Int("completed", report.Completed),
		}}, err
	})
	if err != nil {
		return MigrationResult{}, err
	}
	return newMigrationResult(ran, &report), nil
}

// Transactions aborts atomic batches that are overdue, tells the shards what was
// decided, and forgets what is done.
func (t *Timers) Transactions(ctx context.Context) (TransactionsResult, error) {
	var report tree.TransactionsReport
	ran, err := t.run(ctx, Transactions, func(ctx context.Context, budget time.Duration) (o outcome, err error) {
		report, err = t.cfg.Keeper.Transactions(ctx, budget)
		t.cfg.Finished(&report)
		return outcome{report.Failed, report.Failures, []slog.Attr{
			slog.Int("trees", report.Trees), slog.Int("rows", report.Rows), slog.Bool("complete", report.Complete),
			slog.Int("aborted", report.Aborted), slog.Int("told", report.Told), slog.Int("removed", report.Removed),
		}}, err
	})
	if err != nil {
		return TransactionsResult{}, err
	}
	return newTransactionsResult(ran, &report), nil
}

// Monitor looks for hot shards and begins their splits; a tick of migrations
// carries them out.
func (t *Timers) Monitor(ctx context.Context) (MonitorResult, error) {
	var report tree.MonitorReport
	ran, err := t.run(ctx, Monitor, func(ctx context.Context, budget time.Duration) (o outcome, err error) {
		report, err = t.cfg.Keeper.Monitor(ctx, budget)
		t.cfg.Monitored(&report)
		t.logPasses(ctx, report.Passes)
		return outcome{report.Failed, report.Failures, []slog.Attr{
			slog.Int("trees", report.Trees), slog.Bool("complete", report.Complete), slog.Int("started", report.Started),
		}}, err
	})
	if err != nil {
		return MonitorResult{}, err
	}
	return newMonitorResult(ran, &report), nil
}

// maxLogged bounds the lines that one tick of the monitor writes.
const maxLogged = 100

// logPasses writes a line for each hot shard: that its split begins, or why not.
func (t *Timers) logPasses(ctx context.Context, passes []tree.MonitorPass) {
	lines := 0
	for i := range passes {
		for _, c := range passes[i].Candidates {
			if lines++; lines > maxLogged {
				return
			}
			message, attrs := "split begins", []slog.Attr{
				slog.String("tree", passes[i].Tree), slog.Int("shard", int(c.Shard)),
				slog.Int64("rate", int64(math.Round(c.Rate))), slog.Int64("live", c.Live), slog.Int("slots", c.Slots),
			}
			if c.Reason != "" {
				message, attrs = "hot shard is not split", append(attrs, slog.String("reason", string(c.Reason)))
			}
			t.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, message, attrs...)
		}
	}
}

// errOverrun ends a tick whose work went on beyond budget and grace.
var errOverrun = fmt.Errorf("tick overran its budget: %w", context.DeadlineExceeded)

// outcome is what a tick did, as far as all ticks have it in common.
type outcome struct {
	failed   int
	failures []tree.Failure
	// attrs are for the log.
	attrs []slog.Attr
}

// corrupt counts the failures, and that of the tick as a whole, that are of
// damaged data.
func (o *outcome) corrupt(err error) (n int) {
	if errors.Is(err, store.ErrCorrupt) {
		n++
	}
	for _, f := range o.failures {
		if errors.Is(f.Err, store.ErrCorrupt) {
			n++
		}
	}
	return n
}

// budget returns how long a tick may begin new work under ctx, so that it ends by
// itself and keeps its place: of a time too short for budget and grace, what the
// grace leaves, but half at least.
func (t *Timers) budget(ctx context.Context) time.Duration {
	end, bounded := ctx.Deadline()
	if !bounded {
		return t.cfg.Budget
	}
	left := time.Until(end)
	// A budget of zero would be none to the Keeper.
	return max(min(t.cfg.Budget, max(left-t.cfg.Grace, left/2)), 1)
}

// run does the work of one tick within budget and grace, and tells of it.
func (t *Timers) run(caller context.Context, name string, work func(context.Context, time.Duration) (outcome, error)) (Ran, error) {
	start := t.cfg.Clock.Now()
	budget := t.budget(caller)
	ctx, cancel := context.WithTimeoutCause(caller, budget+t.cfg.Grace, errOverrun)
	defer cancel()
	ctx, end := t.cfg.Telemetry.StartTick(ctx, name)
	o, err := work(ctx, budget)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	took := t.cfg.Clock.Now().Mono - start.Mono
	t.cfg.Observe(Run{Timer: name, Duration: took, Failed: o.failed, Corrupt: o.corrupt(err), Err: err})
	t.log(ctx, name, took, &o, err)
	t.beat(caller, name, start, &o, err)
	end(o.failed, err)
	if err != nil {
		return Ran{}, fmt.Errorf("run timer %s: %w", name, err)
	}
	return Ran{
		Timer: name, StartedAt: start.Time(), DurationMs: took.Milliseconds(),
		Failed: o.failed, Failures: failures(o.failures),
	}, nil
}

func (t *Timers) log(ctx context.Context, name string, took time.Duration, o *outcome, err error) {
	attrs := append([]slog.Attr{slog.String("timer", name), slog.Duration("duration", took)}, o.attrs...)
	attrs = append(attrs, slog.Int("failed", o.failed))
	level := slog.LevelDebug
	for _, f := range o.failures {
		t.cfg.Logger.LogAttrs(ctx, slog.LevelError, "maintenance failed", slog.String("timer", name),
			slog.String(telemetry.Tree, f.Tree), slog.Int(telemetry.Shard, int(f.Shard)), slog.String("error", f.Err.Error()))
	}
	if err == nil && len(o.failures) > 0 {
		err = o.failures[0].Err
	}
	if err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	t.cfg.Logger.LogAttrs(ctx, level, "tick", attrs...)
}
