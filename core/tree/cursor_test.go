package tree

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	"github.com/latticekv/lattice/tests/history"
)

func openCursor(t testing.TB, tr *Tree, q CursorQuery) string {
	t.Helper()
	c, err := tr.OpenCursor(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func nextPage(t testing.TB, tr *Tree, id string, page int64, limit int) CursorPage {
	t.Helper()
	p, err := tr.NextPage(t.Context(), id, PageQuery{Page: page, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pageKeys(p CursorPage) string { return strings.Join(keysOf(p.Items), " ") }

func fill(t testing.TB, tr *Tree, from, to int) {
	t.Helper()
	var ops []BatchOp
	for i := from; i < to; i++ {
		ops = append(ops, setOf(fmt.Sprintf("k%03d", i), fmt.Sprint("v", i)))
	}
	if _, err := tr.Batch(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
}

func TestCursorPages(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprint("snapshot ", snapshot, ", reverse ", reverse), func(t *testing.T) {
				in, m := fresh(t)
				tr := in.writer(t, "demo")
				fill(t, tr, 0, 10)
				id := openCursor(t, tr, CursorQuery{Kind: CursorEntries, Bounds: Bounds{From: "k002", To: "k009"}, Reverse: reverse, Snapshot: snapshot})
				want := []string{"k002 k003 k004", "k005 k006 k007", "k008"}
				if reverse {
					want = []string{"k008 k007 k006", "k005 k004 k003", "k002"}
				}
				// Every page through another instance, each twice.
				for i, keys := range want {
					for range 2 {
						other := open(t, m.Table(), m.Blobs()).writer(t, "demo")
						p := nextPage(t, other, id, int64(i+1), 3)
						if pageKeys(p) != keys || p.Page != int64(i+1) || p.HasMore != (i < 2) {
							t.Errorf("page %d: %q, %+v", i+1, pageKeys(p), p)
						}
						if string(p.Items[0].Value) == "" {
							t.Error("an entry has no value")
						}
					}
				}
				if p := nextPage(t, tr, id, 0, 3); len(p.Items) != 0 || p.HasMore || p.Page != 4 {
					t.Errorf("past the end: %+v", p)
				}
				var arg *ArgumentError
				for _, page := range []int64{1, 6, -1} {
					if _, err := tr.NextPage(t.Context(), id, PageQuery{Page: page, Limit: 3}); !errors.As(err, &arg) || arg.Field != "page" {
						t.Errorf("page %d: %v", page, err)
					}
				}
				if err := tr.CloseCursor(t.Context(), id); err != nil {
					t.Error(err)
				}
				if _, err := tr.NextPage(t.Context(), id, PageQuery{Limit: 3}); !errors.Is(err, ErrCursorNotFound) {
					t.Errorf("after close: %v", err)
				}
				if err := tr.CloseCursor(t.Context(), id); !errors.Is(err, ErrCursorNotFound) {
					t.Errorf("close again: %v", err)
				}
			})
		}
	}
}

// The bounds of a page stay when it is asked for again, whatever was written in
// between: so the next page neither skips nor repeats.
func TestRepeatedPageKeepsItsBounds(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	fill(t, tr, 0, 9)
	id := openCursor(t, tr, CursorQuery{Kind: CursorKeys})
	nextPage(t, tr, id, 1, 3)
	for _, key := range []string{"k000x", "k002"} {
		if _, err := tr.Put(t.Context(), key, nil, PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tr.Delete(t.Context(), "k001", clock.Version{}); err != nil {
		t.Fatal(err)
	}
	if p := nextPage(t, tr, id, 1, 3); pageKeys(p) != "k000 k000x k002" {
		t.Errorf("again: %q", pageKeys(p))
	}
	if p := nextPage(t, tr, id, 2, 3); pageKeys(p) != "k003 k004 k005" {
		t.Errorf("then: %q", pageKeys(p))
	}
}

// The reply to the bookmark of a page is lost: the page is had, and not the one
// after it, also when its number was not given.
func TestLostReplyToABookmarkSkipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{})
		in := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{})
		tr := open(t, in.Table(), in.Blobs()).writer(t, "demo")
		fill(t, tr, 0, 9)
		id := openCursor(t, tr, CursorQuery{Kind: CursorKeys})
		for page, want := range []string{"k000 k001 k002", "k003 k004 k005", "k006 k007 k008"} {
			in.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("c-")), Times: 1, Do: faulty.Lose()})
			if p := nextPage(t, tr, id, 0, 3); pageKeys(p) != want || p.Page != int64(page+1) {
				t.Errorf("page %d: %q", p.Page, pageKeys(p))
			}
		}
	})
}

