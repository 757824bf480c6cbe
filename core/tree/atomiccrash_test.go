package tree

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// doomed is a batch over three shards, the first of which is split by another
// instance, one step before each storage call of the batch from a certain one on.
type doomed struct {
	mem    *memory.Store
	src    clock.Source
	faults *faulty.Instance
	keys   []string
	tr     *Tree
	calls  uint64 // before the batch
}

// narrow is a tree of three shards.
func narrow(o *options.Options) { o.DefaultShardCount = 3 }

func newDoomed(t *testing.T, from uint64) *doomed {
	t.Helper()
	d := &doomed{src: clock.NewSystem()}
	d.mem = memory.New(memory.Options{Clock: d.src})
	divider := &instance{DB: operator(t, d.mem, narrow)}
	seen := divider.writer(t, "demo")
	moves, stays, other := movingKeys(t, seen, 0)
	third := ""
	for i := 0; third == ""; i++ {
		key := fmt.Sprint("third-", i)
		if id := seen.ShardMap().OwnerOf(key); id != 0 && id != seen.ShardMap().OwnerOf(other) {
			third = key
		}
	}
	d.keys = []string{moves, stays, other, third}
	mustBatch(t, seen, setAll(d.keys, "old"), "")
	m, err := seen.refresh(t.Context())
	must(t, err)
	x := &splitTree{t: seen, id: m.ID}
	var mu sync.Mutex
	d.faults = faulty.New(d.mem.Table(), d.mem.Blobs(), faulty.Options{Clock: d.src, Before: func(ctx context.Context, c *faulty.Call) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case d.calls == 0 || c.N < d.calls+from:
			return nil
		case c.N == d.calls+from:
			if _, err := divider.splits.Begin(t.Context(), x, 0, "test"); err != nil {
				t.Error(err)
			}
		}
		if _, err := divider.splits.Advance(t.Context(), x, 0, 0); err != nil {
			t.Error(err)
		}
		return nil
	}})
	in := open(t, d.faults.Table(), d.faults.Blobs(), narrow)
	d.tr = in.writer(t, "demo")
	if got := values(t, d.tr, d.keys); got != "old old old old" {
		t.Fatalf("before: %q", got)
	}
	d.calls = d.faults.Calls()
	return d
}

// recover lets a fresh instance run the ticks that clean up, and checks that the
// batch has happened or not.
func (d *doomed) recover(t *testing.T, err error, names string) (heir *Tree, happened bool) {
	t.Helper()
	in := &instance{DB: operator(t, d.mem, narrow)}
	heir = in.writer(t, "demo")
	before := values(t, heir, d.keys)
	_ = d.src.Sleep(t.Context(), 11*time.Second)
	for range 2 {
		rep, terr := in.Transactions(t.Context(), 0)
		if terr != nil || rep.Failed > 0 {
			t.Fatalf("%+v, %v", rep, terr)
		}
		moved, merr := in.Migrations(t.Context(), time.Minute)
		if merr != nil || moved.Failed > 0 {
			t.Fatalf("%+v, %v", moved, merr)
		}
	}
	nothingPending(t, in, heir)
	if active, _, serr := heir.Splits(t.Context()); serr != nil || len(active) > 0 {
		t.Errorf("%d splits are left, %v", len(active), serr)
	}
	got := values(t, heir, d.keys)
	switch {
	case got != "old old old old" && got != "new new new new":
		t.Errorf("%s: half a batch: %q", names, got)
	case before == "new new new new" && got != before:
		t.Errorf("%s: seen and then unseen: %q", names, got)
	case err == nil && got != "new new new new":
		t.Errorf("%s: it was acknowledged, and is not there: %q", names, got)
	}
	for i, key := range d.keys {
		if it, ok, gerr := heir.Get(t.Context(), key, ReadOptions{}); gerr != nil || !ok || string(it.Value) != got[4*i:4*i+3] {
			t.Errorf("get %s: %q, %v, %v", key, it.Value, ok, gerr)
		}
	}
	return heir, got == "new new new new"
}

