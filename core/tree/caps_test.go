package tree

import (
	"errors"
	"testing"

	"github.com/latticekv/lattice/core/options"
)

func wantAdding(t testing.TB, err error, option string, current, adding int64) {
	t.Helper()
	var q *QuotaError
	if !errors.As(err, &q) || q.Option != option || q.Current != current || q.Adding != adding {
		t.Fatalf("error %v, want one of %s with %d more than %d", err, option, adding, current)
	}
}

// A load that would go beyond a cap is refused before any of it, or of its
// portion, is applied; the estimate that ordinary writes share may be old.
func TestALoadIsRefusedBeforeItExceedsACap(t *testing.T) {
	enforce := BulkOptions{EnforceLimits: true}
	for name, c := range map[string]struct {
		set    func(*options.Options)
		option string
		perKey int64
	}{
		"keys":  {func(o *options.Options) { o.MaxLiveKeys = 10 }, "MaxLiveKeys", 1},
		"bytes": {func(o *options.Options) { o.MaxEstimatedBytes = 10 * 20 }, "MaxEstimatedBytes", 20},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := fresh(t, smallBulk, c.set)
			h := db.writer(t, "session")
			begin(t, h, "op")
			_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(numbered(0, 11, 8)), enforce)
			wantAdding(t, err, c.option, 0, 11*c.perKey)
			holds(t, h, nil)
			if s := stateOf(t, h); s.Pending || s.NextChunk != 0 {
				t.Errorf("%+v", s)
			}
			for i, n := range []int{0, 5} { // up to the cap, and what the session has loaded counts
				_, err := h.AppendBulkLoad(t.Context(), "op", int64(i), from(numbered(n, n+5, 8)), enforce)
				must(t, err)
			}
			_, err = h.AppendBulkLoad(t.Context(), "op", 2, from(numbered(10, 11, 8)), enforce)
			wantAdding(t, err, c.option, 10*c.perKey, c.perKey)
			holds(t, h, numbered(0, 10, 8))

			once := db.writer(t, "once")
			_, err = once.BulkLoad(t.Context(), from(numbered(0, 12, 8)), enforce)
			wantAdding(t, err, c.option, 0, 11*c.perKey)
			holds(t, once, nil)
			_, err = once.BulkLoad(t.Context(), from(numbered(0, 10, 8)), enforce)
			must(t, err)
			_, err = once.BulkStream(t.Context(), from(numbered(10, 13, 8)), enforce)
			wantAdding(t, err, c.option, 10*c.perKey, 3*c.perKey)
			_, err = once.BulkStream(t.Context(), from(numbered(10, 13, 8)), BulkOptions{})
			must(t, err)
			holds(t, once, numbered(0, 13, 8))
		})
	}
}

// A stream that meets a cap on its way says what it has loaded.
func TestAStreamStopsAtACap(t *testing.T) {
	db, _ := fresh(t, smallBulk, func(o *options.Options) { o.MaxLiveKeys = 400 })
	h := db.writer(t, "t")
	res, err := h.BulkStream(t.Context(), from(noise(0, 1000, 100)), BulkOptions{EnforceLimits: true})
	var q *QuotaError
	if !errors.As(err, &q) || res.Accepted == 0 || res.Accepted > 400 || q.Current != res.Accepted {
		t.Fatalf("%+v, %v", res, err)
	}
	holds(t, h, noise(0, 1000, 100)[:res.Accepted])
}

// What is wrong with an operation can be told from the error.
func TestMismatchesSayWhatDiffers(t *testing.T) {
	db, _ := fresh(t)
	h := db.writer(t, "t")
	begin(t, h, "op")
	appendChunk(t, h, 0, numbered(0, 5, 8))
	want := func(err error, chunk int64, status BulkStatus) {
		t.Helper()
		var m *BulkMismatchError
		if !errors.As(err, &m) || m.Chunk != chunk || m.Status != status || m.OperationID != "op" {
			t.Errorf("%v", err)
		}
		wantErr(t, err, ErrOperationMismatch)
	}
	_, err := h.AppendBulkLoad(t.Context(), "op", 0, from(numbered(0, 6, 8)), BulkOptions{})
	want(err, 0, BulkOpen)
	_, err = h.CommitBulkLoad(t.Context(), "op")
	must(t, err)
	_, err = h.AppendBulkLoad(t.Context(), "op", 1, from(numbered(5, 6, 8)), BulkOptions{})
	want(err, -1, BulkCommitted)
	_, err = h.AbortBulkLoad(t.Context(), "op")
	want(err, -1, BulkCommitted)
}
