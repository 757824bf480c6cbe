package tree

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func appendChunk(t testing.TB, h *Tree, chunk int64, entries []BulkEntry) BulkAck {
	t.Helper()
	ack, err := h.AppendBulkLoad(t.Context(), "op", chunk, from(entries), BulkOptions{})
	must(t, err)
	return ack
}

func stateOf(t testing.TB, h *Tree) BulkState {
	t.Helper()
	s, err := h.BulkLoadState(t.Context(), "op")
	must(t, err)
	return s
}

// versionsOf returns the versions in a tree, and how many entries have each.
func versionsOf(t testing.TB, h *Tree) map[clock.Version]int {
	t.Helper()
	page, err := h.Scan(t.Context(), ScanQuery{Limit: 10000})
	must(t, err)
	if page.NextToken != "" {
		t.Fatal("more than one page")
	}
	out := map[clock.Version]int{}
	for _, it := range page.Items {
		out[it.Version]++
	}
	return out
}

func TestOperationIDsAreChecked(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	for _, id := range []string{"", "a/b", "a b", "ä", strings.Repeat("x", 129)} {
		_, _, err := h.BeginBulkLoad(t.Context(), id)
		wantArgument(t, err, "operationId")
		_, err = h.AppendBulkLoad(t.Context(), id, 0, from(nil), BulkOptions{})
		wantArgument(t, err, "operationId")
		_, err = h.CommitBulkLoad(t.Context(), id)
		wantArgument(t, err, "operationId")
		_, err = h.AbortBulkLoad(t.Context(), id)
		wantArgument(t, err, "operationId")
		_, err = h.BulkLoadState(t.Context(), id)
		wantArgument(t, err, "operationId")
	}
	begin(t, h, strings.Repeat("x", 127)+"_")
}

func TestUnknownOperations(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(nil), BulkOptions{})
	wantErr(t, err, ErrOperationNotFound)
	_, err = h.CommitBulkLoad(t.Context(), "op")
	wantErr(t, err, ErrOperationNotFound)
	_, err = h.AbortBulkLoad(t.Context(), "op")
	wantErr(t, err, ErrOperationNotFound)
	_, err = h.BulkLoadState(t.Context(), "op")
	wantErr(t, err, ErrOperationNotFound)
}

func TestSessionsBelongToTheTreeOfTheirTime(t *testing.T) {
	db, m := fresh(t)
	other := open(t, m.Table(), m.Blobs())
	h := db.writer(t, "t")
	begin(t, h, "op")
	appendChunk(t, h, 0, numbered(0, 10, 10))
	must(t, other.Delete(t.Context(), "t"))
	_, err := h.AppendBulkLoad(t.Context(), "op", 1, from(numbered(10, 20, 10)), BulkOptions{})
	wantErr(t, err, ErrTreeDeleted)
	must(t, other.Purge(t.Context(), "t"))
	other.writer(t, "t")
	_, err = h.AppendBulkLoad(t.Context(), "op", 1, from(numbered(10, 20, 10)), BulkOptions{})
	wantErr(t, err, ErrOperationNotFound)
	holds(t, h, nil)
	begin(t, h, "op")
}

func TestPurgeForgetsSessions(t *testing.T) {
	db, m := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	partition := bulkPartition(h.entry.cur.Load().ID)
	count := func() int {
		page, err := m.Table().Range(t.Context(), partition, store.RangeQuery{})
		must(t, err)
		return len(page.Rows)
	}
	if count() != 2 {
		t.Fatalf("%d rows", count())
	}
	must(t, db.Delete(t.Context(), "t"))
	must(t, db.Purge(t.Context(), "t"))
	if count() != 0 {
		t.Errorf("%d rows are left", count())
	}
}

func TestBeginIsRepeatable(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	s, created, err := h.BeginBulkLoad(t.Context(), "op")
	if err != nil || !created || s.Status != BulkOpen || s.NextChunk != 0 || s.Started.IsZero() || s.OperationID != "op" {
		t.Fatalf("%+v %v %v", s, created, err)
	}
	want := appendChunk(t, h, 0, numbered(0, 10, 10)).NextChunk
	s, created, err = h.BeginBulkLoad(t.Context(), "op")
	if err != nil || created || s.NextChunk != want || s.Accepted != 10 {
		t.Fatalf("%+v %v %v", s, created, err)
	}
	_, err = h.CommitBulkLoad(t.Context(), "op")
	must(t, err)
	s, created, err = h.BeginBulkLoad(t.Context(), "op")
	if err != nil || created || s.Status != BulkCommitted {
		t.Fatalf("%+v %v %v", s, created, err)
	}
}

