package tree

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/txn"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// rivals are two instances on one store; calls of the first can be held up.
type rivals struct {
	src    clock.Source
	mem    *memory.Store
	faults *faulty.Instance
	first  *Tree
	second *Tree
	slow   *instance // of the first
	other  *instance // of the second
	keys   []string
}

func newRivals(t *testing.T) *rivals {
	t.Helper()
	r := &rivals{src: clock.NewSystem()}
	r.mem = memory.New(memory.Options{Clock: r.src})
	r.faults = faulty.New(r.mem.Table(), r.mem.Blobs(), faulty.Options{Clock: r.src})
	r.other = open(t, r.mem.Table(), r.mem.Blobs())
	r.second = r.other.writer(t, "demo")
	r.keys = spread(t, r.second, 4)
	mustBatch(t, r.second, setAll(r.keys, "old"), "")
	r.slow = open(t, r.faults.Table(), r.faults.Blobs())
	r.first = r.slow.writer(t, "demo")
	values(t, r.first, r.keys)
	return r
}

// meanwhile lets something happen before the nth write of a transaction row by
// the first instance.
func (r *rivals) meanwhile(n int, do func(ctx context.Context)) {
	rule := faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-")), Skip: n - 1, Times: 1}
	rule.Do = faulty.Do(func(ctx context.Context, _ *faulty.Call) error {
		do(ctx)
		return nil
	})
	r.faults.Add(rule)
}

// A coordinator is so slow that a request of the same name takes its batch over,
// and commits it. The slow one must not begin the batch anew: what was decided
// stands, and is its outcome too.
func TestWhatAnotherRequestOfTheNameDecidedStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		var taken []BatchResult
		r.meanwhile(2, func(ctx context.Context) {
			_ = r.src.Sleep(ctx, 11*time.Second)
			taken = mustBatch(t, r.second, setAll(r.keys, "new"), "op")
			for _, key := range r.keys {
				if _, err := r.second.Put(ctx, key, []byte("later"), PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
		slow, err := r.first.AtomicBatch(t.Context(), setAll(r.keys, "new"), "op")
		if err != nil || len(slow) != 4 || slow[0].Version != taken[0].Version {
			t.Errorf("the slow request has %+v, %v; the batch was decided as %+v", slow, err, taken)
		}
		if got := values(t, r.second, r.keys); got != "later later later later" {
			t.Errorf("it was done twice: %q", got)
		}
	})
}

// The same while the other request is still at work.
func TestABatchIsNotTakenBackFromAnotherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		r.meanwhile(2, func(ctx context.Context) {
			_ = r.src.Sleep(ctx, 11*time.Second)
			id, m := txn.OperationID("op"), r.second.entry.last.Load()
			row, err := r.other.txns.Read(ctx, m.ID, id)
			must(t, err)
			_, err = r.other.txns.Abort(ctx, m.ID, row.Tx())
			must(t, err)
			row, err = r.other.txns.Read(ctx, m.ID, id)
			must(t, err)
			must(t, r.other.txns.Change(ctx, m.ID, row, func(r *txn.Row) {
				r.Attempt, r.State, r.Deadline = r.Attempt+1, txn.Pending, r.Deadline+60_000
			}))
		})
		_, err := r.first.AtomicBatch(t.Context(), setAll(r.keys, "new"), "op")
		wantErr(t, err, ErrOperationInProgress)
		if got := values(t, r.second, r.keys); got != "old old old old" {
			t.Errorf("read %q", got)
		}
	})
}

// An attempt is aborted by an older batch, and a tick notes that the shards know
// it before the coordinator looks: that is no reason to fail.
func TestATickBetweenTwoAttemptsIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		abort := func(ctx context.Context) {
			m := r.second.entry.last.Load()
			page, err := r.other.txns.List(ctx, m.ID, "", 100)
			must(t, err)
			for _, row := range page.Rows {
				if row.State == txn.Pending {
					_, err = r.other.txns.Abort(ctx, m.ID, row.Tx())
					must(t, err)
				}
			}
		}
		r.meanwhile(2, abort)
		r.meanwhile(3, func(ctx context.Context) {
			if rep, err := r.other.Transactions(ctx, 0); err != nil || rep.Told == 0 {
				t.Errorf("%+v, %v", rep, err)
			}
		})
		mustBatch(t, r.first, setAll(r.keys, "new"), "")
		if got := values(t, r.second, r.keys); got != "new new new new" {
			t.Errorf("read %q", got)
		}
	})
}

