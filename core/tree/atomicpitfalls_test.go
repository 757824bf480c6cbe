package tree

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/txn"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// What was prepared before the window of a split opened is carried over: the
// coordinator dies right before or after the decision, then the shard is split.
func TestAPrepareBeforeTheWindowOpensIsNotLost(t *testing.T) {
	for point, want := range map[faulty.Point]string{faulty.BeforeEffect: "old old old", faulty.AfterEffect: "new new new"} {
		t.Run(point.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRivals(t)
				moves, stays, other := movingKeys(t, r.second, 0)
				keys := []string{moves, stays, other}
				mustBatch(t, r.second, setAll(keys, "old"), "")
				r.faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-")), Skip: 1, Times: 1, Do: faulty.Crash(point)})
				ctx, cancel := r.faults.Context(t.Context())
				defer cancel()
				if _, err := r.first.AtomicBatch(ctx, setAll(keys, "new"), ""); err == nil {
					t.Fatal("the coordinator is alive")
				}
				d := r.divider(t)
				d.until(t, 0, split.PhaseDone)
				if got := values(t, d.writer(t, "demo"), keys); got != want {
					t.Errorf("after the split: %q, want %q", got, want)
				}
				d.settle(t, d)
				if got := values(t, r.second, keys); got != want {
					t.Errorf("in the end: %q, want %q", got, want)
				}
				nothingPending(t, d, d.writer(t, "demo"))
			})
		})
	}
}

// The outcome reaches source and target, and only then what the sweep of a frozen
// coordinator has read arrives on the target: an orphan, which hides nothing.
func TestASweepThatComesAfterTheOutcomeHidesNothing(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprint("decision forgotten ", forgotten), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRivals(t)
				moves, stays, other := movingKeys(t, r.second, 0)
				keys := []string{moves, stays, other}
				mustBatch(t, r.second, setAll(keys, "old"), "")
				m, err := r.second.refresh(t.Context())
				must(t, err)
				target := fmt.Sprintf("s-%s-%x", m.ID, len(m.partitions))
				frozen := r.frozenSweep(t, target)
				r.meanwhile(2, func(context.Context) {
					frozen.start(t)
				})
				mustBatch(t, r.first, setAll(keys, "new"), "")
				d := r.divider(t)
				_ = r.src.Sleep(t.Context(), 2*time.Second)
				d.until(t, 0, split.PhaseReject)
				if forgotten {
					for range 4 {
						_ = r.src.Sleep(t.Context(), time.Minute)
						if _, err := d.Transactions(t.Context(), 0); err != nil {
							t.Fatal(err)
						}
					}
				}
				frozen.thaw()
				list, err := d.DB.shard(target, m.tuning).(log).Prepared(t.Context(), allSlots())
				if err != nil || len(list) != 1 {
					t.Fatalf("there is no orphan: %+v, %v", list, err)
				}
				cold := open(t, r.mem.Table(), r.mem.Blobs()).writer(t, "demo")
				if got := values(t, cold, keys); got != "new new new" {
					t.Errorf("read %q", got)
				}
				if it, ok, err := cold.Get(t.Context(), moves, ReadOptions{}); err != nil || !ok || string(it.Value) != "new" {
					t.Errorf("get %q, %v, %v", it.Value, ok, err)
				}
				if _, err := cold.Put(t.Context(), moves, []byte("later"), PutOptions{}); err != nil {
					t.Error(err)
				}
				d.until(t, 0, split.PhaseDone)
				d.settle(t, d)
				if got := values(t, cold, keys); got != "later new new" {
					t.Errorf("in the end %q", got)
				}
				nothingPending(t, d, cold)
			})
		})
	}
}

func allSlots() *keyspace.SlotSet {
	var s keyspace.SlotSet
	for slot := range uint16(keyspace.Slots) {
		s.Add(slot)
	}
	return &s
}

// frozenSweep is a coordinator of a split that is frozen when it sends what it has
// swept.
type frozenSweep struct {
	in            *instance
	stuck, resume chan struct{}
	over          chan struct{}
	source        keyspace.ShardID
}