func TestBeginWantsAnEmptyTree(t *testing.T) {
	db, _ := fresh(t)
	live := db.writer(t, "live")
	put(t, live, "k")
	_, _, err := live.BeginBulkLoad(t.Context(), "op")
	wantErr(t, err, ErrTreeNotEmpty)
	_, err = live.BulkLoad(t.Context(), from(numbered(0, 3, 1)), BulkOptions{})
	wantErr(t, err, ErrTreeNotEmpty)

	dead := db.writer(t, "dead")
	put(t, dead, "k")
	_, err = dead.Delete(t.Context(), "k", clock.Version{})
	must(t, err)
	_, _, err = dead.BeginBulkLoad(t.Context(), "op")
	wantErr(t, err, ErrTreeNotEmpty)
	_, err = dead.BulkLoad(t.Context(), from(numbered(0, 3, 1)), BulkOptions{})
	wantErr(t, err, ErrTreeNotEmpty)
	holds(t, dead, nil)
	if _, err = dead.BulkLoadState(t.Context(), "op"); !errors.Is(err, ErrOperationNotFound) {
		t.Errorf("something was recorded: %v", err)
	}
}

func TestAShardThatCannotBeAskedIsNotEmpty(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	broken := errors.New("out of order")
	asked := 0
	db.hooks.set(func(op, partition string) error {
		if op == "empty" && strings.HasSuffix(partition, "-3") {
			asked++
			return broken
		}
		return nil
	})
	_, _, err := h.BeginBulkLoad(t.Context(), "op")
	wantErr(t, err, broken)
	_, err = h.BulkLoad(t.Context(), from(numbered(0, 3, 1)), BulkOptions{})
	wantErr(t, err, broken)
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	db.hooks.set(nil)
	begin(t, h, "op") // nothing was registered
}

func TestOneLoadOfATreeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t, func(o *options.Options) { o.BulkLoadIdleTtl = 10 * time.Minute })
		h := db.writer(t, "t")
		begin(t, h, "op")
		time.Sleep(9 * time.Minute)
		appendChunk(t, h, 0, nil)
		time.Sleep(9 * time.Minute)
		for range 2 {
			_, _, err := h.BeginBulkLoad(t.Context(), "other")
			wantErr(t, err, ErrOperationInProgress)
			_, err = h.BulkLoad(t.Context(), from(nil), BulkOptions{})
			wantErr(t, err, ErrOperationInProgress)
			_, err = h.BulkStream(t.Context(), from(nil), BulkOptions{})
			wantErr(t, err, ErrOperationInProgress)
		}
		time.Sleep(time.Minute)
		begin(t, h, "other") // has been idle for long enough
		if s := stateOf(t, h); s.Status != BulkAborted {
			t.Errorf("the session that gave way: %+v", s)
		}
		_, err := h.AppendBulkLoad(t.Context(), "op", 1, from(nil), BulkOptions{})
		wantErr(t, err, ErrOperationMismatch)
	})
}

func TestIdleSessionGoesOnIfNobodyTookItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t, func(o *options.Options) { o.BulkLoadIdleTtl = time.Minute })
		h := db.writer(t, "t")
		begin(t, h, "op")
		time.Sleep(time.Hour)
		appendChunk(t, h, 0, numbered(0, 10, 10))
		holds(t, h, numbered(0, 10, 10))
	})
}

func TestPendingTellsOfLoadsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, m := fresh(t, func(o *options.Options) { o.BulkLoadIdleTtl = 10 * time.Minute })
		h := db.writer(t, "t")
		pending := func(want bool, when string) {
			t.Helper()
			if got, err := db.bulkPending(t.Context(), h.entry.cur.Load().ID); err != nil || got != want {
				t.Errorf("%s: pending %v, %v", when, got, err)
			}
		}
		pending(false, "at first")
		_, err := h.BulkStream(t.Context(), &entriesOf{entries: numbered(0, 3, 1), before: func(i int) {
			time.Sleep(3 * time.Minute) // longer than a sign of life counts
			pending(true, "within a stream")
		}}, BulkOptions{})
		must(t, err)
		pending(false, "after a stream")

		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		ctx, cancel := f.Context(t.Context())
		defer cancel()
		_, err = open(t, f.Table(), f.Blobs()).writer(t, "t").BulkStream(ctx, &entriesOf{entries: numbered(0, 3, 1), before: func(i int) { f.Kill() }}, BulkOptions{})
		if err == nil {
			t.Fatal("killed")
		}
		pending(true, "after a crash")
		time.Sleep(loadLease)
		pending(false, "a while after a crash")

		empty := db.writer(t, "empty")
		begin(t, empty, "op")
		h = empty
		pending(true, "in a session")
		time.Sleep(10 * time.Minute)
		pending(false, "in an idle session")
		appendChunk(t, h, 0, nil)
		pending(true, "after a chunk")
		_, err = h.CommitBulkLoad(t.Context(), "op")
		must(t, err)
		pending(false, "after the commit")
	})
}

func TestTwoBeginsAtOnce(t *testing.T) {
	m := memory.New(memory.Options{})
	open(t, m.Table(), m.Blobs()).writer(t, "t")
	const n = 8
	var (
		wg      sync.WaitGroup
		errs    [n]error
		created [n]bool
	)
	for i := range n {
		h := open(t, m.Table(), m.Blobs()).writer(t, "t")
		wg.Go(func() { _, created[i], errs[i] = h.BeginBulkLoad(t.Context(), fmt.Sprint("op", i/2)) })
	}
	wg.Wait()
	winners, won := 0, -1
	for i := range n {
		if created[i] {
			winners, won = winners+1, i/2
		}
	}
	if winners != 1 {
		t.Fatalf("%d were created", winners)
	}
	for i := range n {
		if i/2 == won {
			must(t, errs[i])
		} else {
			wantErr(t, errs[i], ErrOperationInProgress)
		}
	}
}

// A load that begins and ends between the look whether the tree is empty and
// the claim must not be missed.
func TestBeginIsOvertakenByAWholeLoad(t *testing.T) {
	for name, first := range map[string]bool{"of a tree without loads": true, "of a tree with one before": false} {
		t.Run(name, func(t *testing.T) {
			db, m := fresh(t)
			h := db.writer(t, "t")
			if !first {
				_, err := h.BulkLoad(t.Context(), from(nil), BulkOptions{})
				must(t, err)
			}
			other := open(t, m.Table(), m.Blobs()).writer(t, "t")
			var once sync.Once
			db.hooks.set(func(op, partition string) error {
				if op == "empty" && strings.HasSuffix(partition, "-3") {
					once.Do(func() {
						_, err := other.BulkLoad(t.Context(), from(numbered(0, 1, 1)), BulkOptions{})
						must(t, err)
					})
				}
				return nil
			})
			// Whether the shards that were asked before had the entry or not.
			_, created, err := h.BeginBulkLoad(t.Context(), "op")
			if created {
				t.Fatal("began on top of a load")
			}
			wantErr(t, err, ErrTreeNotEmpty)
		})
	}
}

func TestChunksComeInSequence(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	send := func(chunk int64, entries []BulkEntry) error {
		src := from(entries)
		_, err := h.AppendBulkLoad(t.Context(), "op", chunk, src, BulkOptions{})
		var s *SequenceError
		if errors.As(err, &s) && src.next > 0 {
			t.Error("a chunk out of sequence was read")
		}
		return err
	}
	wantSequence(t, send(1, numbered(0, 5, 5)), 1, 0)
	wantSequence(t, send(-1, numbered(0, 5, 5)), -1, 0)
	must(t, send(0, numbered(0, 5, 5)))
	must(t, send(1, numbered(5, 10, 5)))
	wantSequence(t, send(0, numbered(0, 5, 5)), 0, 2) // superseded
	wantSequence(t, send(3, numbered(10, 15, 5)), 3, 2)
	must(t, send(1, numbered(5, 10, 5)))
	holds(t, h, numbered(0, 10, 5))
}

