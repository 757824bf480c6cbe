package tree

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func TestOneShotLoadSortsAndGrafts(t *testing.T) {
	for name, size := range map[string]int{"records": 20, "leaves": 2000, "spilled": 20000} {
		t.Run(name, func(t *testing.T) {
			db, _ := fresh(t, smallBulk)
			h := db.writer(t, "t")
			want := noise(0, size/10, 100)
			res, err := h.BulkLoad(t.Context(), from(shuffled(want, 7)), BulkOptions{})
			must(t, err)
			if n := int64(len(want)); res.Accepted != n || res.TotalLiveKeys != n || res.OverLimit != 0 {
				t.Errorf("%+v", res)
			}
			holds(t, h, want)
			if grafted := db.hooks.count("graft"); (grafted > 0) != (size > 20) {
				t.Errorf("%d grafts", grafted)
			}
		})
	}
}

func TestStreamGoesOnTop(t *testing.T) {
	db, _ := fresh(t, smallBulk)
	h := db.writer(t, "t")
	put(t, h, "key-00000005", "zebra")
	want := noise(0, 3000, 100)
	res, err := h.BulkStream(t.Context(), from(want), BulkOptions{})
	must(t, err)
	if res.Accepted != 3000 || res.TotalLiveKeys != 3001 {
		t.Errorf("%+v", res)
	}
	holds(t, h, append(want, BulkEntry{Key: "zebra", Value: []byte("value of zebra")}))
}

func TestSessionOfSeveralChunks(t *testing.T) {
	db, _ := fresh(t, smallBulk)
	h := db.writer(t, "t")
	begin(t, h, "op")
	want := noise(0, 3000, 100)
	for i := range 3 {
		ack, err := h.AppendBulkLoad(t.Context(), "op", int64(i), from(want[i*1000:(i+1)*1000]), BulkOptions{})
		must(t, err)
		if ack.Chunk != int64(i) || ack.NextChunk != int64(i+1) || ack.Accepted != 1000 {
			t.Errorf("%+v", ack)
		}
	}
	s, err := h.CommitBulkLoad(t.Context(), "op")
	must(t, err)
	if s.Status != BulkCommitted || s.TotalLiveKeys != 3000 || s.Accepted != 3000 || s.LastKey != want[2999].Key {
		t.Errorf("%+v", s)
	}
	holds(t, h, want)
}

// blobs returns how many blobs there are.
func blobs(t testing.TB, m *memory.Store) (n int) {
	t.Helper()
	for marker := ""; ; {
		page, err := m.Blobs().List(t.Context(), "", marker)
		must(t, err)
		n += len(page.Blobs)
		if marker = page.Next; marker == "" {
			return n
		}
	}
}

func TestADuplicateAnywhereLoadsNothing(t *testing.T) {
	const n = 3000 // of which about 400 fit into the buffer
	for name, c := range map[string]struct {
		twice, at int
		index     int64
	}{
		"in one small load":  {2, 5, 5},
		"within a buffer":    {2000, 2005, 2005},
		"across two buffers": {17, 2500, -1},
		"the very last":      {0, n, -1},
	} {
		t.Run(name, func(t *testing.T) {
			db, m := fresh(t, smallBulk)
			h := db.writer(t, "t")
			entries := shuffled(noise(0, n, 100), 5)
			if name == "in one small load" {
				entries = entries[:100]
			}
			entries = slices.Insert(entries, c.at, entries[c.twice])
			res, err := h.BulkLoad(t.Context(), from(entries), BulkOptions{})
			key := entries[c.twice].Key
			wantOrder(t, err, key, key, -1, c.index)
			if res != (BulkResult{}) || db.hooks.count("graft") > 0 || db.hooks.count("write") > 0 {
				t.Errorf("%+v", res)
			}
			if left := blobs(t, m); left > 0 {
				t.Errorf("%d blobs are left", left)
			}
			holds(t, h, nil)
			_, err = h.BulkLoad(t.Context(), from(noise(0, 10, 10)), BulkOptions{}) // the tree is empty still
			must(t, err)
		})
	}
}

func TestOneShotInOrderIsWrittenOnce(t *testing.T) {
	count := func(entries []BulkEntry) (staged, leaves int) {
		db, m := fresh(t, smallBulk)
		h := db.writer(t, "t")
		_, err := h.BulkLoad(t.Context(), from(entries), BulkOptions{})
		must(t, err)
		return db.hooks.count("stage"), blobs(t, m)
	}
	entries := noise(0, 5000, 100)
	inOrder, left := count(entries)
	mixed, less := count(shuffled(entries, 9))
	if inOrder >= mixed {
		t.Errorf("%d stages in order, %d mixed", inOrder, mixed)
	}
	if left > less*3/2 {
		t.Errorf("%d blobs in order, %d mixed", left, less)
	}
}