func (r *rivals) frozenSweep(t *testing.T, target string) *frozenSweep {
	t.Helper()
	f := &frozenSweep{stuck: make(chan struct{}), resume: make(chan struct{}), over: make(chan struct{})}
	faults := faulty.New(r.mem.Table(), r.mem.Blobs(), faulty.Options{Clock: r.src})
	// The first two appends to the target create it and open the migration.
	faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition(target)), Skip: 2, Times: 1, Do: faulty.Do(func(context.Context, *faulty.Call) error {
		close(f.stuck)
		<-f.resume
		return nil
	})})
	db, err := New(Config{Table: faults.Table(), Blobs: faults.Blobs(), Clock: r.src, Options: options.Default()})
	must(t, err)
	f.in = &instance{DB: db}
	return f
}

// start begins a split and returns when the sweep is under way.
func (f *frozenSweep) start(t *testing.T) {
	tr := f.in.writer(t, "demo")
	m, err := tr.refresh(t.Context())
	must(t, err)
	x := &splitTree{t: tr, id: m.ID}
	if _, err := f.in.splits.Begin(t.Context(), x, f.source, "test"); err != nil {
		t.Error(err)
	}
	go func() {
		defer close(f.over)
		for range 2 { // the second sweeps
			_, _ = f.in.splits.Advance(t.Context(), x, f.source, 0)
		}
	}()
	<-f.stuck
}

// thaw lets it go on, to its end.
func (f *frozenSweep) thaw() {
	close(f.resume)
	<-f.over
}

// A write that was acknowledged after a batch survives its terminals, however late
// they are and however often they come; and so it survives late aborts, which only
// forget.
func TestLateTerminalsUndoNothing(t *testing.T) {
	for point, after := range map[faulty.Point]string{faulty.BeforeEffect: "later later old old", faulty.AfterEffect: "later later new new"} {
		t.Run(point.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other, tr, keys, src := stranded(t, point)
				row := onlyRow(t, other, tr)
				if point == faulty.BeforeEffect {
					_ = src.Sleep(t.Context(), 11*time.Second)
				}
				put(t, tr, keys[0])
				if _, err := tr.Put(t.Context(), keys[0], []byte("later"), PutOptions{}); err != nil {
					t.Fatal(err)
				}
				if _, err := tr.Delete(t.Context(), keys[1], clock.Version{}); err != nil {
					t.Fatal(err)
				}
				if _, err := tr.Put(t.Context(), keys[1], []byte("later"), PutOptions{}); err != nil {
					t.Fatal(err)
				}
				m := tr.entry.last.Load()
				for range 3 {
					o, err := tr.outcomeOf(t.Context(), m, row.Tx())
					must(t, err)
					for _, key := range keys {
						must(t, tell(t.Context(), tr.owner(m, key), row.Tx(), o, nil))
					}
				}
				if got := values(t, tr, keys); got != after {
					t.Errorf("read %q, want %q", got, after)
				}
			})
		})
	}
}

// onlyRow returns the row of a transaction that is not told.
func onlyRow(t *testing.T, in *instance, tr *Tree) *txn.Row {
	t.Helper()
	page, err := in.txns.List(t.Context(), tr.entry.last.Load().ID, "", 100)
	must(t, err)
	rows := slices.DeleteFunc(page.Rows, func(r *txn.Row) bool { return in.txns.IsDone(tr.entry.last.Load().ID, r) })
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows[0]
}