func TestTheLastChunkSentAgainChangesNothing(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	want := appendChunk(t, h, 0, numbered(0, 500, 5))
	before := versionsOf(t, h)
	put(t, h, "key-00000003")
	_, err := h.Delete(t.Context(), "key-00000004", clock.Version{})
	must(t, err)
	if got := appendChunk(t, h, 0, numbered(0, 500, 5)); got != want {
		t.Errorf("acknowledged with %+v, then with %+v", want, got)
	}
	if s := stateOf(t, h); s.Accepted != 500 || s.NextChunk != 1 {
		t.Errorf("counted twice: %+v", s)
	}
	if got := versionsOf(t, h); len(got) != 2 || len(before) != 1 {
		t.Errorf("versions %v, then %v", before, got)
	}
	_, ok, err := h.Get(t.Context(), "key-00000004", ReadOptions{})
	if err != nil || ok {
		t.Errorf("a deleted key is back: %v", err)
	}
	for name, change := range map[string]func(e []BulkEntry) []BulkEntry{
		"a value":   func(e []BulkEntry) []BulkEntry { e[7].Value = []byte("other"); return e },
		"a key":     func(e []BulkEntry) []BulkEntry { e[7].Key += "x"; return e },
		"a type":    func(e []BulkEntry) []BulkEntry { e[7].Type = "text/plain"; return e },
		"an expiry": func(e []BulkEntry) []BulkEntry { e[7].Expiry = in(time.Hour); return e },
		"one less":  func(e []BulkEntry) []BulkEntry { return e[:499] },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(change(numbered(0, 500, 5))), BulkOptions{})
			wantErr(t, err, ErrOperationMismatch)
		})
	}
}

func TestATimeToLiveThatIsSentAgainIsTheSame(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	at := in(time.Hour)
	chunk := []BulkEntry{{Key: "k", Value: []byte("v"), Expiry: at}}
	appendChunk(t, h, 0, chunk)
	chunk[0].Expiry = at.Add(time.Second)
	appendChunk(t, h, 0, chunk)
	if it, _, err := h.Get(t.Context(), "k", ReadOptions{}); err != nil || it.Expiry.Sub(at) > time.Millisecond {
		t.Errorf("expires %v, not %v (%v)", it.Expiry, at, err)
	}
}

func TestOrderWithinAndAcrossChunks(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	send := func(chunk int64, keys ...string) error {
		var entries []BulkEntry
		for _, k := range keys {
			entries = append(entries, BulkEntry{Key: k})
		}
		_, err := h.AppendBulkLoad(t.Context(), "op", chunk, from(entries), BulkOptions{})
		return err
	}
	wantOrder(t, send(0, "a", "c", "b"), "b", "c", 0, 2)
	wantOrder(t, send(0, "a", "a"), "a", "a", 0, 1)
	holds(t, h, nil)
	if s := stateOf(t, h); s.Pending {
		t.Error("a refused chunk counts as begun")
	}
	must(t, send(0, "a", "m"))
	must(t, send(1)) // an empty chunk does not make it forget
	wantOrder(t, send(2, "m", "n"), "m", "m", 2, 0)
	wantOrder(t, send(2, "b"), "b", "m", 2, 0)
	must(t, send(2, "ma", "é", "😀"))
	if s := stateOf(t, h); s.LastKey != "😀" || s.NextChunk != 3 || s.Accepted != 5 {
		t.Errorf("%+v", s)
	}
}