func TestDeleteRangeCursor(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	fill(t, tr, 0, 10)
	id := openCursor(t, tr, CursorQuery{Kind: CursorDeleteRange, Bounds: Bounds{From: "k002"}})
	for page, want := range []int64{3, 3, 2} {
		for range 2 {
			if p := nextPage(t, tr, id, int64(page+1), 3); p.Deleted != want || p.HasMore != (page < 2) || len(p.Items) > 0 {
				t.Errorf("page %d: %+v", page+1, p)
			}
		}
	}
	if c, err := tr.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 2 {
		t.Errorf("left: %+v, %v", c, err)
	}
}

func TestCursorKindIsToldWithoutAPage(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	fill(t, tr, 0, 4)
	for _, kind := range []CursorKind{CursorKeys, CursorEntries, CursorDeleteRange} {
		id := openCursor(t, tr, CursorQuery{Kind: kind, Bounds: Bounds{From: "k002"}})
		if got, err := tr.CursorKind(t.Context(), id); err != nil || got != kind {
			t.Errorf("%s is %q, %v", kind, got, err)
		}
	}
	if c, err := tr.Count(t.Context(), Bounds{}, ReadOptions{}); err != nil || c.Total != 4 {
		t.Errorf("left: %+v, %v", c, err)
	}
	for _, id := range []string{"", "nope", strings.Repeat("0", 32), strings.Repeat("../", 11)} {
		if got, err := tr.CursorKind(t.Context(), id); !errors.Is(err, ErrCursorNotFound) || got != "" {
			t.Errorf("cursor %q is %q, %v", id, got, err)
		}
	}
}

func TestCursorRefusals(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	fill(t, tr, 0, 1)
	var arg *ArgumentError
	for name, q := range map[string]CursorQuery{
		"no kind":              {},
		"unknown kind":         {Kind: "values"},
		"delete on a snapshot": {Kind: CursorDeleteRange, Snapshot: true},
		"delete in reverse":    {Kind: CursorDeleteRange, Reverse: true},
	} {
		if _, err := tr.OpenCursor(t.Context(), q); !errors.As(err, &arg) {
			t.Errorf("%s: %v", name, err)
		}
	}
	id := openCursor(t, tr, CursorQuery{Kind: CursorKeys, Bounds: Bounds{From: "a\xff", To: "\xff"}})
	for _, limit := range []int{0, -1, 1 << 30} {
		if _, err := tr.NextPage(t.Context(), id, PageQuery{Limit: limit}); !errors.As(err, &arg) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	if p := nextPage(t, tr, id, 0, 10); pageKeys(p) != "k000" {
		t.Errorf("bounds that are not UTF-8: %q", pageKeys(p))
	}
	for _, id := range []string{"", "x", strings.Repeat("0", 32), strings.Repeat("../", 11)} {
		if _, err := tr.NextPage(t.Context(), id, PageQuery{Limit: 1}); !errors.Is(err, ErrCursorNotFound) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// Opening a snapshot costs one append for each shard and the cursor's row; a page
// of a warm instance reads the tree's row and the cursor's, and writes that.
func TestCostOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{})
		meter := metered.New(mem.Table(), mem.Blobs())
		tr := open(t, meter.Table(), meter.Blobs()).writer(t, "demo")
		fill(t, tr, 0, 100)
		before := meter.Snapshot()
		id := openCursor(t, tr, CursorQuery{Kind: CursorEntries, Snapshot: true})
		if got := meter.Snapshot().Sub(before); got.Applies != 4+1 || got.Calls() != 4+1 {
			t.Errorf("opening costs %+v", got)
		}
		before = meter.Snapshot()
		nextPage(t, tr, id, 1, 10)
		if got := meter.Snapshot().Sub(before); got.Calls() != 3 || got.Gets != 2 || got.Applies != 1 {
			t.Errorf("a page costs %+v", got)
		}
	})
}