// A reader, or writer, that cannot reach the decision says so: it never guesses.
func TestWithoutTheDecisionThereIsNoAnswer(t *testing.T) {
	for _, point := range faulty.Points {
		t.Run(point.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := clock.NewSystem()
				mem := memory.New(memory.Options{Clock: src})
				dying := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
				cut := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
				tr := open(t, cut.Table(), cut.Blobs()).writer(t, "demo")
				keys := spread(t, tr, 4)
				mustBatch(t, tr, setAll(keys, "old"), "")
				dying.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-")), Skip: 1, Times: 1, Do: faulty.Crash(point)})
				ctx, cancel := dying.Context(t.Context())
				defer cancel()
				if _, err := open(t, dying.Table(), dying.Blobs()).writer(t, "demo").AtomicBatch(ctx, setAll(keys, "new"), ""); err == nil {
					t.Fatal("the coordinator is alive")
				}
				cut.Add(faulty.Rule{When: faulty.InPartition("x-"), Do: faulty.Fail(store.ErrUnavailable)})
				for name, f := range map[string]func(context.Context) error{
					"get":       func(ctx context.Context) error { _, _, err := tr.Get(ctx, keys[0], ReadOptions{}); return err },
					"batch get": func(ctx context.Context) error { _, err := tr.GetMany(ctx, keys, ReadOptions{}); return err },
					"one of it": func(ctx context.Context) error { _, err := tr.GetMany(ctx, keys[:1], ReadOptions{}); return err },
					"scan":      func(ctx context.Context) error { _, err := tr.Scan(ctx, ScanQuery{Limit: 10}); return err },
					"count":     func(ctx context.Context) error { _, err := tr.Count(ctx, Bounds{}, ReadOptions{}); return err },
					"put":       func(ctx context.Context) error { _, err := tr.Put(ctx, keys[0], []byte("x"), PutOptions{}); return err },
					"delete":    func(ctx context.Context) error { _, err := tr.Delete(ctx, keys[0], clock.Version{}); return err },
					"range":     func(ctx context.Context) error { _, err := tr.DeleteRange(ctx, Bounds{}); return err },
					"batch":     func(ctx context.Context) error { _, err := tr.Batch(ctx, setAll(keys, "x")); return err },
					"one shard": func(ctx context.Context) error { _, err := tr.AtomicBatch(ctx, setAll(keys[:1], "x"), ""); return err },
					"stream": func(ctx context.Context) error {
						_, err := tr.Stream(ctx, ScanQuery{}, func(*Item) error { return nil })
						return err
					},
					"get or set": func(ctx context.Context) error {
						_, err := tr.Put(ctx, keys[0], []byte("x"), PutOptions{GetOrSet: true})
						return err
					},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					if err := f(ctx); !store.Transient(err) {
						t.Errorf("%s: %v", name, err)
					}
					cancel()
				}
				cut.Clear()
				if got := values(t, tr, keys); got != map[faulty.Point]string{faulty.BeforeEffect: "old old old old", faulty.AfterEffect: "new new new new"}[point] {
					t.Errorf("read %q", got)
				}
			})
		})
	}
}

// Every kind of plain write to a key of an undecided batch waits for it, and comes
// after it.
func TestAPlainWriteComesAfterTheBatchInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		var writers sync.WaitGroup
		var results [3]clock.Version
		r.meanwhile(2, func(ctx context.Context) {
			writers.Go(func() {
				res, err := r.second.Put(t.Context(), r.keys[0], []byte("put"), PutOptions{})
				must(t, err)
				results[0] = res.Version
			})
			writers.Go(func() {
				existed, err := r.second.Delete(t.Context(), r.keys[1], clock.Version{})
				if err != nil || !existed {
					t.Errorf("delete: %v, %v", existed, err)
				}
			})
			writers.Go(func() {
				res, err := r.second.Batch(t.Context(), []BatchOp{setOf(r.keys[2], "1"), setOf(r.keys[2], "2"), setOf("elsewhere", "3")})
				must(t, err)
				results[1], results[2] = res[0].Version, res[1].Version
			})
			_ = r.src.Sleep(ctx, 3*time.Second)
			for _, v := range results {
				if !v.IsZero() {
					t.Error("a write did not wait")
				}
			}
		})
		batch := mustBatch(t, r.first, setAll(r.keys, "new"), "")
		writers.Wait()
		if got := values(t, r.second, r.keys); got != "put 2 new" {
			t.Errorf("read %q", got)
		}
		if results[0].Compare(batch[0].Version) <= 0 || results[1].Compare(batch[0].Version) <= 0 || results[2].Compare(results[1]) <= 0 {
			t.Errorf("versions %v beside that of the batch, %s", results, batch[0].Version)
		}
	})
}

