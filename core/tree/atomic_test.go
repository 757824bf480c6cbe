package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

func setOf(key, value string) BatchOp { return BatchOp{Key: key, Value: []byte(value)} }

// spread returns n keys that lie on as many shards of a tree of that many.
func spread(t testing.TB, tr *Tree, n int) []string {
	t.Helper()
	if _, err := tr.meta(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := map[any]string{}
	for i := 0; len(found) < n; i++ {
		key := fmt.Sprintf("key-%04d", i)
		id := tr.ShardMap().OwnerOf(key)
		if _, ok := found[id]; !ok {
			found[id] = key
		}
	}
	var keys []string
	for _, key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func setAll(keys []string, value string) (ops []BatchOp) {
	for _, key := range keys {
		ops = append(ops, setOf(key, value))
	}
	return ops
}

// values reads keys together.
func values(t testing.TB, tr *Tree, keys []string) string {
	t.Helper()
	items, err := tr.GetMany(t.Context(), keys, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range items {
		out = append(out, string(it.Value))
	}
	return strings.Join(out, " ")
}

func TestAtomicBatchOverShards(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	keys := spread(t, tr, 4)
	first := mustBatch(t, tr, setAll(keys, "1"), "")
	for i, r := range first {
		if r.Version.IsZero() || r.Version != first[0].Version || r.Existed {
			t.Errorf("operation %d: %+v, and the first %+v", i, r, first[0])
		}
	}
	if got := values(t, tr, keys); got != "1 1 1 1" {
		t.Errorf("read %q", got)
	}
	ops := []BatchOp{setOf(keys[0], "2"), {Delete: true, Key: keys[1]}, setOf(keys[2], "2"), {Delete: true, Key: "nobody"}}
	ops[0].IfVersion = first[0].Version
	second := mustBatch(t, tr, ops, "")
	if !second[0].Existed || !second[1].Existed || second[3].Existed || second[0].Version.Compare(first[0].Version) <= 0 {
		t.Errorf("results %+v", second)
	}
	if got := values(t, tr, keys); got != "2 2 1" {
		t.Errorf("read %q", got)
	}
	if it, ok, err := tr.Get(t.Context(), keys[0], ReadOptions{}); err != nil || !ok || it.Version != second[0].Version {
		t.Errorf("get %+v, %v, %v", it, ok, err)
	}
}

func mustBatch(t testing.TB, tr *Tree, ops []BatchOp, operation string) []BatchResult {
	t.Helper()
	results, err := tr.AtomicBatch(t.Context(), ops, operation)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestAtomicBatchRefusals(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	keys := spread(t, tr, 4)
	old := mustBatch(t, tr, setAll(keys[:2], "old"), "")
	var arg *ArgumentError
	var limit *LimitError
	twice := append(setAll(keys, "new"), setOf(keys[2], "again"))
	if _, err := tr.AtomicBatch(t.Context(), twice, ""); !errors.As(err, &arg) || arg.Field != "operations[4].key" {
		t.Errorf("a key twice: %v", err)
	}
	long := append(setAll(keys, "new"), setOf(strings.Repeat("k", 2000), "v"))
	if _, err := tr.AtomicBatch(t.Context(), long, ""); !errors.As(err, &limit) {
		t.Errorf("a long key: %v", err)
	}
	if _, err := tr.AtomicBatch(t.Context(), setAll(keys, "new"), strings.Repeat("o", 257)); !errors.As(err, &arg) {
		t.Errorf("a long operation id: %v", err)
	}
	for _, together := range [][]string{keys, keys[:1]} { // several shards, and one
		ops := setAll(together, "new")
		ops[0].IfAbsent = true
		var mismatch *BatchMismatchError
		if _, err := tr.AtomicBatch(t.Context(), ops, ""); !errors.As(err, &mismatch) || len(mismatch.Failed) != 1 ||
			mismatch.Failed[0].Key != keys[0] || mismatch.Failed[0].Current != old[0].Version {
			t.Errorf("a condition that fails: %v, %+v", err, mismatch)
		}
	}
	if got := values(t, tr, keys); got != "old old" {
		t.Errorf("read %q", got)
	}
	// Nothing is left locked.
	mustBatch(t, tr, setAll(keys, "after"), "")
}

// A batch of one shard is one transaction; one of k shards at most 2k+2, in at
// most four rounds.
func TestCostOfAtomicBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{})
		meter := metered.New(mem.Table(), mem.Blobs())
		in := open(t, meter.Table(), meter.Blobs())
		tr := in.writer(t, "demo")
		keys := spread(t, tr, 4)
		mustBatch(t, tr, setAll(keys, "warm"), "")
		before := meter.Snapshot()
		mustBatch(t, tr, setAll(keys[:1], "1"), "")
		if got := meter.Snapshot().Sub(before); got.Calls() != 1 || got.Applies != 1 {
			t.Errorf("on one shard: %+v", got)
		}
		before = meter.Snapshot()
		mustBatch(t, tr, setAll(keys, "2"), "")
		if got := meter.Snapshot().Sub(before); got.Calls() > 2*4+2 {
			t.Errorf("on four shards: %+v", got)
		}
	})
}