// The end of a batch whose condition does not hold is recorded, the reply is lost,
// and a tick notes that the shards know: the outcome is still that.
func TestARefusalSurvivesALostReplyAndATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		ops := setAll(r.keys, "new")
		ops[1].IfAbsent = true
		decision := faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-"))
		r.faults.Add(faulty.Rule{When: decision, Skip: 1, Times: 1, Do: faulty.Lose()})
		r.faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Get), faulty.InPartition("x-")), Times: 1, Do: faulty.Do(func(ctx context.Context, _ *faulty.Call) error {
			_, err := r.other.Transactions(ctx, 0)
			return err
		})})
		for range 2 {
			_, err := r.first.AtomicBatch(t.Context(), ops, "op")
			wantMismatch(t, err, r.keys[1])
		}
		_, err := r.second.AtomicBatch(t.Context(), ops, "op")
		wantMismatch(t, err, r.keys[1])
	})
}

// A caller is told that a condition did not hold only when that is on record: a
// repetition must not hear otherwise.
func TestARefusalThatCannotBeRecordedIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		ops := setAll(r.keys, "new")
		ops[1].IfAbsent = true
		decision := faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-"))
		r.faults.Add(faulty.Rule{When: decision, Skip: 1, Do: faulty.Drop()})
		_, err := r.first.AtomicBatch(t.Context(), ops, "op")
		wantUncertain(t, err)
		r.faults.Clear()
		if _, err := r.second.Delete(t.Context(), r.keys[1], clock.Version{}); err != nil {
			t.Fatal(err)
		}
		mustBatch(t, r.first, ops, "op")
		// Without a name nobody asks again.
		ops[0].IfAbsent, ops[1].IfAbsent = true, false
		r.faults.Add(faulty.Rule{When: decision, Skip: 1, Do: faulty.Drop()})
		_, err = r.first.AtomicBatch(t.Context(), ops, "")
		wantMismatch(t, err, r.keys[0])
	})
}

// A batch without a name whose row was aborted before it was heard of begins
// again: the row's end is final for that attempt.
func TestAnAttemptAbortedBeforeItBeganIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		begin := faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-"))
		r.faults.Add(faulty.Rule{When: begin, Times: 1, Do: faulty.Lose()})
		var told txn.Outcome
		var tx [16]byte
		r.faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Get), faulty.InPartition("x-")), Times: 1, Do: faulty.Do(func(ctx context.Context, _ *faulty.Call) error {
			_ = r.src.Sleep(ctx, 11*time.Second)
			m := r.second.entry.last.Load()
			page, err := r.other.txns.List(ctx, m.ID, "", 100)
			must(t, err)
			for _, row := range page.Rows {
				if row.State == txn.Pending {
					tx = row.Tx()
					told, err = r.other.txns.Abort(ctx, m.ID, tx)
					must(t, err)
				}
			}
			return nil
		})})
		mustBatch(t, r.first, setAll(r.keys, "new"), "")
		if told.State != txn.Aborted {
			t.Fatalf("it was not aborted: %+v", told)
		}
		page, err := r.other.txns.List(t.Context(), r.second.entry.last.Load().ID, "", 100)
		must(t, err)
		for _, row := range page.Rows {
			if row.State == txn.Committed && row.Tx() == tx {
				t.Error("an attempt was committed that others were told is aborted")
			}
		}
	})
}

// wantMismatch checks for a *BatchMismatchError about one key.
func wantMismatch(t *testing.T, err error, key string) {
	t.Helper()
	var m *BatchMismatchError
	if !errors.As(err, &m) || len(m.Failed) != 1 || m.Failed[0].Key != key {
		t.Fatalf("error %v, want a condition that fails on %s", err, key)
	}
}

// wantUncertain checks for an error that says nothing of the outcome.
func wantUncertain(t *testing.T, err error) {
	t.Helper()
	var m *BatchMismatchError
	if err == nil || errors.As(err, &m) {
		t.Fatalf("error %v, want one that leaves the outcome open", err)
	}
}

