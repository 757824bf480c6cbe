package txn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

const treeID = "0123456789abcdef"

// world is two registries on one table, the first of which meets faults.
type world struct {
	src    clock.Source
	mem    *memory.Store
	faults *faulty.Instance
	a, b   *Registry
}

func newWorld() *world {
	w := &world{src: clock.NewSystem()}
	w.mem = memory.New(memory.Options{Clock: w.src})
	w.faults = faulty.New(w.mem.Table(), w.mem.Blobs(), faulty.Options{Clock: w.src})
	w.a, w.b = New(w.faults.Table(), w.src), New(w.mem.Table(), w.src)
	return w
}

// pendingRow is a row as a coordinator begins it.
func (w *world) pendingRow(g *Registry) Row {
	first := g.FirstAttempt()
	return Row{
		ID: g.NewID(), First: first, Attempt: first, State: Pending, Start: clock.At(w.src.Now().Milli()),
		Deadline: w.src.Now().Milli() + 10_000, Shards: []keyspace.ShardID{0, 3},
	}
}

func (w *world) begin(t *testing.T, g *Registry) *Row {
	t.Helper()
	r, mine, err := g.Begin(t.Context(), treeID, w.pendingRow(g), time.Minute)
	if err != nil || !mine {
		t.Fatalf("begin: mine %v, %v", mine, err)
	}
	return r
}

func commit(r *Row) { r.State, r.Version = Committed, clock.Version{Time: clock.At(5000), Writer: 1} }

// inVirtualTime runs f for every way in which a write's reply can get lost.
func inVirtualTime(t *testing.T, f func(t *testing.T, w *world, fault faulty.Fault)) {
	for name, fault := range map[string]faulty.Fault{
		"nothing": nil, "reply lost": faulty.Lose(), "request lost": faulty.Drop(), "doubled": faulty.Duplicate(), "late": faulty.Hold(0),
		"late by a little": faulty.Hold(3 * time.Millisecond), "unavailable": faulty.Fail(store.ErrUnavailable),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newWorld(), fault) })
		})
	}
}

func (w *world) spoil(fault faulty.Fault) {
	if fault != nil {
		w.faults.Add(faulty.Rule{When: faulty.Writes, Times: 1, Do: fault})
	}
}

func TestBeginIsOneRow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world, fault faulty.Fault) {
		w.spoil(fault)
		r := w.begin(t, w.a)
		w.faults.Release()
		w.faults.Wait()
		now, err := w.b.Read(t.Context(), treeID, r.ID)
		if err != nil || now.State != Pending || now.Nonce != r.Nonce || now.etag != r.etag {
			t.Fatalf("stored is %+v, %v", now, err)
		}
		again := w.pendingRow(w.b)
		again.ID = r.ID
		old, mine, err := w.b.Begin(t.Context(), treeID, again, time.Minute)
		if err != nil || mine || old.Nonce != r.Nonce {
			t.Errorf("a second batch of the id: mine %v, %+v, %v", mine, old, err)
		}
	})
}

func TestChangeIsMadeOnceOrNot(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world, fault faulty.Fault) {
		r := w.begin(t, w.a)
		w.spoil(fault)
		if err := w.a.Change(t.Context(), treeID, r, commit); err != nil || r.State != Committed {
			t.Fatalf("%+v, %v", r, err)
		}
		w.faults.Release()
		w.faults.Wait()
		now, err := w.b.Read(t.Context(), treeID, r.ID)
		if err != nil || now.State != Committed || now.etag != r.etag {
			t.Fatalf("stored is %+v, %v", now, err)
		}
		// Its caller can go on from there.
		if err := w.a.Change(t.Context(), treeID, r, func(r *Row) { r.Told = true }); err != nil {
			t.Error(err)
		}
	})
}