// A batch is prepared on one shard before the cut and on another after it, and has
// happened by the time the snapshot asks: it is above the cut, and in no part of
// the snapshot.
func TestSnapshotCutsBetweenThePreparesOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		mem := memory.New(memory.Options{Clock: src})
		slow := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
		asking := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
		tr := open(t, mem.Table(), mem.Blobs()).writer(t, "demo")
		keys := spread(t, tr, 4)
		mustBatch(t, tr, setAll(keys, "old"), "")
		m, err := tr.refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last := m.partitions[m.shardMap.OwnerOf(keys[3])]
		batcher := open(t, slow.Table(), slow.Blobs()).writer(t, "demo")
		reader := open(t, asking.Table(), asking.Blobs()).writer(t, "demo")
		values(t, batcher, keys)
		values(t, reader, keys)
		slow.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition(last)), Times: 1, Do: faulty.Delay(2*time.Second, 0)})
		asking.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Get), faulty.InPartition("x-")), Do: faulty.Delay(5*time.Second, 0)})
		done := make(chan error)
		go func() {
			_, err := batcher.AtomicBatch(t.Context(), setAll(keys, "new"), "")
			done <- err
		}()
		_ = src.Sleep(t.Context(), time.Second)
		id := openCursor(t, reader, CursorQuery{Kind: CursorEntries, Snapshot: true})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for _, it := range nextPage(t, reader, id, 1, 10).Items {
			if string(it.Value) != "old" {
				t.Errorf("%s is %q", it.Key, it.Value)
			}
		}
	})
}

// The decision of a batch is on its way, with a version below the cut, when the
// snapshot is taken: it has not happened, and must happen above the cut.
func TestSnapshotPushesADecisionAboveItsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		mem := memory.New(memory.Options{Clock: src})
		slow := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
		tr := open(t, mem.Table(), mem.Blobs()).writer(t, "demo")
		keys := spread(t, tr, 4)
		mustBatch(t, tr, setAll(keys, "old"), "")
		batcher := open(t, slow.Table(), slow.Blobs()).writer(t, "demo")
		values(t, batcher, keys)
		decision := faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-"))
		slow.Add(faulty.Rule{When: decision, Skip: 1, Times: 1, Do: faulty.Delay(2*time.Second, 0)})
		done := make(chan clock.Version)
		go func() {
			r, err := batcher.AtomicBatch(t.Context(), setAll(keys, "new"), "")
			if err != nil {
				t.Error(err)
				close(done)
				return
			}
			done <- r[0].Version
		}()
		_ = src.Sleep(t.Context(), time.Second)
		c, err := tr.OpenCursor(t.Context(), CursorQuery{Kind: CursorEntries, Snapshot: true})
		if err != nil {
			t.Fatal(err)
		}
		cut, err := clock.ParseVersion(c.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if v := <-done; v.Compare(cut) <= 0 {
			t.Errorf("the batch has version %s, not above the cut %s", v, cut)
		}
		for _, it := range nextPage(t, tr, c.ID, 1, 10).Items {
			if string(it.Value) != "old" {
				t.Errorf("%s is %q", it.Key, it.Value)
			}
		}
	})
}