func TestWhatCannotBeLoadedIsRefused(t *testing.T) {
	large := make([]byte, hardValueBytes+1)
	broken := errors.New("the source broke")
	for name, c := range map[string]struct {
		entry BulkEntry
		fail  error
		want  func(t testing.TB, err error)
	}{
		"no key":         {BulkEntry{}, nil, func(t testing.TB, err error) { wantArgument(t, err, "entries[1].key") }},
		"no UTF-8":       {BulkEntry{Key: "x\xff"}, nil, func(t testing.TB, err error) { wantArgument(t, err, "entries[1].key") }},
		"long type":      {BulkEntry{Key: "x", Type: strings.Repeat("t", 256)}, nil, func(t testing.TB, err error) { wantArgument(t, err, "entries[1].type") }},
		"long key":       {BulkEntry{Key: strings.Repeat("x", 4097)}, nil, func(t testing.TB, err error) { wantLimit(t, err, "key", 4097, 4096) }},
		"large value":    {BulkEntry{Key: "x", Value: large}, nil, func(t testing.TB, err error) { wantLimit(t, err, "value", hardValueBytes+1, hardValueBytes) }},
		"broken source":  {BulkEntry{Key: "x"}, broken, func(t testing.TB, err error) { wantErr(t, err, broken) }},
		"limit enforced": {BulkEntry{Key: strings.Repeat("x", 1025)}, nil, func(t testing.TB, err error) { wantLimit(t, err, "key", 1025, 1024) }},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := fresh(t)
			h := db.writer(t, "t")
			src := func() BulkSource { return &entriesOf{entries: []BulkEntry{{Key: "a"}, c.entry}, fail: c.fail} }
			o := BulkOptions{EnforceLimits: true}
			res, err := h.BulkLoad(t.Context(), src(), o)
			c.want(t, err)
			if res != (BulkResult{}) {
				t.Errorf("%+v", res)
			}
			res, err = h.BulkStream(t.Context(), src(), o)
			c.want(t, err)
			if res != (BulkResult{}) {
				t.Errorf("%+v", res)
			}
			begin(t, h, "op")
			_, err = h.AppendBulkLoad(t.Context(), "op", 0, src(), o)
			c.want(t, err)
			if s := stateOf(t, h); s.Pending || s.NextChunk != 0 {
				t.Errorf("%+v", s)
			}
			holds(t, h, nil)
		})
	}
}

func TestLimitsOfOrdinaryWritesAreCounted(t *testing.T) {
	db, _ := fresh(t, func(o *options.Options) { o.MaxKeyLength, o.MaxValueSizeBytes = 10, 100 })
	want := []BulkEntry{
		{Key: "a", Value: make([]byte, 100)}, {Key: "abcdefghijk", Value: []byte("v")},
		{Key: "b", Value: make([]byte, 101)}, {Key: "c"},
	}
	first := LimitError{What: "key", Key: "abcdefghijk", Size: 11, Limit: 10}
	check := func(t *testing.T, h *Tree, over int64, got *LimitError) {
		t.Helper()
		if over != 2 || got == nil || *got != first {
			t.Errorf("%d over, the first %+v", over, got)
		}
		holds(t, h, want)
	}
	t.Run("one-shot", func(t *testing.T) {
		h := db.writer(t, "one-shot")
		res, err := h.BulkLoad(t.Context(), from(want), BulkOptions{})
		must(t, err)
		check(t, h, res.OverLimit, res.FirstOverLimit)
	})
	t.Run("stream", func(t *testing.T) {
		h := db.writer(t, "stream")
		res, err := h.BulkStream(t.Context(), from(want), BulkOptions{})
		must(t, err)
		check(t, h, res.OverLimit, res.FirstOverLimit)
	})
	t.Run("session", func(t *testing.T) {
		h := db.writer(t, "session")
		begin(t, h, "op")
		for range 2 { // the acknowledgement that is repeated says it as well
			ack := appendChunk(t, h, 0, want)
			check(t, h, ack.OverLimit, ack.FirstOverLimit)
		}
		if s := stateOf(t, h); s.OverLimit != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestChunksAreBounded(t *testing.T) {
	db, _ := fresh(t, func(o *options.Options) { o.MaxBulkChunkBytes, o.MaxBulkChunkEntries = 2000, 10 })
	h := db.writer(t, "t")
	begin(t, h, "op")
	_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(numbered(0, 3, 700)), BulkOptions{})
	wantLimit(t, err, "chunk", 3*712, 2000)
	_, err = h.AppendBulkLoad(t.Context(), "op", 0, from(numbered(0, 11, 1)), BulkOptions{})
	wantLimit(t, err, "entries", 11, 10)
	appendChunk(t, h, 0, numbered(0, 10, 1))
	// One entry alone may be as large as a value may be.
	appendChunk(t, h, 1, numbered(10, 11, 3000))
}

func TestExpiryIsCarried(t *testing.T) {
	for name, graft := range map[string]int64{"as leaves": 0, "as records": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, _ := fresh(t, func(o *options.Options) { o.BulkGraftBytes = graft })
				h := db.writer(t, "t")
				soon := in(time.Minute).Add(time.Microsecond)
				begin(t, h, "op")
				ack := appendChunk(t, h, 0, []BulkEntry{
					{Key: "ever", Type: "text/plain"}, {Key: "gone", Expiry: in(-time.Hour)},
					{Key: "long gone", Expiry: time.Unix(-5, 0)}, {Key: "soon", Expiry: soon},
				})
				if ack.Accepted != 4 {
					t.Errorf("%+v", ack)
				}
				holds(t, h, []BulkEntry{{Key: "ever"}, {Key: "soon"}})
				it, _, err := h.Get(t.Context(), "soon", ReadOptions{})
				if err != nil || !it.Expiry.Equal(soon.Truncate(time.Millisecond).Add(time.Millisecond)) {
					t.Errorf("expires %v, %v", it.Expiry, err)
				}
				if it, _, _ := h.Get(t.Context(), "ever", ReadOptions{}); it.Type != "text/plain" || !it.Expiry.IsZero() {
					t.Errorf("%+v", it)
				}
				time.Sleep(time.Minute + time.Millisecond)
				holds(t, h, []BulkEntry{{Key: "ever"}})
			})
		})
	}
}

