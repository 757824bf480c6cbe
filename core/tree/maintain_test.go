package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
)

var noVersion clock.Version

type rawJSON = json.RawMessage

// visits records which shards a tick visits, each taking a while.
type visits struct {
	mu   sync.Mutex
	seen []string
	in   *instance
	each time.Duration
}

func recordVisits(t *testing.T, in *instance, op string, each time.Duration) *visits {
	v := &visits{in: in, each: each}
	in.hooks.set(func(o, partition string) error {
		if o != op {
			return nil
		}
		v.mu.Lock()
		v.seen = append(v.seen, partition)
		v.mu.Unlock()
		return in.clock.Sleep(t.Context(), v.each)
	})
	return v
}

func (v *visits) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := v.seen
	v.seen = nil
	return seen
}

func TestTickVisitsEveryShardOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t)
		for i := range 5 {
			in.writer(t, fmt.Sprint("t", i))
		}
		v := recordVisits(t, in, "checkpoint", time.Millisecond)
		for range 3 { // wherever the walk begins
			rep, err := in.Checkpoint(t.Context(), time.Minute)
			seen := v.take()
			slices.Sort(seen)
			if err != nil || !rep.Complete || rep.Shards != 20 || len(slices.Compact(seen)) != 20 || rep.Failed != 0 {
				t.Errorf("%+v %v, %d shards", rep, err, len(seen))
			}
		}
	})
}

func TestBoundedTicksMakeProgressEverywhere(t *testing.T) {
	for _, each := range []time.Duration{10 * time.Millisecond, 3 * time.Second} {
		t.Run(each.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, m := fresh(t)
				for i := range 5 {
					a.writer(t, fmt.Sprint("t", i))
				}
				all := map[string]int{}
				for range 8 { // each tick in a new process
					in := open(t, m.Table(), m.Blobs())
					v := recordVisits(t, in, "collect", each)
					rep, err := in.Collect(t.Context(), 3*each)
					must(t, err)
					seen := v.take()
					if rep.Complete || len(seen) < 1 || len(seen) > 4 {
						t.Errorf("%d shards in the time of 3: %+v", len(seen), rep)
					}
					for _, p := range seen {
						all[p]++
					}
				}
				if len(all) != 20 {
					t.Errorf("8 ticks of 3 shards visited %d of 20", len(all))
				}
			})
		})
	}
}

func TestShardThatKillsItsVisitorDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, m := fresh(t)
		a.writer(t, "t")
		all := map[string]bool{}
		for range 8 {
			f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
			in := open(t, f.Table(), f.Blobs())
			in.hooks.set(func(op, partition string) error {
				if op == "checkpoint" {
					all[partition] = true
					f.Kill() // every visit is fatal
				}
				return nil
			})
			ctx, cancel := f.Context(t.Context())
			if _, err := in.Checkpoint(ctx, time.Minute); err == nil {
				t.Error("the tick survived")
			}
			cancel()
		}
		if len(all) != 4 {
			t.Errorf("visited %d shards of 4", len(all))
		}
	})
}

func TestFailureOfOneShardIsReportedAndPassedOver(t *testing.T) {
	in, _ := fresh(t)
	h := in.writer(t, "t")
	bad := h.entry.cur.Load().partitions[1]
	in.hooks.set(func(op, partition string) error {
		if op == "checkpoint" && partition == bad {
			return store.Corruptf("x")
		}
		return nil
	})
	rep, err := in.Checkpoint(t.Context(), 0)
	if err != nil || rep.Failed != 1 || rep.Shards != 4 || rep.Failures[0].Shard != 1 || rep.Failures[0].Tree != "t" || !errors.Is(rep.Failures[0].Err, store.ErrCorrupt) {
		t.Errorf("%+v %v", rep, err)
	}
}

func TestReportsOfManyFailuresAreBounded(t *testing.T) {
	var r Report
	for range 100 {
		r.fail("t", 0, store.ErrCorrupt)
	}
	if r.Failed != 100 || len(r.Failures) != maxFailures {
		t.Errorf("%d, %d", r.Failed, len(r.Failures))
	}
}

func TestCheckpointAndCollectKeepTheData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, m := fresh(t, func(o *options.Options) { o.CheckpointTailRows = 1 })
		h := in.writer(t, "t")
		keys := load(t, h, 2000)
		for _, k := range keys[:1000] {
			_, err := h.Delete(t.Context(), k, noVersion)
			must(t, err)
		}
		rep, err := in.Checkpoint(t.Context(), 0)
		if err != nil || rep.Rows == 0 || rep.Failed != 0 {
			t.Fatalf("%+v %v", rep, err)
		}
		must(t, in.clock.Sleep(t.Context(), time.Hour))
		rep, err = in.Collect(t.Context(), 0)
		if err != nil || rep.Rows == 0 || rep.Failed != 0 {
			t.Fatalf("%+v %v", rep, err)
		}
		got, _ := walkPages(t, open(t, m.Table(), m.Blobs()).writer(t, "t"), ScanQuery{Limit: 999})
		if !slices.Equal(got, keys[1000:]) {
			t.Errorf("%d keys left", len(got))
		}
	})
}