func TestOperationIDs(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	keys := spread(t, tr, 4)
	first := mustBatch(t, tr, setAll(keys, "1"), "op")
	if _, err := tr.Put(t.Context(), keys[0], []byte("later"), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	backwards := setAll(keys, "1")
	slices.Reverse(backwards)
	for name, ops := range map[string][]BatchOp{"again": setAll(keys, "1"), "in another order": backwards} {
		again := mustBatch(t, tr, ops, "op")
		if again[0].Version != first[0].Version || again[0].Existed {
			t.Errorf("%s: %+v", name, again[0])
		}
	}
	if got := values(t, tr, keys); got != "later 1 1 1" {
		t.Errorf("it was done twice: %q", got)
	}
	if _, err := tr.AtomicBatch(t.Context(), setAll(keys[:3], "1"), "op"); !errors.Is(err, ErrOperationMismatch) {
		t.Errorf("with other keys: %v", err)
	}
	ops := setAll(keys, "2")
	ops[1].IfAbsent = true
	for range 2 {
		var mismatch *BatchMismatchError
		if _, err := tr.AtomicBatch(t.Context(), ops, "fails"); !errors.As(err, &mismatch) || mismatch.Failed[0].Index != 1 || mismatch.Failed[0].Current != first[1].Version {
			t.Fatalf("a condition that fails: %v", err)
		}
		// The outcome stays, though the condition would hold now.
		if _, err := tr.Delete(t.Context(), keys[1], clock.Version{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tr.AtomicBatch(t.Context(), setAll(keys[:1], "one shard"), "single"); err != nil {
		t.Fatal(err)
	}
	again := mustBatch(t, tr, setAll(keys[:1], "one shard"), "single")
	if it, _, err := tr.Get(t.Context(), keys[0], ReadOptions{}); err != nil || it.Version != again[0].Version {
		t.Errorf("%+v, %v", it, err)
	}
}

// stranded sets up a batch whose coordinator dies with its decision, before or
// after that had its effect, and returns another instance.
func stranded(t *testing.T, point faulty.Point) (other *instance, tr *Tree, keys []string, src clock.Source) {
	t.Helper()
	src = clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src})
	in := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
	dying := open(t, in.Table(), in.Blobs())
	other = open(t, mem.Table(), mem.Blobs())
	tr = other.writer(t, "demo")
	keys = spread(t, tr, 4)
	mustBatch(t, tr, setAll(keys, "old"), "")
	doomed := dying.writer(t, "demo")
	values(t, doomed, keys)
	decision := faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-"))
	in.Add(faulty.Rule{When: decision, Skip: 1, Times: 1, Do: faulty.Crash(point)})
	ctx, cancel := in.Context(t.Context())
	defer cancel()
	if _, err := doomed.AtomicBatch(ctx, setAll(keys, "new"), ""); err == nil || !in.Killed() {
		t.Fatalf("the coordinator is alive: %v", err)
	}
	return other, tr, keys, src
}

// The coordinator is gone before the decision: readers see nothing of the batch,
// writers are free after its deadline, and the tick cleans up.
func TestBatchWithoutADecisionIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, tr, keys, src := stranded(t, faulty.BeforeEffect)
		if got := values(t, tr, keys); got != "old old old old" {
			t.Errorf("read %q", got)
		}
		start := src.Now().Mono
		if _, err := tr.Put(t.Context(), keys[1], []byte("put"), PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if waited := src.Now().Mono - start; waited > 11*time.Second {
			t.Errorf("a writer waited for %s", waited)
		}
		rep, err := other.Transactions(t.Context(), 0)
		if err != nil || rep.Failed > 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
		nothingPending(t, other, tr)
		if got := values(t, tr, keys); got != "old put old old" {
			t.Errorf("read %q", got)
		}
	})
}