func TestCommitAndAbort(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	appendChunk(t, h, 0, numbered(0, 10, 1))
	for n := range int64(3) {
		s, err := h.CommitBulkLoad(t.Context(), "op")
		if err != nil || s.Status != BulkCommitted || s.TotalLiveKeys != 10+n {
			t.Errorf("%+v %v", s, err)
		}
		put(t, h, fmt.Sprint("later ", n))
	}
	appendChunk(t, h, 0, numbered(0, 10, 1)) // the reply may have been lost
	_, err := h.AppendBulkLoad(t.Context(), "op", 1, from(nil), BulkOptions{})
	wantErr(t, err, ErrOperationMismatch)
	_, err = h.AbortBulkLoad(t.Context(), "op")
	wantErr(t, err, ErrOperationMismatch)

	a := db.writer(t, "aborted")
	begin(t, a, "op")
	appendChunk(t, a, 0, numbered(0, 10, 1))
	for range 2 {
		s, err := a.AbortBulkLoad(t.Context(), "op")
		if err != nil || s.Status != BulkAborted || s.Accepted != 10 || s.NextChunk != 1 {
			t.Errorf("%+v %v", s, err)
		}
	}
	_, err = a.AppendBulkLoad(t.Context(), "op", 0, from(numbered(0, 10, 1)), BulkOptions{})
	wantErr(t, err, ErrOperationMismatch)
	_, err = a.CommitBulkLoad(t.Context(), "op")
	wantErr(t, err, ErrOperationMismatch)
	holds(t, a, numbered(0, 10, 1))
}

// fails makes the writes to one shard of a tree fail, until it is undone.
func (in *instance) fails(suffix string, cause error) {
	in.hooks.set(func(op, partition string) error {
		if (op == "graft" || op == "write") && strings.HasSuffix(partition, suffix) {
			return cause
		}
		return nil
	})
}