// again repeats the batch under its name, which must give one outcome for ever.
func (d *doomed) again(t *testing.T, heir *Tree, happened bool) {
	t.Helper()
	old, _, err := heir.Get(t.Context(), d.keys[0], ReadOptions{})
	must(t, err)
	first := mustBatch(t, heir, setAll(d.keys, "new"), "op")
	if happened && first[0].Version != old.Version {
		t.Errorf("done twice: version %s after %s", first[0].Version, old.Version)
	}
	second := mustBatch(t, heir, setAll(d.keys, "new"), "op")
	for i, key := range d.keys {
		it, ok, err := heir.Get(t.Context(), key, ReadOptions{})
		if err != nil || !ok || string(it.Value) != "new" || it.Version != first[i].Version || second[i].Version != first[i].Version || !second[i].Existed {
			t.Errorf("%s: %s, %v, %v; answered %+v and %+v", key, it.Version, ok, err, first[i], second[i])
		}
	}
}

// A coordinator is killed at every storage operation of a batch over three shards,
// before and after its effect, while one of the shards is being split, beginning
// at every operation. Two ticks later it has happened or not, and no key is locked.
func TestABatchSurvivesACrashAnywhereOfAShardThatSplits(t *testing.T) {
	points, happened := 0, 0
	for _, name := range []string{"", "op"} {
		var calls uint64
		synctest.Test(t, func(t *testing.T) {
			d := newDoomed(t, 1<<60)
			mustBatch(t, d.tr, setAll(d.keys, "new"), name)
			calls = d.faults.Calls() - d.calls
		})
		for from := uint64(1); from <= calls; from++ {
			for n, reached := uint64(1), true; reached; n++ {
				for _, point := range faulty.Points {
					synctest.Test(t, func(t *testing.T) {
						d := newDoomed(t, from)
						d.faults.KillAt(d.calls+n, point)
						ctx, cancel := d.faults.Context(t.Context())
						defer cancel()
						_, err := d.tr.AtomicBatch(ctx, setAll(d.keys, "new"), name)
						if reached = d.faults.Killed(); !reached && err != nil {
							t.Errorf("nobody was killed: %v", err)
						}
						heir, done := d.recover(t, err, fmt.Sprintf("batch %q, split from call %d, killed at %d of %d %s", name, from, n, calls, point))
						points++
						if done {
							happened++
						}
						if name != "" {
							d.again(t, heir, done)
						}
					})
					if t.Failed() {
						t.FailNow()
					}
				}
			}
		}
	}
	t.Logf("%d crash points; at %d of them the batch has happened", points, happened)
	if points < 300 || happened < 30 || happened > points-100 {
		t.Error("that shows little")
	}
}

// The same for a batch whose condition does not hold: it never happens, and its
// name says so for ever.
func TestARefusedBatchSurvivesACrashAnywhere(t *testing.T) {
	ops := func(d *doomed) []BatchOp {
		ops := setAll(d.keys, "new")
		ops[2].IfAbsent = true
		return ops
	}
	for n, reached := uint64(1), true; reached; n++ {
		for _, point := range faulty.Points {
			synctest.Test(t, func(t *testing.T) {
				d := newDoomed(t, 3)
				d.faults.KillAt(d.calls+n, point)
				ctx, cancel := d.faults.Context(t.Context())
				defer cancel()
				_, err := d.tr.AtomicBatch(ctx, ops(d), "op")
				reached = d.faults.Killed()
				var mismatch *BatchMismatchError
				told := errors.As(err, &mismatch)
				heir, done := d.recover(t, err, fmt.Sprint("killed at ", n))
				if done || err == nil {
					t.Errorf("killed at %d: it has happened, %v", n, err)
				}
				if _, err := heir.Delete(t.Context(), d.keys[2], clock.Version{}); err != nil {
					t.Fatal(err)
				}
				_, err = heir.AtomicBatch(t.Context(), ops(d), "op")
				if again := errors.As(err, &mismatch); told && !again {
					t.Errorf("killed at %d: refused at first, and then %v", n, err)
				}
			})
		}
	}
}
