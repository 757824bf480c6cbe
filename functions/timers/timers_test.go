package timers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
)

// keeper answers what it is told to and notes how it was called.
type keeper struct {
	report tree.Report
	moved  tree.MigrationReport
	seen   tree.MonitorReport
	ended  tree.TransactionsReport
	err    error
	hang   bool
	called string
	budget time.Duration
}

func (k *keeper) Checkpoint(ctx context.Context, budget time.Duration) (tree.Report, error) {
	return k.work(ctx, "checkpoint", budget)
}

func (k *keeper) Collect(ctx context.Context, budget time.Duration) (tree.Report, error) {
	return k.work(ctx, "collect", budget)
}

func (k *keeper) Migrations(ctx context.Context, budget time.Duration) (tree.MigrationReport, error) {
	_, err := k.work(ctx, "migrations", budget)
	return k.moved, err
}

func (k *keeper) Monitor(ctx context.Context, budget time.Duration) (tree.MonitorReport, error) {
	_, err := k.work(ctx, "monitor", budget)
	return k.seen, err
}

func (k *keeper) Transactions(ctx context.Context, budget time.Duration) (tree.TransactionsReport, error) {
	_, err := k.work(ctx, "transactions", budget)
	return k.ended, err
}

func (k *keeper) work(ctx context.Context, call string, budget time.Duration) (tree.Report, error) {
	k.called, k.budget = call, budget
	if k.hang {
		<-ctx.Done()
		return k.report, ctx.Err()
	}
	return k.report, k.err
}

func newTimers(k *keeper, runs *[]Run, logs *bytes.Buffer) *Timers {
	return New(Config{
		Keeper: k, Clock: clock.NewSystem(), Budget: 20 * time.Second, Grace: 10 * time.Second,
		Logger:  slog.New(slog.NewJSONHandler(logs, nil)),
		Observe: func(r Run) { *runs = append(*runs, r) },
	})
}