func TestAChunkThatFailedInPartIsSentAgain(t *testing.T) {
	for name, graft := range map[string]int64{"as leaves": 0, "as records": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			db, m := fresh(t, func(o *options.Options) { o.BulkGraftBytes = graft })
			h := db.writer(t, "t")
			begin(t, h, "op")
			want := numbered(0, 400, 20)
			broken := errors.New("out of order")
			db.fails("-2", broken)
			_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(want), BulkOptions{})
			wantErr(t, err, broken)
			s := stateOf(t, h)
			if !s.Pending || s.NextChunk != 0 || s.Accepted != 0 {
				t.Errorf("%+v", s)
			}
			_, err = h.CommitBulkLoad(t.Context(), "op")
			wantErr(t, err, ErrOperationMismatch)
			_, err = h.AppendBulkLoad(t.Context(), "op", 0, from(want[1:]), BulkOptions{})
			wantErr(t, err, ErrOperationMismatch)
			// Written meanwhile, where the chunk is already: it stays. The rest
			// gets the version of the first attempt.
			put(t, h, want[0].Key)
			want[0].Value = []byte("value of " + want[0].Key)
			original := numbered(0, 400, 20)
			again := open(t, m.Table(), m.Blobs(), func(o *options.Options) { o.BulkGraftBytes = graft }).writer(t, "t")
			ack, err := again.AppendBulkLoad(t.Context(), "op", 0, from(original), BulkOptions{})
			if err != nil || ack.Accepted != 400 {
				t.Fatalf("%+v %v", ack, err)
			}
			holds(t, again, want)
			if v := versionsOf(t, again); len(v) != 2 {
				t.Errorf("versions %v", v)
			}
		})
	}
}

func TestAChunkThatIsOvertakenByAnAbort(t *testing.T) {
	db, m := fresh(t)
	h := db.writer(t, "t")
	other := open(t, m.Table(), m.Blobs()).writer(t, "t")
	begin(t, h, "op")
	var once sync.Once
	db.hooks.set(func(op, _ string) error {
		if op == "write" {
			once.Do(func() {
				_, err := other.AbortBulkLoad(t.Context(), "op")
				must(t, err)
			})
		}
		return nil
	})
	_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(numbered(0, 100, 5)), BulkOptions{})
	wantErr(t, err, ErrOperationMismatch)
	// What was loaded stays, and the state tells that more may be there.
	if s := stateOf(t, h); s.Status != BulkAborted || !s.Pending || s.Accepted != 0 {
		t.Errorf("%+v", s)
	}
	holds(t, h, numbered(0, 100, 5))
}

func TestOrdinaryWritesDuringASession(t *testing.T) {
	for name, graft := range map[string]int64{"as leaves": 0, "as records": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			db, m := fresh(t, func(o *options.Options) { o.BulkGraftBytes = graft })
			h := db.writer(t, "t")
			other := open(t, m.Table(), m.Blobs()).writer(t, "t")
			begin(t, h, "op")
			want := numbered(0, 100, 20)
			put(t, other, want[10].Key) // older than the chunk: replaced
			_, err := other.Delete(t.Context(), want[10].Key, clock.Version{})
			must(t, err)
			put(t, other, want[11].Key)
			var once sync.Once
			db.hooks.set(func(op, partition string) error {
				if op == "graft" || op == "write" {
					// After the chunk has got its version, before it is there.
					once.Do(func() {
						time.Sleep(2 * time.Millisecond)
						put(t, other, want[20].Key)
						put(t, other, want[21].Key)
						_, err := other.Delete(t.Context(), want[21].Key, clock.Version{})
						must(t, err)
					})
				}
				return nil
			})
			appendChunk(t, h, 0, want)
			want[20].Value = []byte("value of " + want[20].Key)
			holds(t, h, append(want[:21:21], want[22:]...))
		})
	}
}

func TestOrdinaryWritersAndALoadEndAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, m := fresh(t, smallBulk)
		h := db.writer(t, "t")
		begin(t, h, "op")
		want := numbered(0, 2000, 50)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		last := make([]map[string]string, 4)
		for w := range last {
			last[w] = map[string]string{}
			other := open(t, m.Table(), m.Blobs()).writer(t, "t")
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := want[(n*37+w)%500*4+w].Key
					value := fmt.Sprint(w, "/", n)
					if _, err := other.Put(t.Context(), key, []byte(value), PutOptions{}); err != nil {
						t.Error(err)
						return
					}
					last[w][key] = value
					time.Sleep(time.Millisecond)
				}
			})
		}
		for i := range 4 {
			time.Sleep(20 * time.Millisecond)
			appendChunk(t, h, int64(i), want[i*500:(i+1)*500])
		}
		time.Sleep(600 * time.Millisecond) // every key is written once more
		stop()
		wg.Wait()
		for i := range want {
			if v, ok := last[i%4][want[i].Key]; ok {
				want[i].Value = []byte(v)
			}
		}
		holds(t, h, want)
	})
}