// Of two who decide one wins, whatever becomes of replies, and both know which.
func TestOneDecisionStands(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world, fault faulty.Fault) {
		r := w.begin(t, w.a)
		w.spoil(fault)
		w.faults.Add(faulty.Rule{When: faulty.Writes, Times: 1, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
		var (
			aborted Outcome
			aerr    error
			tx      = r.Tx()
		)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.src.Sleep(t.Context(), time.Duration(w.src.Uint64()%4)*time.Millisecond)
			aborted, aerr = w.b.Abort(t.Context(), treeID, tx)
		}()
		err := w.a.Change(t.Context(), treeID, r, commit)
		<-done
		w.faults.Release()
		w.faults.Wait()
		now, rerr := w.b.Read(t.Context(), treeID, r.ID)
		if rerr != nil || aerr != nil {
			t.Fatal(rerr, aerr)
		}
		switch {
		case err == nil && now.State == Committed:
		case errors.Is(err, ErrLost) && now.State == Aborted && r.State == Aborted:
		default:
			t.Errorf("the coordinator has %v and %s, stored is %s", err, r.State, now.State)
		}
		if aborted.State != now.State {
			t.Errorf("who aborts was told %s, stored is %s", aborted.State, now.State)
		}
		if o, err := w.b.Lookup(t.Context(), treeID, r.Tx()); err != nil || o.State != now.State {
			t.Errorf("looked up: %+v, %v", o, err)
		}
	})
}

// A change of unknown outcome says so, and one that was never sent says that.
func TestChangeThatCannotBeSettled(t *testing.T) {
	for name, c := range map[string]struct {
		fault faulty.Fault
		want  error
	}{"sent": {faulty.Lose(), store.ErrOutcomeUnknown}, "not sent": {faulty.Fail(store.ErrUnavailable), store.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				r := w.begin(t, w.a)
				w.faults.Add(faulty.Rule{When: faulty.Writes, Do: c.fault}, faulty.Rule{When: faulty.Reads, Do: faulty.Fail(store.ErrUnavailable)})
				err := w.a.Change(t.Context(), treeID, r, commit)
				if !errors.Is(err, c.want) || errors.Is(c.want, store.ErrUnavailable) && errors.Is(err, store.ErrOutcomeUnknown) {
					t.Errorf("error %v, want %v", err, c.want)
				}
			})
		})
	}
}

func TestChangeOfARowThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.begin(t, w.a)
		if err := w.b.Remove(t.Context(), treeID, r); err != nil {
			t.Fatal(err)
		}
		if err := w.a.Change(t.Context(), treeID, r, commit); !errors.Is(err, ErrLost) || !errors.Is(err, ErrNoRow) {
			t.Errorf("error %v", err)
		}
		if o, err := w.a.Lookup(t.Context(), treeID, r.Tx()); err != nil || o.State != Aborted {
			t.Errorf("%+v, %v", o, err)
		}
		if o, err := w.a.Abort(t.Context(), treeID, r.Tx()); err != nil || o.State != Aborted {
			t.Errorf("%+v, %v", o, err)
		}
		if err := w.a.Remove(t.Context(), treeID, r); err != nil {
			t.Errorf("removed twice: %v", err)
		}
	})
}

// An attempt that another has followed is void, whatever becomes of that, and an
// outcome that was read is kept in mind without a row.
func TestOutcomesOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.begin(t, w.a)
		first := r.Tx()
		if o, err := w.b.Lookup(t.Context(), treeID, first); err != nil || o.State != Pending || o.Deadline != r.Deadline || o.Start != r.Start {
			t.Errorf("pending: %+v, %v", o, err)
		}
		if o, err := w.b.Abort(t.Context(), treeID, first); err != nil || o.State != Aborted {
			t.Errorf("aborted: %+v, %v", o, err)
		}
		r, err := w.a.Read(t.Context(), treeID, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.a.Change(t.Context(), treeID, r, func(r *Row) { r.Attempt++; r.State = Pending }); err != nil {
			t.Fatal(err)
		}
		second := r.Tx()
		if got := r.Void(); len(got) != 1 || got[0] != first {
			t.Errorf("void are %x", got)
		}
		if err := w.a.Change(t.Context(), treeID, r, commit); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for tx, want := range map[record.ID]State{first: Aborted, second: Committed} {
				if o, err := w.b.Lookup(t.Context(), treeID, tx); err != nil || o.State != want || want == Committed && o.Version != r.Version {
					t.Errorf("attempt %x: %+v, %v", tx, o, err)
				}
			}
			// What is known needs no row.
			if err := w.a.Remove(t.Context(), treeID, r); err != nil {
				t.Error(err)
			}
		}
		if o, err := w.b.Abort(t.Context(), treeID, second); err != nil || o.State != Aborted {
			t.Errorf("an attempt without a row: %+v, %v", o, err)
		}
	})
}

func TestAnAbortDoesNotTouchWhatIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.begin(t, w.a)
		if err := w.a.Change(t.Context(), treeID, r, commit); err != nil {
			t.Fatal(err)
		}
		if o, err := w.b.Abort(t.Context(), treeID, r.Tx()); err != nil || o.State != Committed || o.Version != r.Version {
			t.Errorf("%+v, %v", o, err)
		}
		if o, err := w.b.Push(t.Context(), treeID, r.Tx(), clock.At(9_000_000)); err != nil || o.State != Committed {
			t.Errorf("%+v, %v", o, err)
		}
		if now, err := w.b.Read(t.Context(), treeID, r.ID); err != nil || now.etag != r.etag {
			t.Errorf("the row has changed: %+v, %v", now, err)
		}
	})
}

// A push raises the floor of a pending attempt, is felt by the coordinator's next
// change, and a lower one changes nothing.
func TestPushRaisesTheFloor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world, fault faulty.Fault) {
		r := w.begin(t, w.b)
		w.spoil(fault)
		if o, err := w.a.Push(t.Context(), treeID, r.Tx(), 700); err != nil || o.State != Pending {
			t.Fatalf("%+v, %v", o, err)
		}
		w.faults.Release()
		w.faults.Wait()
		calls := w.faults.Calls()
		if _, err := w.a.Push(t.Context(), treeID, r.Tx(), 600); err != nil || w.faults.Calls() != calls+1 {
			t.Errorf("a lower push: %d calls, %v", w.faults.Calls()-calls, err)
		}
		err := w.b.Change(t.Context(), treeID, r, commit)
		if !errors.Is(err, ErrLost) || r.Floor != 700 || r.State != Pending {
			t.Errorf("the coordinator has %v, floor %d, %s", err, r.Floor, r.State)
		}
		if err := w.b.Change(t.Context(), treeID, r, commit); err != nil {
			t.Error(err)
		}
	})
}

// Pushes and aborts of many at once all come to an end, and agree.
func TestManyAtOneRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.faults.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
		r := w.begin(t, w.a)
		results := make(chan error, 9)
		for i := range 8 {
			go func() {
				o, err := New(w.faults.Table(), w.src).Push(t.Context(), treeID, r.Tx(), clock.HLC(100*i+1))
				if err == nil && o.State == Committed {
					err = errors.New("committed by whom?")
				}
				results <- err
			}()
		}
		go func() {
			_ = w.src.Sleep(t.Context(), 20*time.Millisecond)
			_, err := w.b.Abort(t.Context(), treeID, r.Tx())
			results <- err
		}()
		for range 9 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if now, err := w.b.Read(t.Context(), treeID, r.ID); err != nil || now.State != Aborted {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

// List walks all partitions, in pages of any size, each row once.
func TestListComesByEveryRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		want := map[ID]bool{}
		for range 37 {
			want[w.begin(t, w.a).ID] = true
		}
		if _, _, err := w.a.Begin(t.Context(), "another", w.pendingRow(w.a), time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{1, 2, 7, 36, 37, 38, 2000} {
			got, pages := map[ID]bool{}, 0
			for place := ""; ; pages++ {
				p, err := w.b.List(t.Context(), treeID, place, limit)
				if err != nil || len(p.Rows) > limit {
					t.Fatalf("%d rows, %v", len(p.Rows), err)
				}
				for _, r := range p.Rows {
					if got[r.ID] || !want[r.ID] {
						t.Errorf("limit %d: row %x twice, or not ours", limit, r.ID)
					}
					got[r.ID] = true
				}
				if place = p.Next; place == "" {
					break
				}
				if pages > 100 {
					t.Fatal("the list does not end")
				}
			}
			if len(got) != len(want) {
				t.Errorf("limit %d: %d rows of %d", limit, len(got), len(want))
			}
		}
		for _, place := range []string{"x", "9/", "-1/", "4/abc"} {
			if _, err := w.b.List(t.Context(), treeID, place, 5); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("place %q: %v", place, err)
			}
		}
	})
}

func TestForgetLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for range 250 {
			w.begin(t, w.a)
		}
		other, _, err := w.a.Begin(t.Context(), "another", w.pendingRow(w.a), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		w.faults.Add(faulty.Rule{When: faulty.Writes, Skip: 2, Times: 1, Do: faulty.Fail(store.ErrUnavailable)})
		if err := w.a.Forget(t.Context(), treeID); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		for range 2 {
			if err := w.a.Forget(t.Context(), treeID); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := w.b.List(t.Context(), treeID, "", 1000); err != nil || len(p.Rows) > 0 {
			t.Errorf("%d rows are left, %v", len(p.Rows), err)
		}
		if _, err := w.b.Read(t.Context(), "another", other.ID); err != nil {
			t.Errorf("another tree's: %v", err)
		}
	})
}