func TestManyOverlappingRunsAreMergedOnTheWay(t *testing.T) {
	db, _ := fresh(t, smallBulk, func(o *options.Options) { o.DefaultShardCount = 1 })
	h := db.writer(t, "t")
	want := noise(0, 20000, 100)
	_, err := h.BulkLoad(t.Context(), from(shuffled(want, 11)), BulkOptions{})
	must(t, err)
	if n := db.hooks.count("stage"); n < 2*maxFanIn {
		t.Fatalf("%d runs were staged, too few", n)
	}
	if n := db.hooks.count("graft"); n != 1 {
		t.Errorf("%d grafts onto one shard", n)
	}
	holds(t, h, want)
}

// The first run reaches over all the others, which do not overlap each other.
func TestARunThatReachesOverOthers(t *testing.T) {
	db, _ := fresh(t, smallBulk, func(o *options.Options) { o.DefaultShardCount = 1 })
	h := db.writer(t, "t")
	want := noise(0, 2000, 100)
	var wide, narrow []BulkEntry
	for i, e := range want {
		if i%6 == 0 {
			wide = append(wide, e)
		} else {
			narrow = append(narrow, e)
		}
	}
	_, err := h.BulkLoad(t.Context(), from(append(wide, narrow...)), BulkOptions{})
	must(t, err)
	holds(t, h, want)
}

func TestASlowLoadIsNotCollectedFromUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, m := fresh(t, smallBulk)
		h := db.writer(t, "t")
		keeper := open(t, m.Table(), m.Blobs(), smallBulk)
		want := noise(0, 20000, 20)
		want[3].Value = make([]byte, 300<<10) // in a blob of its own
		res, err := h.BulkLoad(t.Context(), &entriesOf{entries: shuffled(want, 2), before: func(i int) {
			time.Sleep(100 * time.Millisecond) // half an hour in all
			if i%500 == 0 {
				_, err := keeper.Collect(t.Context(), 0)
				must(t, err)
			}
		}}, BulkOptions{})
		must(t, err)
		if res.Accepted != 20000 {
			t.Errorf("%+v", res)
		}
		holds(t, h, want)
	})
}

func TestStreamStopsAtTheFirstFault(t *testing.T) {
	db, _ := fresh(t, smallBulk)
	h := db.writer(t, "t")
	entries := noise(0, 3000, 100)
	entries[2500].Key = entries[2400].Key
	res, err := h.BulkStream(t.Context(), from(entries), BulkOptions{})
	wantOrder(t, err, entries[2400].Key, entries[2499].Key, -1, 2500)
	if res.Accepted == 0 || res.Accepted > 2500 {
		t.Fatalf("%+v", res)
	}
	holds(t, h, entries[:res.Accepted])
	// The rest goes on top.
	rest, err := h.BulkStream(t.Context(), from(noise(0, 3000, 100)[res.Accepted:]), BulkOptions{})
	if err != nil || rest.Accepted+res.Accepted != 3000 || rest.TotalLiveKeys != 3000 {
		t.Errorf("%+v %v", rest, err)
	}
	holds(t, h, noise(0, 3000, 100))
}

func TestStreamComparesAcrossPortions(t *testing.T) {
	db, _ := fresh(t, smallBulk)
	h := db.writer(t, "t")
	entries := noise(0, 1000, 100)
	// Each entry from one on comes twice, in turn: so also at the ends of portions.
	for at := 60; at < 260; at++ {
		bad := slices.Insert(slices.Clone(entries), at, entries[at-1])
		res, err := h.BulkStream(t.Context(), from(bad), BulkOptions{})
		wantOrder(t, err, entries[at-1].Key, entries[at-1].Key, -1, int64(at))
		if res.Accepted >= int64(at) {
			t.Errorf("%d entries before the fault at %d", res.Accepted, at)
		}
	}
}

func TestStreamReplacesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t, smallBulk)
		h := db.writer(t, "t")
		load(t, h, 10)
		old := noise(0, 2000, 100)
		_, err := h.BulkStream(t.Context(), from(old), BulkOptions{})
		must(t, err)
		_, err = db.Checkpoint(t.Context(), 0)
		must(t, err)
		want := noise(0, 2000, 101)
		res, err := h.BulkStream(t.Context(), from(want), BulkOptions{})
		if err != nil || res.Accepted != 2000 {
			t.Fatalf("%+v %v", res, err)
		}
		page, err := h.Scan(t.Context(), ScanQuery{Bounds: Bounds{From: "key-00000000"}, Limit: 5000})
		must(t, err)
		seen := 0
		for _, it := range page.Items {
			if len(it.Value) == 101 {
				seen++
			}
		}
		if seen != 2000 {
			t.Errorf("%d of 2000 were replaced", seen)
		}
	})
}

func TestALoadThatLostItsPlaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		other := open(t, m.Table(), m.Blobs(), smallBulk)
		other.writer(t, "t")
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		in := open(t, f.Table(), f.Blobs(), smallBulk)
		h := in.writer(t, "t")
		entries := noise(0, 3000, 100)
		_, err := h.BulkLoad(t.Context(), &entriesOf{entries: shuffled(entries, 4), before: func(i int) {
			if i != 2000 {
				return
			}
			// Its signs of life do not arrive for a while, and another begins.
			mute := f.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("bulk-")), Do: faulty.Fail(store.ErrUnavailable)})
			time.Sleep(2 * loadLease)
			_, err := other.writer(t, "t").BulkLoad(t.Context(), from(numbered(0, 5, 5)), BulkOptions{})
			must(t, err)
			if mute.Fired() == 0 {
				t.Error("nothing was muted")
			}
			f.Clear()
		}}, BulkOptions{})
		wantErr(t, err, ErrOperationMismatch)
		holds(t, h, numbered(0, 5, 5))
	})
}

func TestACancelledLoadGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t, smallBulk, func(o *options.Options) { o.MaxBulkLoads = 1 })
		h := db.writer(t, "t")
		ctx, cancel := context.WithCancel(t.Context())
		src := from(noise(0, 3000, 100))
		src.before = func(i int) {
			if i == 1500 {
				cancel()
			}
		}
		if _, err := h.BulkLoad(ctx, src, BulkOptions{}); err == nil {
			t.Fatal("not cancelled")
		}
		want := noise(0, 30, 100)
		_, err := h.BulkLoad(t.Context(), from(want), BulkOptions{})
		must(t, err)
		holds(t, h, want)
	})
}

func TestLoadsBeyondTheirNumberWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t, func(o *options.Options) { o.MaxBulkLoads = 1 })
		a, b := db.writer(t, "a"), db.writer(t, "b")
		_, err := a.BulkStream(t.Context(), &entriesOf{entries: numbered(0, 1, 1), before: func(int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := b.BulkStream(ctx, from(nil), BulkOptions{})
			wantErr(t, err, store.ErrUnavailable)
		}}, BulkOptions{})
		must(t, err)
		_, err = b.BulkStream(t.Context(), from(nil), BulkOptions{})
		must(t, err)
	})
}

// A chunk over k shards costs, beside what is read: its leaves, a manifest and
// an append for each shard, and two updates of the session's row.
func TestStorageCallsOfAChunk(t *testing.T) {
	s := meteredStore()
	in := open(t, s.Table(), s.Blobs())
	h := in.writer(t, "t")
	begin(t, h, "op")
	chunk := noise(0, 40_000, 100) // 4.4 MB
	got := cost(s, func() { appendChunk(t, h, 0, chunk) })
	if got.Applies != 4+2 {
		t.Errorf("%d transactions: %+v", got.Applies, got)
	}
	if leaves := int64(4_480_000/(256<<10) + 4); got.BlobPuts < leaves || got.BlobPuts > leaves+4+4 {
		t.Errorf("%d blobs written, %d leaves expected and 4 manifests: %+v", got.BlobPuts, leaves, got)
	}
	if in.hooks.count("graft") != 4 || in.hooks.count("write") != 0 {
		t.Errorf("%d grafts, %d writes", in.hooks.count("graft"), in.hooks.count("write"))
	}
	got = cost(s, func() { appendChunk(t, h, 1, noise(40_000, 41_000, 100)) })
	if got.Applies != 4+2 || got.BlobPuts > 0 || in.hooks.count("graft") != 4 {
		t.Errorf("a small chunk: %+v", got)
	}
	got = cost(s, func() { appendChunk(t, h, 1, noise(40_000, 41_000, 100)) })
	if got.Calls() > 2 {
		t.Errorf("a chunk that is acknowledged: %+v", got)
	}
}