func TestLostRepliesOfSessionRows(t *testing.T) {
	for name, fault := range map[string]func() faulty.Fault{"applied": faulty.Lose, "not applied": faulty.Drop, "applied twice": faulty.Duplicate} {
		for call := range 4 {
			t.Run(fmt.Sprintf("%s, write %d", name, call), func(t *testing.T) {
				m := memory.New(memory.Options{})
				open(t, m.Table(), m.Blobs()).writer(t, "t")
				f := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
				lost := f.Add(faulty.Rule{When: faulty.All(faulty.Kinds(faulty.Apply), faulty.InPartition("bulk-")), Skip: call, Times: 1, Do: fault()})
				h := open(t, f.Table(), f.Blobs()).writer(t, "t")
				begin(t, h, "op")
				if ack := appendChunk(t, h, 0, numbered(0, 50, 5)); ack.Accepted != 50 || ack.NextChunk != 1 {
					t.Errorf("%+v", ack)
				}
				s, err := h.CommitBulkLoad(t.Context(), "op")
				if err != nil || s.Accepted != 50 || s.TotalLiveKeys != 50 || s.Status != BulkCommitted {
					t.Errorf("%+v %v", s, err)
				}
				if lost.Fired() != 1 {
					t.Error("no reply was lost")
				}
			})
		}
	}
}

func TestEndedSessionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, m := fresh(t, func(o *options.Options) { o.BulkLoadRetention = time.Hour })
		h := db.writer(t, "t")
		for i := range 3 {
			id := fmt.Sprint("op", i)
			begin(t, h, id)
			if i < 2 {
				_, err := h.AbortBulkLoad(t.Context(), id)
				must(t, err)
			}
			time.Sleep(40 * time.Minute)
		}
		time.Sleep(time.Hour)
		rep, err := db.Collect(t.Context(), 0)
		if err != nil || rep.Failed > 0 {
			t.Fatal(err, rep.Failures)
		}
		var left []string
		for i := range 3 {
			if _, err := h.BulkLoadState(t.Context(), fmt.Sprint("op", i)); err == nil {
				left = append(left, fmt.Sprint("op", i))
			}
		}
		// All are older than that, but the third is open.
		if !reflect.DeepEqual(left, []string{"op2"}) {
			t.Errorf("left are %v", left)
		}
		_, err = h.AbortBulkLoad(t.Context(), "op2")
		must(t, err)
		time.Sleep(time.Hour)
		_, err = db.Collect(t.Context(), 0)
		must(t, err)
		page, err := m.Table().Range(t.Context(), bulkPartition(h.entry.cur.Load().ID), store.RangeQuery{})
		if err != nil || len(page.Rows) != 1 || page.Rows[0].Key != currentKey {
			t.Errorf("rows %v, %v", page.Rows, err)
		}
		begin(t, h, "op2") // the row names a session that is forgotten
	})
}

func TestAdmissionCapsOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := fresh(t, func(o *options.Options) { o.MaxLiveKeys, o.DiagnosticsCacheTtl = 100, time.Second })
		h := db.writer(t, "t")
		begin(t, h, "op")
		send := func(chunk int64, o BulkOptions) error {
			_, err := h.AppendBulkLoad(t.Context(), "op", chunk, from(numbered(int(chunk)*100, int(chunk)*100+100, 5)), o)
			time.Sleep(time.Minute)
			return err
		}
		enforce := BulkOptions{EnforceLimits: true}
		must(t, send(0, enforce))
		var quota *QuotaError
		if err := send(1, enforce); !errors.As(err, &quota) || quota.Option != "MaxLiveKeys" || quota.Current != 100 {
			t.Errorf("error %v", err)
		}
		must(t, send(0, enforce)) // is there already
		must(t, send(1, BulkOptions{}))
		_, err := h.CommitBulkLoad(t.Context(), "op")
		must(t, err)
		res, err := h.BulkStream(t.Context(), from(numbered(200, 300, 5)), enforce)
		if !errors.As(err, &quota) || res.Accepted != 0 {
			t.Errorf("%+v %v", res, err)
		}
		holds(t, h, numbered(0, 200, 5))
	})
}
