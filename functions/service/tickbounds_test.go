package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/heartbeat"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// errHung is what a storage that hangs answers when its caller has gone.
var errHung = fmt.Errorf("it hung: %w", store.ErrUnavailable)

func newOver(t *testing.T, f *faulty.Instance) *Service {
	t.Helper()
	o := options.Default()
	o.CheckpointTailRows = 1
	svc, err := New(Config{Table: f.Table(), Blobs: f.Blobs(), Options: o, InternalToken: token, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

// prepared returns a service with work for every timer, and its faults.
func prepared(t *testing.T, trees int) (*Service, *faulty.Instance) {
	t.Helper()
	m := memory.New(memory.Options{})
	f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	svc := newOver(t, f)
	for i := range trees {
		h, err := svc.DB().OpenOrCreate(t.Context(), fmt.Sprintf("t%03d", i))
		if err != nil {
			t.Fatal(err)
		}
		ops := []tree.BatchOp{}
		for key := range 8 {
			ops = append(ops, tree.BatchOp{Key: fmt.Sprint(key), Value: []byte("v")})
		}
		if _, err := h.AtomicBatch(t.Context(), ops, fmt.Sprintf("op-%d", i)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.Reshard(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
	}
	return svc, f
}

// longest is the time within which every tick must end: what it may begin work
// in, what the work may still take, and the heartbeat.
func longest(o *options.Options) time.Duration {
	return o.TickBudget + o.RequestTimeout + 2*time.Second
}

func TestTickEndsThoughTheStorageHangs(t *testing.T) {
	for _, timer := range schedule.Names() {
		for skip := range 4 {
			synctest.Test(t, func(t *testing.T) {
				svc, f := prepared(t, 2)
				f.Add(faulty.Rule{Skip: skip * skip * 2, Do: faulty.Do(func(ctx context.Context, _ *faulty.Call) error {
					<-ctx.Done()
					return errHung
				})})
				start := time.Now()
				_, err := tick.InProcess(t.Context(), svc.Handler(), token, timer)
				if took := time.Since(start); took > longest(&svc.options) {
					t.Errorf("%s took %s when the storage hung after %d operations: %v", timer, took, skip*skip*2, err)
				}
			})
		}
	}
}

func TestTickDoesBoundedWorkOnASlowStorage(t *testing.T) {
	for _, timer := range schedule.Names() {
		synctest.Test(t, func(t *testing.T) {
			svc, f := prepared(t, 60)
			before := f.Calls()
			f.Add(faulty.Rule{Do: faulty.Delay(500*time.Millisecond, 500*time.Millisecond)})
			start := time.Now()
			answer, err := tick.InProcess(t.Context(), svc.Handler(), token, timer)
			if took := time.Since(start); err != nil || took > longest(&svc.options) {
				t.Errorf("%s took %s: %v", timer, took, err)
			}
			// Some of it is done in parallel, 16 shards at once at most.
			if calls := f.Calls() - before; calls > 16*50 {
				t.Errorf("%s made %d storage operations", timer, calls)
			}
			var said struct{ More, Complete bool }
			if err := json.Unmarshal(answer, &said); err != nil || !said.More || said.Complete {
				t.Errorf("%s does not say that there is more: %.300s, %v", timer, answer, err)
			}
		})
	}
}

func TestMigrationsThatAreTooShortReachEveryTreeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, f := prepared(t, 20)
		// A tick does not get past a few trees; even a process that is new for
		// each one comes to the last.
		for n := range 70 {
			f.Add(faulty.Rule{Do: faulty.Delay(250*time.Millisecond, 250*time.Millisecond)})
			if _, err := tick.InProcess(t.Context(), newOver(t, f).Handler(), token, "migrations"); err != nil {
				t.Fatal(err)
			}
			f.Clear()
			if n%5 == 4 && unfinished(t, svc, 20) == 0 {
				return
			}
		}
		t.Errorf("%d trees are not resharded", unfinished(t, svc, 20))
	})
}

// unfinished counts the trees whose reshard goes on.
func unfinished(t *testing.T, svc *Service, trees int) (n int) {
	t.Helper()
	for i := range trees {
		h, err := svc.DB().Open(t.Context(), fmt.Sprintf("t%03d", i))
		if err != nil {
			t.Fatal(err)
		}
		status, err := h.ReshardStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !status.Complete {
			n++
		}
	}
	return n
}

func TestTickThatItsCallerEndsLeavesNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, f := prepared(t, 1)
		f.Add(faulty.Rule{Do: faulty.Delay(time.Minute, 0)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := tick.InProcess(ctx, svc.Handler(), token, "collect")
		var failed *tick.Error
		if !errors.As(err, &failed) {
			t.Fatalf("it ended with %v", err)
		}
		f.Clear()
		if beats, err := heartbeat.New(f.Table(), clock.NewSystem(), 1).Read(t.Context()); err != nil || len(beats) != 0 {
			t.Errorf("heartbeats %+v, %v", beats, err)
		}
	})
}