// Somebody has looked at a pending batch and demanded that it happen after a time,
// as a snapshot does: its version is above that, and it still happens once.
func TestAVersionIsAboveWhatWasDemanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		floor := clock.At(r.src.Now().Milli() + time.Hour.Milliseconds())
		r.meanwhile(2, func(ctx context.Context) {
			m := r.second.entry.last.Load()
			page, err := r.other.txns.List(ctx, m.ID, "", 100)
			must(t, err)
			for _, row := range page.Rows {
				o, err := r.other.txns.Push(ctx, m.ID, row.Tx(), floor)
				if row.State == txn.Pending && (err != nil || o.State != txn.Pending) {
					t.Errorf("%+v, %v", o, err)
				}
			}
		})
		res := mustBatch(t, r.first, setAll(r.keys, "new"), "")
		if res[0].Version.Time <= floor {
			t.Errorf("version %s is not above %x", res[0].Version, floor)
		}
		if got := values(t, r.second, r.keys); got != "new new new new" {
			t.Errorf("read %q", got)
		}
	})
}

// An attempt is aborted by somebody, its shards do not hear of that, and its
// coordinator dies after it has begun another: a tick frees the keys of both.
func TestVoidAttemptsAreCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		m := r.second.entry.last.Load()
		r.meanwhile(2, func(ctx context.Context) {
			page, err := r.other.txns.List(ctx, m.ID, "", 100)
			must(t, err)
			for _, row := range page.Rows {
				_, err := r.other.txns.Abort(ctx, m.ID, row.Tx())
				must(t, err)
			}
			r.slow.hooks.set(func(op, _ string) error {
				if op == "write" {
					return store.ErrUnavailable
				}
				return nil
			})
		})
		r.faults.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-")), Skip: 2, Times: 1, Do: faulty.Crash(faulty.AfterEffect)})
		ctx, cancel := r.faults.Context(t.Context())
		defer cancel()
		if _, err := r.first.AtomicBatch(ctx, setAll(r.keys, "new"), ""); err == nil || !r.faults.Killed() {
			t.Fatalf("the coordinator is alive: %v", err)
		}
		_ = r.src.Sleep(t.Context(), 11*time.Second)
		if rep, err := r.other.Transactions(t.Context(), 0); err != nil || rep.Failed > 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
		nothingPending(t, r.other, r.second)
	})
}

// Many writes of one shard take several appends. When one of them meets another
// batch, those that were not tried because of that are not taken for done.
func TestWhatWasNotTriedIsNotTakenForDone(t *testing.T) {
	for name, write := range map[string]func(ctx context.Context, tr *Tree, ops []BatchOp) error{
		"atomic": func(ctx context.Context, tr *Tree, ops []BatchOp) error {
			_, err := tr.AtomicBatch(ctx, ops, "")
			return err
		},
		"plain": func(ctx context.Context, tr *Tree, ops []BatchOp) error { _, err := tr.Batch(ctx, ops); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRivals(t)
				small := open(t, r.mem.Table(), r.mem.Blobs(), func(o *options.Options) { o.GroupCommitMaxRecords = 1 }).writer(t, "demo")
				id := r.second.ShardMap().OwnerOf(r.keys[0])
				keys := []string{r.keys[0]}
				for i := 0; len(keys) < 5; i++ {
					if key := fmt.Sprint("more-", i); r.second.ShardMap().OwnerOf(key) == id {
						keys = append(keys, key)
					}
				}
				keys = append(keys, "elsewhere")
				done := make(chan error, 1)
				r.meanwhile(2, func(ctx context.Context) {
					_ = r.src.Sleep(ctx, 10*time.Millisecond) // so that it is the younger
					go func() { done <- write(t.Context(), small, setAll(keys, "after")) }()
					_ = r.src.Sleep(ctx, time.Second)
				})
				mustBatch(t, r.first, setAll(r.keys, "new"), "")
				must(t, <-done)
				if got := values(t, r.second, keys); got != "after after after after after after" {
					t.Errorf("read %q", got)
				}
			})
		})
	}
}

// A batch that is refused, or aborted and begun again, frees its keys itself: no
// tick is needed, and nobody has to meet what it left.
func TestABatchThatDoesNotHappenFreesItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		ops := setAll(r.keys, "new")
		ops[1].IfAbsent = true
		_, err := r.first.AtomicBatch(t.Context(), ops, "")
		wantMismatch(t, err, r.keys[1])
		nothingPending(t, r.other, r.second)
	})
}
