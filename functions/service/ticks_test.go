package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/tick"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/history"
)

// ticking are several services over one store, with a model of what one client
// has written.
type ticking struct {
	t      *testing.T
	rnd    *rand.Rand
	svc    []*Service
	faults []*faulty.Instance
	model  map[string]string
	// snapshots are cursors that are open, and what they must show.
	snapshots map[string]map[string]string
	ticks     int
}

const tickedTree = "t"

func newTicking(t *testing.T, seed uint64, storm float64) *ticking {
	k := &ticking{t: t, rnd: rand.New(rand.NewPCG(seed, 5)), model: map[string]string{}, snapshots: map[string]map[string]string{}}
	m := memory.New(memory.Options{})
	for i := range 3 {
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: clock.NewSeeded(clock.NewSystem(), seed*10+uint64(i))})
		f.Add(faulty.Storm(storm, 50*time.Millisecond)...)
		o := options.Default()
		o.CheckpointTailRows, o.WalGracePeriod, o.BlobGracePeriod = 3, time.Minute, 2*time.Minute
		o.TombstoneGracePeriod, o.AutoSplitMinTreeAge, o.TxDecisionRetention = 10*time.Minute, 0, 10*time.Minute
		o.HotShardOpsPerSecondThreshold, o.HotShardMinShardEntries = 1, 1
		svc, err := New(Config{
			Table: f.Table(), Blobs: f.Blobs(), Options: o, InternalToken: token, Version: "test", Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		k.svc, k.faults = append(k.svc, svc), append(k.faults, f)
	}
	return k
}

// any returns the tree through some instance.
func (k *ticking) any() *tree.Tree {
	var h *tree.Tree
	k.insist("open the tree", func(ctx context.Context) (err error) {
		h, err = k.svc[k.rnd.IntN(len(k.svc))].DB().OpenOrCreate(ctx, tickedTree)
		return err
	})
	return h
}