func TestTicksCallTheirWorkWithTheBudget(t *testing.T) {
	k := &keeper{report: tree.Report{Trees: 2, Shards: 8, Complete: true, Rows: 30, Blobs: 4, Merges: 1, Due: true, Finished: []string{"a"}, Purged: []string{"b"}}}
	var runs []Run
	timers := newTimers(k, &runs, &bytes.Buffer{})
	for name, tick := range map[string]func(context.Context) (Result, error){Checkpoint: timers.Checkpoint, Collect: timers.Collect} {
		runs = nil
		res, err := tick(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if k.called != name || k.budget != 20*time.Second {
			t.Errorf("%s called %s with %s", name, k.called, k.budget)
		}
		if len(runs) != 1 || runs[0].Timer != name || runs[0].Err != nil {
			t.Errorf("%s observed as %+v", name, runs)
		}
		got, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"timer":"` + name + `"`, `"trees":2`, `"shards":8`, `"complete":true`, `"rows":30`, `"blobs":4`, `"merges":1`, `"due":true`, `"finished":["a"]`, `"purged":["b"]`, `"failed":0`} {
			if !strings.Contains(string(got), want) {
				t.Errorf("%s lacks %s", got, want)
			}
		}
	}
}

func TestMigrationsTellWhatTheyDid(t *testing.T) {
	k := &keeper{moved: tree.MigrationReport{
		Trees: 2, Splits: 3, Completed: 1, Failed: 1, Failures: []tree.Failure{{Tree: "a", Shard: 7, Err: store.ErrThrottled}},
	}}
	var runs []Run
	var logs bytes.Buffer
	res, err := newTimers(k, &runs, &logs).Migrations(t.Context())
	if err != nil || k.called != "migrations" || k.budget != 20*time.Second {
		t.Fatalf("called %s with %s: %v", k.called, k.budget, err)
	}
	got, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"timer":"migrations"`, `"trees":2`, `"splits":3`, `"completed":1`, `"failed":1`, `"tree":"a","shard":7`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if len(runs) != 1 || runs[0].Timer != Migrations || runs[0].Failed != 1 || !strings.Contains(logs.String(), `"splits":3`) {
		t.Errorf("observed %+v, logged %s", runs, logs.String())
	}
	k.err = store.ErrUnavailable
	if _, err := newTimers(k, &runs, &logs).Migrations(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

func TestTransactionsTellWhatTheyDid(t *testing.T) {
	k := &keeper{ended: tree.TransactionsReport{
		Trees: 2, Rows: 9, Complete: true, Aborted: 3, Told: 4, Removed: 5, Failed: 1, Failures: []tree.Failure{{Tree: "a", Err: store.ErrThrottled}},
	}}
	var runs []Run
	var logs bytes.Buffer
	timers := newTimers(k, &runs, &logs)
	told := 0
	timers.cfg.Finished = func(r *tree.TransactionsReport) { told += r.Aborted }
	res, err := timers.Transactions(t.Context())
	if err != nil || k.called != "transactions" || k.budget != 20*time.Second {
		t.Fatalf("called %s with %s: %v", k.called, k.budget, err)
	}
	got, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"timer":"transactions"`, `"trees":2,"rows":9,"complete":true,"aborted":3,"told":4,"removed":5`, `"failed":1`, `"tree":"a"`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if len(runs) != 1 || runs[0].Timer != Transactions || runs[0].Failed != 1 || !strings.Contains(logs.String(), `"removed":5`) {
		t.Errorf("observed %+v, logged %s", runs, logs.String())
	}
	k.err = store.ErrUnavailable
	if _, err := timers.Transactions(t.Context()); !errors.Is(err, store.ErrUnavailable) || told != 6 {
		t.Errorf("error %v, told of %d", err, told)
	}
}

func TestFailuresOfShardsAreInTheResult(t *testing.T) {
	cause := store.Corruptf("row 7")
	k := &keeper{report: tree.Report{Failed: 3, Failures: []tree.Failure{{Tree: "a", Shard: 2, Err: cause}}}}
	var runs []Run
	var logs bytes.Buffer
	res, err := newTimers(k, &runs, &logs).Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed != 3 || len(res.Failures) != 1 || res.Failures[0] != (Failure{"a", 2, cause.Error()}) {
		t.Errorf("result %+v", res)
	}
	if runs[0].Failed != 3 || runs[0].Corrupt != 1 {
		t.Errorf("observed %+v", runs)
	}
	if !strings.Contains(logs.String(), "row 7") {
		t.Errorf("the log does not tell: %s", logs.String())
	}
}

func TestFailureOfTheWalkIsAnError(t *testing.T) {
	k := &keeper{err: store.ErrUnavailable}
	var runs []Run
	_, err := newTimers(k, &runs, &bytes.Buffer{}).Collect(t.Context())
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(runs[0].Err, store.ErrUnavailable) {
		t.Errorf("error %v, observed %+v", err, runs)
	}
}

func TestOverrunIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{hang: true}
		var runs []Run
		start := time.Now()
		_, err := newTimers(k, &runs, &bytes.Buffer{}).Checkpoint(t.Context())
		if !errors.Is(err, errOverrun) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("cut off after %s", took)
		}
	})
}

func TestCallerThatLeavesEndsTheTick(t *testing.T) {
	k := &keeper{hang: true}
	var runs []Run
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newTimers(k, &runs, &bytes.Buffer{}).Collect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestCollectedIsToldEvenWhenTheTickFails(t *testing.T) {
	k := &keeper{report: tree.Report{Open: []tree.OpenWork{{Tree: "a", Cursors: 2}}}, err: store.Corruptf("row 7")}
	var runs []Run
	var logs bytes.Buffer
	timers := newTimers(k, &runs, &logs)
	var told []tree.OpenWork
	timers.cfg.Collected = func(r *tree.Report) { told = append(told, r.Open...) }
	if _, err := timers.Collect(t.Context()); !errors.Is(err, store.ErrCorrupt) || runs[0].Corrupt != 1 {
		t.Errorf("error %v, observed %+v", err, runs)
	}
	if _, err := timers.Checkpoint(t.Context()); err == nil || len(told) != 1 || told[0].Cursors != 2 {
		t.Errorf("error %v, told of %+v", err, told)
	}
}

func TestBudgetFitsTheTimeOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]time.Duration{
			time.Minute: 20 * time.Second, 30 * time.Second: 20 * time.Second, 24 * time.Second: 14 * time.Second,
			12 * time.Second: 6 * time.Second, time.Second: time.Second / 2, -time.Second: 1,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			k := &keeper{}
			var runs []Run
			timers := newTimers(k, &runs, &bytes.Buffer{})
			for _, tick := range []func() error{
				func() error { _, err := timers.Checkpoint(ctx); return err },
				func() error { _, err := timers.Migrations(ctx); return err },
				func() error { _, err := timers.Monitor(ctx); return err },
				func() error { _, err := timers.Transactions(ctx); return err },
			} {
				if err := tick(); err != nil || k.budget != want {
					t.Errorf("with %s left %s was called with %s, want %s: %v", left, k.called, k.budget, want, err)
				}
			}
			cancel()
		}
	})
}