func TestOverlappingTicksAreHarmless(t *testing.T) {
	a, m := fresh(t, func(o *options.Options) { o.CheckpointTailRows = 1 })
	keys := load(t, a.writer(t, "t"), 500)
	var wg sync.WaitGroup
	var shards atomic.Int32
	for range 6 {
		in := open(t, m.Table(), m.Blobs(), func(o *options.Options) { o.CheckpointTailRows = 1 })
		wg.Go(func() {
			rep, err := in.Checkpoint(t.Context(), time.Minute)
			if err != nil || rep.Failed != 0 {
				t.Errorf("%+v %v", rep, err)
			}
			shards.Add(int32(rep.Shards))
			if rep, err := in.Collect(t.Context(), time.Minute); err != nil || rep.Failed != 0 {
				t.Errorf("%+v %v", rep, err)
			}
		})
	}
	wg.Wait()
	if got, _ := walkPages(t, open(t, m.Table(), m.Blobs()).writer(t, "t"), ScanQuery{Limit: 100}); !slices.Equal(got, keys) || shards.Load() < 4 {
		t.Errorf("%d keys, %d visits", len(got), shards.Load())
	}
}

func TestCollectPurgesWhatIsOverdueAndOnlyThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t)
		ctx := t.Context()
		for _, n := range []string{"long", "short", "alive"} {
			put(t, in.writer(t, n), "k")
		}
		_, err := in.SetOptions(ctx, "short", map[string]rawJSON{"SoftDeleteDuration": raw(`"1h"`)})
		must(t, err)
		must(t, in.Delete(ctx, "long"))
		must(t, in.Delete(ctx, "short"))
		for hours, want := range []int{3, 2, 2} {
			rep, err := in.Collect(ctx, 0)
			must(t, err)
			infos, _, err := in.List(ctx, "", 10)
			if err != nil || len(infos) != want || rep.Failed != 0 {
				t.Errorf("after %d hours: %d trees, %v, %+v", hours, len(infos), err, rep)
			}
			must(t, in.clock.Sleep(ctx, time.Hour+time.Second))
		}
		must(t, in.clock.Sleep(ctx, 72*time.Hour))
		rep, err := in.Collect(ctx, 0)
		if err != nil || !slices.Equal(rep.Purged, []string{"long"}) {
			t.Errorf("%+v %v", rep, err)
		}
		if _, ok, err := in.writer(t, "alive").Get(ctx, "k", ReadOptions{}); err != nil || !ok {
			t.Errorf("%v %v", ok, err)
		}
	})
}

func TestCollectFinishesWhatACrashLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, m := fresh(t)
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		dying := open(t, f.Table(), f.Blobs())
		f.KillAt(3, faulty.BeforeEffect) // the row is written, the shards are not
		ctx, cancel := f.Context(t.Context())
		defer cancel()
		if _, _, err := dying.Create(ctx, "t", CreateOptions{}); err == nil {
			t.Fatal("the create survived")
		}
		if infos, _, err := in.List(t.Context(), "", 10); err != nil || len(infos) != 0 {
			t.Fatalf("half a tree shows: %+v %v", infos, err)
		}
		rep, err := in.Collect(t.Context(), 0)
		if err != nil || !slices.Equal(rep.Finished, []string{"t"}) {
			t.Errorf("%+v %v", rep, err)
		}
		if info, err := in.Info(t.Context(), "t"); err != nil || info.State != StateActive {
			t.Errorf("%+v %v", info, err)
		}
	})
}

func TestDamagedWalkPositionIsLoud(t *testing.T) {
	in, m := fresh(t)
	for _, data := range [][]byte{[]byte("x"), positionFormat.Seal([]byte(`{"tree":"_x"}`)), positionFormat.Seal([]byte(`{"more":1}`))} {
		_, _ = m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Delete("~walk-checkpoint", "")})
		_, err := m.Table().Apply(t.Context(), partitionRegistry, []store.Op{store.Insert("~walk-checkpoint", data)})
		must(t, err)
		_, err = in.Checkpoint(t.Context(), 0)
		wantErr(t, err, store.ErrCorrupt)
	}
}

func TestWalkOverManyTreesAndAPositionThatIsGone(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.DefaultShardCount = 1 })
	for i := range walkPage + 5 {
		in.writer(t, fmt.Sprintf("t%03d", i))
	}
	in.hooks.set(nil)
	rep, err := in.Checkpoint(t.Context(), time.Minute)
	if err != nil || rep.Shards != walkPage+5 || !rep.Complete {
		t.Errorf("%+v %v", rep, err)
	}
	must(t, in.Delete(t.Context(), "t000"))
	must(t, in.Purge(t.Context(), "t000")) // the walk was noted behind it
	if rep, err = in.Checkpoint(t.Context(), time.Minute); err != nil || rep.Shards != walkPage+4 || !rep.Complete {
		t.Errorf("%+v %v", rep, err)
	}
}