// insist repeats what failed because of the storage until it succeeds.
func (k *ticking) insist(what string, f func(ctx context.Context) error) {
	k.t.Helper()
	var err error
	for range 100 {
		ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
		err = f(ctx)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	k.t.Fatalf("%s: %v", what, err)
}

// tickRound runs some timers, or all, on random instances at once, some of them
// twice.
func (k *ticking) tickRound(all bool) {
	var wg sync.WaitGroup
	for _, timer := range schedule.Names() {
		if !all && k.rnd.IntN(3) == 0 {
			continue // missed
		}
		for range 1 + k.rnd.IntN(2) {
			k.ticks++
			h := k.svc[k.rnd.IntN(len(k.svc))].Handler()
			wg.Go(func() {
				answer, err := tick.InProcess(k.t.Context(), h, token, timer)
				// The storm may fail it; the next one comes.
				if err == nil && !json.Valid(answer) {
					k.t.Errorf("%s answered %s", timer, answer)
				}
			})
		}
	}
	k.write()
	wg.Wait()
}

func (k *ticking) key() string { return fmt.Sprintf("%02d", k.rnd.IntN(60)) }

// write changes something, and the model with it.
func (k *ticking) write() {
	h, value := k.any(), fmt.Sprint(k.rnd.Uint32())
	switch k.rnd.IntN(4) {
	case 0:
		key := k.key()
		k.insist("delete", func(ctx context.Context) error { _, err := h.Delete(ctx, key, clock.Version{}); return err })
		delete(k.model, key)
	case 1:
		ops, operation := []tree.BatchOp{}, fmt.Sprintf("op-%d", k.rnd.Uint64())
		for i := range 5 {
			ops = append(ops, tree.BatchOp{Key: fmt.Sprintf("%02d", i*12+k.rnd.IntN(12)), Value: []byte(value)})
		}
		k.insist("atomic batch", func(ctx context.Context) error { _, err := h.AtomicBatch(ctx, ops, operation); return err })
		for _, op := range ops {
			k.model[op.Key] = value
		}
	default:
		key := k.key()
		k.insist("put", func(ctx context.Context) error {
			_, err := h.Put(ctx, key, []byte(value), tree.PutOptions{})
			return err
		})
		k.model[key] = value
	}
}

// step does one thing of many.
func (k *ticking) step() {
	switch k.rnd.IntN(10) {
	case 0:
		h := k.any()
		ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
		defer cancel()
		// Refused while another one is under way.
		if m, err := h.ReadShardMap(ctx); err == nil {
			_, _, _ = h.Reshard(ctx, min(len(m.Shards())+1, 12))
		}
	case 1:
		h := k.any()
		k.insist("open a snapshot", func(ctx context.Context) error {
			info, err := h.OpenCursor(ctx, tree.CursorQuery{Kind: tree.CursorEntries, Snapshot: true})
			if err == nil {
				k.snapshots[info.ID] = maps.Clone(k.model)
			}
			return err
		})
	case 2, 3:
		k.checkSnapshot()
	case 4:
		// Every tick is missed for long.
		time.Sleep(time.Duration(k.rnd.IntN(20)) * time.Minute)
	case 5, 6, 7:
		k.tickRound(false)
	default:
		k.write()
	}
	time.Sleep(time.Duration(k.rnd.IntN(20)) * time.Second)
}

// checkSnapshot pages through the oldest open snapshot.
func (k *ticking) checkSnapshot() {
	if len(k.snapshots) == 0 {
		return
	}
	id := slices.Sorted(maps.Keys(k.snapshots))[0]
	want, got := k.snapshots[id], map[string]string{}
	for page, more := int64(1), true; more; page++ {
		h := k.any()
		k.insist("page of a snapshot", func(ctx context.Context) error {
			p, err := h.NextPage(ctx, id, tree.PageQuery{Page: page, Limit: 7})
			for _, item := range p.Items {
				got[item.Key] = string(item.Value)
			}
			more = p.HasMore
			return err
		})
	}
	if !maps.Equal(got, want) {
		k.t.Errorf("a snapshot shows %d keys, %d expected: %v, %v", len(got), len(want), got, want)
	}
	h := k.any()
	k.insist("close a snapshot", func(ctx context.Context) error {
		err := h.CloseCursor(ctx, id)
		if errors.Is(err, tree.ErrCursorNotFound) {
			return nil // it was closed by a try whose reply was lost
		}
		return err
	})
	delete(k.snapshots, id)
}

// check compares what every instance shows with the model.
func (k *ticking) check() {
	k.t.Helper()
	for i, svc := range k.svc {
		h, err := svc.DB().OpenOrCreate(k.t.Context(), tickedTree)
		if err != nil {
			k.t.Fatal(err)
		}
		got := map[string]string{}
		if _, err := h.Stream(k.t.Context(), tree.ScanQuery{}, func(item *tree.Item) error {
			got[item.Key] = string(item.Value)
			return nil
		}); err != nil {
			k.t.Fatal(err)
		}
		if !maps.Equal(got, k.model) {
			k.t.Errorf("instance %d shows %d keys, %d expected: %v, %v", i, len(got), len(k.model), got, k.model)
		}
	}
}

func TestTicksOfAllTimersMayOverlapRepeatAndMiss(t *testing.T) {
	ticks, faults := 0, 0
	for seed := range max(2, history.Seeds()/5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTicking(t, uint64(seed), 0.1)
				for range 120 {
					k.step()
				}
				for _, f := range k.faults {
					for _, rule := range f.Rules() {
						faults += rule.Fired()
					}
					f.Clear()
				}
				for len(k.snapshots) > 0 {
					k.checkSnapshot()
				}
				k.check()
				for range 30 {
					k.tickRound(true)
					time.Sleep(time.Minute)
				}
				k.check()
				k.settled()
				ticks += k.ticks
			})
		})
	}
	if ticks < 300 || faults < 300 {
		t.Errorf("%d ticks and %d faults: little was put to the test", ticks, faults)
	}
}

// settled demands that the ticks have brought everything to an end.
func (k *ticking) settled() {
	k.t.Helper()
	h := k.any()
	active, _, err := h.Splits(k.t.Context())
	if err != nil || len(active) > 0 {
		k.t.Errorf("%d splits are still in flight: %v", len(active), err)
	}
	status, err := h.ReshardStatus(k.t.Context())
	if err != nil || !status.Complete {
		k.t.Errorf("reshard %+v, %v", status, err)
	}
}
