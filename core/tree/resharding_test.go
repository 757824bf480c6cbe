package tree_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

func (s *stage) reshard(h *tree.Tree, target int) (tree.ReshardStatus, bool) {
	s.t.Helper()
	st, started, err := h.Reshard(s.t.Context(), target)
	s.ok(err)
	return st, started
}

func (s *stage) status(h *tree.Tree) tree.ReshardStatus {
	s.t.Helper()
	st, err := h.ReshardStatus(s.t.Context())
	s.ok(err)
	return st
}

func TestAReshardGrowsATreeUnderWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, writers = 1200, 6
		s := newStage(t, func(o *options.Options) { o.AutoSplitEnabled, o.MaxConcurrentMigrations = false, 3 })
		h := s.plant("growing", keys)
		ctx, stop := context.WithCancel(t.Context())
		var (
			wg      sync.WaitGroup
			written [keys]atomic.Int64
		)
		for w := range writers {
			db := s.instance()
			wg.Go(func() {
				for n := int64(1); ctx.Err() == nil; n++ {
					own, err := db.OpenOrCreate(t.Context(), "growing")
					if err != nil {
						t.Error(err)
						return
					}
					i := (int(n)*writers*7 + w) % keys
					i -= i%writers - w // each writes keys of its own
					if _, err := own.Put(t.Context(), stageKey(i), fmt.Append(nil, n), tree.PutOptions{}); err != nil {
						t.Errorf("put: %v", err)
					}
					written[i].Store(n)
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				s.counts(h, keys)
				time.Sleep(3 * time.Millisecond)
			}
		})
		if st, started := s.reshard(h, 16); !started || st.Complete || st.Start != 4 || st.Target != 16 {
			t.Errorf("asked: %+v, started %v", st, started)
		}
		last := 4
		for ticks := 0; ; ticks++ {
			st := s.status(h)
			if st.Current < last || st.Current > 16 || ticks > 100 {
				t.Fatalf("after %d ticks: %+v", ticks, st)
			}
			if last = st.Current; st.Complete {
				break
			}
			if active, _, err := h.Splits(t.Context()); err != nil || len(active) > 3 {
				t.Errorf("%d splits at once, %v", len(active), err)
			}
			// Short ticks, so that the reshard takes many.
			if _, err := s.db.Migrations(t.Context(), 50*time.Millisecond); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		stop()
		wg.Wait()
		if st := s.status(h); st != (tree.ReshardStatus{Complete: true, Start: 16, Current: 16, Target: 16}) {
			t.Errorf("in the end %+v", st)
		}
		s.play(5*time.Second, nil)
		if n := len(split.SlotCounts(h.ShardMap())); n != 16 {
			t.Errorf("%d shards own slots", n)
		}
		s.counts(h, keys)
		for i := range written {
			n := written[i].Load()
			if n == 0 {
				continue
			}
			it, ok, err := h.Get(t.Context(), stageKey(i), tree.ReadOptions{})
			if err != nil || !ok || string(it.Value) != fmt.Sprint(n) {
				t.Errorf("key %d holds %q, %v, %v: want %d", i, it.Value, ok, err, n)
			}
		}
	})
}

func TestAReshardIsTakenUpByOtherInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 600
		s := newStage(t, func(*options.Options) {})
		h := s.plant("tree", keys)
		s.reshard(h, 11)
		ticks := 0
		for ; !s.status(h).Complete; ticks++ {
			// Each tick is cut off in the midst of what it does.
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(3+ticks%40)*time.Millisecond)
			_, _ = s.instance().Migrations(ctx, time.Minute)
			cancel()
			time.Sleep(1100 * time.Millisecond)
			s.counts(h, keys)
			if ticks > 2000 {
				t.Fatalf("no end: %+v", s.status(h))
			}
		}
		if n := len(split.SlotCounts(h.ShardMap())); n != 11 {
			t.Errorf("%d shards, want 11", n)
		}
		t.Logf("%d ticks", ticks)
		if ticks < 4 {
			t.Errorf("%d ticks: nothing was cut off", ticks)
		}
	})
}

func TestReshardRefusesWhatItCannotDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		h := s.plant("tree", 100)
		for _, target := range []int{-1, 0, keyspace.Slots + 1, 3, 1} {
			_, started, err := h.Reshard(t.Context(), target)
			var bad *tree.ArgumentError
			if started || !errors.As(err, &bad) || bad.Field != "shardCount" {
				t.Errorf("to %d: started %v, %v", target, started, err)
			}
		}
		if st, started := s.reshard(h, 4); started || st != (tree.ReshardStatus{Complete: true, Start: 4, Current: 4, Target: 4}) {
			t.Errorf("to what it is: %+v, started %v", st, started)
		}
		if _, started := s.reshard(h, 8); !started {
			t.Error("not started")
		}
		if st, started := s.reshard(h, 8); started || st.Complete || st.Target != 8 {
			t.Errorf("the same again: %+v, started %v", st, started)
		}
		for _, target := range []int{9, 4, 2} {
			st, started, err := h.Reshard(t.Context(), target)
			if started || !errors.Is(err, tree.ErrReshardInProgress) || st.Target != 8 {
				t.Errorf("to %d meanwhile: %+v, started %v, %v", target, st, started, err)
			}
		}
		s.play(10*time.Second, nil)
		if st := s.status(h); !st.Complete || st.Current != 8 {
			t.Errorf("in the end %+v", st)
		}
		if st, started := s.reshard(h, 9); !started || st.Start != 8 {
			t.Errorf("the next: %+v, started %v", st, started)
		}
	})
}

func TestReshardOfManyAtOnceBeginsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		h := s.plant("tree", 100)
		var started, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			db := s.instance()
			wg.Go(func() {
				own, err := db.Open(t.Context(), "tree")
				if err != nil {
					t.Error(err)
					return
				}
				switch _, first, err := own.Reshard(t.Context(), 6+i%2); {
				case errors.Is(err, tree.ErrReshardInProgress):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				case first:
					started.Add(1)
				}
			})
		}
		wg.Wait()
		if started.Load() != 1 || refused.Load() != 4 {
			t.Errorf("%d started, %d refused; want 1 and 4", started.Load(), refused.Load())
		}
		target := s.status(h).Target
		s.play(5*time.Second, nil)
		if st := s.status(h); !st.Complete || st.Current != target {
			t.Errorf("in the end %+v, want %d", st, target)
		}
	})
}

func TestAnEmptyTreeIsReshardedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		h, err := s.db.OpenOrCreate(t.Context(), "empty")
		s.ok(err)
		st, started := s.reshard(h, 32)
		if want := (tree.ReshardStatus{Complete: true, Start: 4, Current: 32, Target: 32}); !started || st != want {
			t.Errorf("%+v, started %v; want %+v", st, started, want)
		}
		if n := len(split.SlotCounts(h.ShardMap())); n != 32 {
			t.Errorf("%d shards own slots", n)
		}
	})
}

func TestTheMonitorRestsWhileAReshardRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 600
		s := newStage(t, func(o *options.Options) { o.MaxClusterConcurrentAutoSplits = 8 })
		s.still = true
		h := s.plant("tree", keys)
		hot := owned(h, keys, 0)
		s.reshard(h, 6)
		load := func(second int) { s.heat(h, hot, 60, second) }
		s.play(time.Minute, load)
		if all := s.splits(h); len(all) != 0 {
			t.Errorf("%d splits without a tick of migrations", len(all))
		}
		if told := s.told("tree"); told[split.ReasonResharding] == 0 || len(told) != 1 {
			t.Errorf("told %v", told)
		}
		s.still = false
		s.play(5*time.Second, load)
		if st := s.status(h); !st.Complete || st.Current != 6 {
			t.Errorf("after the migrations: %+v", st)
		}
		for _, x := range s.splits(h) {
			if x.Cause != split.CauseReshard {
				t.Errorf("a split of shard %d for %s", x.Source, x.Cause)
			}
		}
		hot = owned(h, keys, 1)
		s.play(time.Minute, load)
		if st := s.status(h); st.Current <= 6 {
			t.Errorf("the monitor did not wake up: %v", s.told("tree"))
		}
	})
}

func TestAReshardLeavesTimeToOtherTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		first, second := s.plant("a", 200), s.plant("b", 200)
		s.reshard(first, 512)
		_, err := second.BeginSplit(t.Context(), 1, "test")
		s.ok(err)
		rep, err := s.db.Migrations(t.Context(), 400*time.Millisecond)
		s.ok(err)
		if st := s.status(first); st.Complete || st.Current <= 4 {
			t.Fatalf("the reshard is at %+v: it was to take more than a tick", st)
		}
		active, done, err := second.Splits(t.Context())
		s.ok(err)
		if len(active) != 0 || len(done) != 1 {
			t.Errorf("of the other tree %d splits are in flight, %d over; %+v", len(active), len(done), rep)
		}
		if rep.Trees != 2 || rep.Begun == 0 || rep.Completed < 2 {
			t.Errorf("report %+v", rep)
		}
	})
}