// It is gone right after the decision: the batch has happened, for every reader.
func TestBatchWithADecisionHasHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, tr, keys, src := stranded(t, faulty.AfterEffect)
		for _, key := range keys {
			if it, ok, err := tr.Get(t.Context(), key, ReadOptions{}); err != nil || !ok || string(it.Value) != "new" {
				t.Errorf("get %s: %q, %v, %v", key, it.Value, ok, err)
			}
		}
		if got := values(t, tr, keys); got != "new new new new" {
			t.Errorf("read %q", got)
		}
		if c, err := tr.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 4 {
			t.Errorf("count %+v, %v", c, err)
		}
		if r, err := tr.Put(t.Context(), keys[0], []byte("put"), PutOptions{}); err != nil || r.Created {
			t.Errorf("%+v, %v", r, err)
		}
		_ = src.Sleep(t.Context(), 20*time.Second)
		if rep, err := other.Transactions(t.Context(), 0); err != nil || rep.Told != 1 {
			t.Fatalf("%+v, %v", rep, err)
		}
		nothingPending(t, other, tr)
		if got := values(t, tr, keys); got != "put new new new" {
			t.Errorf("read %q", got)
		}
	})
}

// nothingPending fails if a shard has undecided mutations.
func nothingPending(t *testing.T, in *instance, tr *Tree) {
	t.Helper()
	m, err := tr.refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range m.partitions {
		v, err := in.DB.shard(m.partitions[id], m.tuning).View(t.Context(), shard.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if left := v.Undecided(shard.Bounds{}); len(left) > 0 {
			t.Errorf("shard %d: %d transactions are left", id, len(left))
		}
	}
}

// Rows go away once they are of no use.
func TestDecisionsAreForgottenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		mem := memory.New(memory.Options{Clock: src})
		in := open(t, mem.Table(), mem.Blobs(), func(o *options.Options) { o.AtomicWriteRetention = time.Hour })
		tr := in.writer(t, "demo")
		keys := spread(t, tr, 4)
		for i := range 30 {
			mustBatch(t, tr, setAll(keys, fmt.Sprint(i)), "")
			_ = src.Sleep(t.Context(), 10*time.Second)
		}
		mustBatch(t, tr, setAll(keys, "named"), "op")
		if n := txRows(t, mem, tr); n > 20 {
			t.Errorf("%d rows while batches go on", n)
		}
		for range 40 {
			_ = src.Sleep(t.Context(), time.Minute)
			if _, err := in.Transactions(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if n := txRows(t, mem, tr); n != 1 {
			t.Errorf("%d rows, and one is within its retention", n)
		}
		_ = src.Sleep(t.Context(), time.Hour)
		if _, err := in.Transactions(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if n := txRows(t, mem, tr); n != 0 {
			t.Errorf("%d rows stay", n)
		}
	})
}

func txRows(t *testing.T, mem *memory.Store, tr *Tree) int {
	t.Helper()
	n := 0
	for p := range 4 {
		page, err := mem.Table().Range(t.Context(), fmt.Sprintf("x-%s-%x", tr.entry.last.Load().ID, p), store.RangeQuery{})
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Rows)
	}
	return n
}