// A batch was committed by an instance whose clock is ahead, and seen, before its
// shards heard of it; a snapshot that is opened then has it, though its version is
// above the cut.
func TestSnapshotHasWhatHappenedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memory.New(memory.Options{})
		ahead := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{})
		tr := open(t, mem.Table(), mem.Blobs()).writer(t, "demo")
		keys := spread(t, tr, 4)
		mustBatch(t, tr, setAll(keys, "old"), "")
		in := open(t, ahead.Table(), ahead.Blobs())
		batcher := in.writer(t, "demo")
		values(t, batcher, keys)
		in.clock = fastClock{in.clock}
		ahead.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("x-")), Skip: 1, Times: 1, Do: faulty.Crash(faulty.AfterEffect)})
		ctx, cancel := ahead.Context(t.Context())
		defer cancel()
		if _, err := batcher.AtomicBatch(ctx, setAll(keys, "new"), ""); err == nil {
			t.Fatal("the coordinator is alive")
		}
		if got := values(t, tr, keys); got != "new new new new" {
			t.Fatalf("before the snapshot: %q", got)
		}
		id := openCursor(t, tr, CursorQuery{Kind: CursorEntries, Snapshot: true})
		for _, it := range nextPage(t, tr, id, 1, 10).Items {
			if string(it.Value) != "new" {
				t.Errorf("%s is %q", it.Key, it.Value)
			}
		}
	})
}

// fastClock is ahead of the others.
type fastClock struct{ clock.Source }

func (c fastClock) Now() clock.Instant {
	at := c.Source.Now()
	at.Wall += int64(400 * time.Millisecond)
	return at
}