// together returns rows that lie in one partition.
func (w *world) together(t *testing.T, n int) (rows []*Row) {
	t.Helper()
	for range n {
		r := w.pendingRow(w.a)
		r.ID[0] = 0
		row, _, err := w.a.Begin(t.Context(), treeID, r, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// Rows that are done go away with a later batch, once their retention is over, and
// never before; a row that has changed since stays, and the batch begins all the
// same.
func TestDoneRowsAreOutlived(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration
		changed int
		removed int
		left    int
	}{
		"within the retention":   {59 * time.Second, 0, 0, 5},
		"afterwards":             {61 * time.Second, 0, 0, 0},
		"one was told meanwhile": {61 * time.Second, 1, 0, 5}, // the next batch takes the others
		"one is gone":            {61 * time.Second, 0, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				rows := w.together(t, 5)
				for _, r := range rows {
					if w.a.IsDone(treeID, r) {
						t.Error("done before it was said")
					}
					if err := w.a.Change(t.Context(), treeID, r, commit); err != nil {
						t.Fatal(err)
					}
					w.a.Done(treeID, r)
					if !w.a.IsDone(treeID, r) || w.b.IsDone(treeID, r) {
						t.Error("who said it knows, and nobody else")
					}
				}
				for i := range c.changed {
					other := *rows[i]
					if err := w.b.Change(t.Context(), treeID, &other, func(r *Row) { r.Told = true }); err != nil {
						t.Fatal(err)
					}
				}
				for i := range c.removed {
					if err := w.b.Remove(t.Context(), treeID, rows[i]); err != nil {
						t.Fatal(err)
					}
				}
				_ = w.src.Sleep(t.Context(), c.after)
				w.together(t, 1)
				p, err := w.b.List(t.Context(), treeID, "", 100)
				if err != nil || len(p.Rows) != c.left+1 {
					t.Errorf("%d rows beside the new one, want %d, %v", len(p.Rows)-1, c.left, err)
				}
			})
		})
	}
}

func TestFingerprintsAndNames(t *testing.T) {
	a := Fingerprint([]string{"a", "b"})
	if a != Fingerprint([]string{"b", "a"}) {
		t.Error("the order of keys matters")
	}
	for _, other := range [][]string{{"a"}, {"ab"}, {"a", "b", ""}, {"a", "c"}, {}} {
		if a == Fingerprint(other) {
			t.Errorf("%q has the fingerprint of a and b", other)
		}
	}
	g := New(nil, clock.NewSystem())
	names, ids := map[ID]bool{}, map[ID]bool{}
	for i := range 200 {
		names[OperationID(fmt.Sprint(i%100))], ids[g.NewID()] = true, true
	}
	if len(names) != 100 || len(ids) != 200 {
		t.Errorf("100 names have %d ids, 200 batches %d", len(names), len(ids))
	}
}

// What is remembered is bounded, and the newest is in it.
func TestMemoryOfOutcomesIsBounded(t *testing.T) {
	g := New(nil, clock.NewSystem())
	for i := range 3 * maxKnown {
		var tx record.ID
		copy(tx[:], fmt.Sprint(i))
		g.remember(tx, Outcome{State: Committed})
		if _, ok := g.recall(tx); !ok {
			t.Fatal("forgotten at once")
		}
	}
	if n := len(g.recent) + len(g.former); n > maxKnown {
		t.Errorf("%d outcomes in memory", n)
	}
	for range maxDone + 10 {
		g.Done(treeID, &Row{})
	}
	if n := len(g.done[partition(treeID, ID{})]); n > maxDone {
		t.Errorf("%d done rows in memory", n)
	}
}

// A row that cannot be read is an error that says so, never an answer.
func TestALookupThatFailsIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.begin(t, w.b)
		w.faults.Add(faulty.Rule{When: faulty.Reads, Do: faulty.Fail(store.ErrUnavailable)})
		for name, f := range map[string]func(context.Context, string, record.ID) (Outcome, error){"lookup": w.a.Lookup, "abort": w.a.Abort} {
			if o, err := f(t.Context(), treeID, r.Tx()); !errors.Is(err, store.ErrUnavailable) || o.State != "" {
				t.Errorf("%s: %+v, %v", name, o, err)
			}
		}
	})
}