// Batches that hold what the others want, two crosswise and three in a ring, all
// come to their end: one order of them explains what is left.
func TestConflictingBatchesEnd(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRivals(t)
				m := r.second.entry.last.Load()
				var done sync.WaitGroup
				versions := make([]clock.Version, n)
				for i := range n {
					in := open(t, r.mem.Table(), r.mem.Blobs())
					tr := in.writer(t, "demo")
					mine, next := r.keys[i], r.keys[(i+1)%n]
					late := m.partitions[m.shardMap.OwnerOf(next)]
					var once sync.Once
					in.hooks.set(func(op, partition string) error {
						if op == "write" && partition == late {
							once.Do(func() { _ = r.src.Sleep(t.Context(), 100*time.Millisecond) })
						}
						return nil
					})
					done.Go(func() {
						_ = r.src.Sleep(t.Context(), time.Duration(i)*time.Millisecond)
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						res, err := tr.AtomicBatch(ctx, setAll([]string{mine, next}, fmt.Sprint("by ", i)), "")
						if err != nil {
							t.Errorf("batch %d: %v", i, err)
							return
						}
						versions[i] = res[0].Version
					})
				}
				done.Wait()
				for i := range n {
					it, ok, err := r.second.Get(t.Context(), r.keys[i], ReadOptions{})
					before := (i + n - 1) % n
					want := i
					if versions[before].Compare(versions[i]) > 0 {
						want = before
					}
					if err != nil || !ok || string(it.Value) != fmt.Sprint("by ", want) || it.Version != versions[want] {
						t.Errorf("key %d: %q of %s, %v, %v; versions %v", i, it.Value, it.Version, ok, err, versions)
					}
				}
				nothingPending(t, r.other, r.second)
			})
		})
	}
}

// Under conflicts that never cease every batch ends, and so does every plain
// write: nobody starves.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		var clients, hogs sync.WaitGroup
		stop := make(chan struct{})
		worker := func(i int) (*instance, *Tree) {
			f := faulty.New(r.mem.Table(), r.mem.Blobs(), faulty.Options{Clock: r.src})
			f.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
			in := open(t, f.Table(), f.Blobs())
			return in, in.writer(t, "demo")
		}
		for i := range 4 { // small batches, one after the other without a pause
			_, tr := worker(i)
			hogs.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					keys := []string{r.keys[(i+n)%4], r.keys[(i+n+1)%4]}
					if _, err := tr.AtomicBatch(t.Context(), setAll(keys, "hog"), ""); err != nil {
						t.Errorf("a small batch: %v", err)
					}
				}
			})
		}
		longest := time.Duration(0)
		var mu sync.Mutex
		timed := func(f func(ctx context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			start := r.src.Now().Mono
			if err := f(ctx); err != nil {
				t.Errorf("after %s: %v", r.src.Now().Mono-start, err)
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, r.src.Now().Mono-start)
		}
		for i := range 3 {
			_, tr := worker(i)
			clients.Go(func() {
				for range 8 {
					timed(func(ctx context.Context) error {
						_, err := tr.AtomicBatch(ctx, setAll(r.keys, "all"), "")
						return err
					})
					timed(func(ctx context.Context) error {
						_, err := tr.Put(ctx, r.keys[i], []byte("one"), PutOptions{})
						return err
					})
				}
			})
		}
		clients.Wait()
		close(stop)
		hogs.Wait()
		t.Logf("the longest took %s", longest)
		_ = r.src.Sleep(t.Context(), time.Second)
		nothingPending(t, r.other, r.second)
	})
}

// What the shard says of a batch whose row is gone: void.
func TestABatchWithoutARowIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, tr, keys, _ := stranded(t, faulty.BeforeEffect)
		row := onlyRow(t, other, tr)
		must(t, other.txns.Remove(t.Context(), tr.entry.last.Load().ID, row))
		if got := values(t, tr, keys); got != "old old old old" {
			t.Errorf("read %q", got)
		}
		start := tr.db.clock.Now().Mono
		for _, key := range keys {
			put(t, tr, key)
		}
		if waited := tr.db.clock.Now().Mono - start; waited > time.Second {
			t.Errorf("waited %s for nobody", waited)
		}
		nothingPending(t, other, tr)
		if _, _, err := tr.Get(t.Context(), keys[0], ReadOptions{}); err != nil {
			t.Error(err)
		}
	})
}