// A snapshot that is used lives longer than its time to live, on every shard.
func TestSnapshotLivesWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _ := fresh(t, func(o *options.Options) {
			o.SnapshotCursorTtl, o.CheckpointTailRows = time.Minute, 1
			o.WalGracePeriod, o.BlobGracePeriod = time.Second, 5*time.Second
		})
		tr := in.writer(t, "demo")
		fill(t, tr, 0, 30)
		id := openCursor(t, tr, CursorQuery{Kind: CursorEntries, Snapshot: true})
		for page := range int64(15) {
			if p := nextPage(t, tr, id, page+1, 2); string(p.Items[0].Value) != fmt.Sprint("v", 2*page) {
				t.Errorf("page %d: %s is %q", page+1, p.Items[0].Key, p.Items[0].Value)
			}
			for i := range 30 {
				if _, err := tr.Put(t.Context(), fmt.Sprintf("k%03d", i), []byte("later"), PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			_ = in.clock.Sleep(t.Context(), 25*time.Second)
			if _, err := in.Checkpoint(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Collect(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A row of a cursor that is damaged is told of. It keeps neither other cursors
// from ending nor the shards of the tree from being collected.
func TestDamagedCursorStopsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, m := fresh(t, func(o *options.Options) {
			o.SnapshotCursorTtl, o.CheckpointTailRows = time.Minute, 1
			o.WalGracePeriod, o.BlobGracePeriod = time.Second, 5*time.Second
		})
		tr := in.writer(t, "demo")
		fill(t, tr, 0, 30)
		for range 3 {
			openCursor(t, tr, CursorQuery{Kind: CursorEntries, Snapshot: true})
		}
		meta, err := in.reg.read(t.Context(), "demo")
		must(t, err)
		rows := in.cursors(meta.ID)
		page, err := rows.list(t.Context(), "", 10)
		must(t, err)
		damaged := page.Rows[0]
		_, err = m.Table().Apply(t.Context(), rows.partition, []store.Op{store.Replace(damaged.Key, []byte("?"), damaged.ETag)})
		must(t, err)
		must(t, in.clock.Sleep(t.Context(), 10*24*time.Hour))
		shards := 0
		for range 3 {
			rep, err := in.Collect(t.Context(), 0)
			if err != nil || rep.Failed == 0 || !errors.Is(rep.Failures[0].Err, store.ErrCorrupt) {
				t.Fatalf("%+v %v", rep, err)
			}
			shards += rep.Shards
			must(t, in.clock.Sleep(t.Context(), 10*24*time.Hour))
		}
		if page, err = rows.list(t.Context(), "", 10); err != nil || len(page.Rows) != 1 || page.Rows[0].Key != damaged.Key {
			t.Errorf("left are %d cursors, %v", len(page.Rows), err)
		}
		if shards == 0 {
			t.Error("no shard was collected")
		}
	})
}

func TestTooManySnapshots(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	fill(t, tr, 0, 1)
	var err error
	for range shard.MaxPins + 1 {
		_, err = tr.OpenCursor(t.Context(), CursorQuery{Kind: CursorKeys, Snapshot: true})
	}
	if !errors.Is(err, ErrTooManySnapshots) {
		t.Errorf("got %v", err)
	}
}

// A snapshot is the state of its cut, whatever happens meanwhile: writes, range
// deletes, batches, splits, checkpoints, collections, another instance for every
// page. Compared with a map.
func TestSnapshotIsTheStateOfItsCut(t *testing.T) {
	for i := range history.Seeds() {
		seed := uint64(i + 1)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { snapshotOfChanges(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func snapshotOfChanges(t *testing.T, rng *rand.Rand) {
	src := clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src})
	quick := func(o *options.Options) {
		o.CheckpointTailRows, o.LeafTargetBytes, o.AutoSplitEnabled = 5, 4<<10, false
		o.WalGracePeriod, o.BlobGracePeriod = time.Second, 5*time.Second
		o.TombstoneGracePeriod = 10 * time.Second
	}
	w := &changes{t: t, rng: rng, model: map[string]string{}, src: src}
	w.in = operator(t, mem, quick)
	w.tr = writerOf(t, w.in, "demo")
	for range 40 {
		w.change()
	}
	want := maps.Clone(w.model)
	id := openCursor(t, w.tr, CursorQuery{Kind: CursorEntries, Snapshot: true})
	got := map[string]string{}
	for page, more := int64(1), true; more; page++ {
		for range 10 {
			w.change()
		}
		other := writerOf(t, operator(t, mem, quick), "demo")
		var p CursorPage
		for range 1 + rng.IntN(2) {
			p = nextPage(t, other, id, page, 1+rng.IntN(20))
		}
		for _, it := range p.Items {
			if _, twice := got[it.Key]; twice {
				t.Fatalf("key %q comes twice", it.Key)
			}
			got[it.Key] = string(it.Value)
		}
		more = p.HasMore
	}
	if !maps.Equal(got, want) {
		t.Errorf("the snapshot has %d entries and should have %d: %v\n%v", len(got), len(want), got, want)
	}
	_ = src.Sleep(t.Context(), 12*time.Hour)
	for range 2 {
		if _, err := w.tr.NextPage(t.Context(), id, PageQuery{Limit: 1}); !errors.Is(err, ErrSnapshotExpired) {
			t.Errorf("after its expiry: %v", err)
		}
		if _, err := w.in.Collect(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.tr.CloseCursor(t.Context(), id); err != nil {
		t.Error(err)
	}
}

func writerOf(t testing.TB, db *DB, name string) *Tree {
	t.Helper()
	tr, err := db.OpenOrCreate(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// changes do anything that changes a tree, and keep a model of it.
type changes struct {
	t     *testing.T
	rng   *rand.Rand
	in    *DB
	tr    *Tree
	model map[string]string
	src   clock.Source
	step  int
}

func (w *changes) key() string { return fmt.Sprintf("k%02d", w.rng.IntN(60)) }

func (w *changes) change() {
	w.t.Helper()
	w.step++
	ctx, value := w.t.Context(), fmt.Sprint("v", w.step)
	var err error
	switch w.rng.IntN(12) {
	case 0:
		from := w.rng.IntN(50)
		b := Bounds{From: fmt.Sprintf("k%02d", from), To: fmt.Sprintf("k%02d", from+5)}
		_, err = w.tr.DeleteRange(ctx, b)
		maps.DeleteFunc(w.model, func(k, _ string) bool { return k >= b.From && k < b.To })
	case 1, 2:
		keys := map[string]bool{}
		for range 4 {
			keys[w.key()] = true
		}
		_, err = w.tr.AtomicBatch(ctx, setAll(slices.Sorted(maps.Keys(keys)), value), "")
		for k := range keys {
			w.model[k] = value
		}
	case 3:
		k := w.key()
		_, err = w.tr.Delete(ctx, k, clock.Version{})
		delete(w.model, k)
	case 4:
		_, err = w.in.Checkpoint(ctx, 0)
		if err == nil {
			_, err = w.in.Collect(ctx, 0)
		}
		_ = w.src.Sleep(ctx, 4*time.Second)
	case 5:
		if n := len(w.tr.ShardMap().Shards()); w.rng.IntN(3) == 0 && n < 9 {
			_, _, err = w.tr.Reshard(ctx, n+1)
		}
		if err == nil {
			_, err = w.in.Migrations(ctx, 0)
		}
	default:
		k := w.key()
		_, err = w.tr.Put(ctx, k, []byte(value), PutOptions{})
		w.model[k] = value
	}
	if err != nil {
		w.t.Fatalf("step %d: %v", w.step, err)
	}
}

// TestPageThatGrewIsHadAgainInPart: what was written into it since may be more than
// a page may have; the rest is of the next page, and nothing is skipped.
func TestPageThatGrewIsHadAgainInPart(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		in, _ := fresh(t, func(o *options.Options) { o.MaxPageBytes = 1 << 10 })
		tr := in.writer(t, "demo")
		fill(t, tr, 0, 40)
		id := openCursor(t, tr, CursorQuery{Kind: CursorEntries, Reverse: reverse})
		first := nextPage(t, tr, id, 1, 30)
		var ops []BatchOp
		for i := range 40 {
			ops = append(ops, setOf(fmt.Sprintf("k%03d", i), strings.Repeat("x", 300)))
		}
		if _, err := tr.Batch(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
		again := nextPage(t, tr, id, 1, 30)
		if len(again.Items) != 3 || !again.HasMore || again.Page != 1 || again.Items[0].Key != first.Items[0].Key {
			t.Fatalf("page 1 again has %s, more %v", pageKeys(again), again.HasMore)
		}
		seen := keysOf(again.Items)
		for page := int64(2); ; page++ {
			p := nextPage(t, tr, id, page, 30)
			seen = append(seen, keysOf(p.Items)...)
			if !p.HasMore {
				break
			}
		}
		if !slices.IsSortedFunc(seen, func(a, b string) int {
			if reverse {
				a, b = b, a
			}
			return strings.Compare(a, b)
		}) || len(seen) != 40 {
			t.Errorf("reverse %v: %d keys in all: %v", reverse, len(seen), seen)
		}
	}
}

// TestPageThatIsNotAcceptedIsTheNextOneStill, and so is one that is had again.
func TestPageThatIsNotAcceptedIsTheNextOneStill(t *testing.T) {
	in, _ := fresh(t)
	tr := in.writer(t, "demo")
	fill(t, tr, 0, 10)
	refused := errors.New("no room")
	for _, kind := range []CursorKind{CursorKeys, CursorEntries} {
		id := openCursor(t, tr, CursorQuery{Kind: kind})
		for page := int64(1); page <= 2; page++ {
			for _, asked := range []int64{0, page - 1, page} {
				if asked == 0 && page == 2 || asked == 1 && page == 1 {
					continue
				}
				_, err := tr.NextPage(t.Context(), id, PageQuery{Page: asked, Limit: 4, Accept: func(items []Item) error {
					if len(items) != 4 {
						t.Errorf("asked for %d entries", len(items))
					}
					return refused
				}})
				if !errors.Is(err, refused) {
					t.Fatal(err)
				}
			}
			if p := nextPage(t, tr, id, 0, 4); p.Page != page || p.Items[0].Key != fmt.Sprintf("k%03d", 4*(page-1)) {
				t.Errorf("then page %d with %s", p.Page, pageKeys(p))
			}
		}
	}
}
