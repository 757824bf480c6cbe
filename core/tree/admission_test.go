package tree

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// TestLargeValuesAreAdmittedBeforeTheyAreRead: whoever bounds the memory of a
// process must be asked while there is still a choice.
func TestLargeValuesAreAdmittedBeforeTheyAreRead(t *testing.T) {
	in, _ := fresh(t, func(o *options.Options) { o.InlineValueBytes = 100 })
	h := in.writer(t, "t")
	const size = 1000
	value := []byte(strings.Repeat("x", size))
	for _, key := range []string{"a", "b", "c"} {
		_, err := h.Put(t.Context(), key, value, PutOptions{})
		must(t, err)
	}
	put(t, h, "small")
	pages := func(snapshot bool, kind CursorKind) func(context.Context) error {
		return func(ctx context.Context) error {
			id := openCursor(t, h, CursorQuery{Kind: kind, Snapshot: snapshot})
			_, err := h.NextPage(ctx, id, PageQuery{Limit: 10})
			return err
		}
	}
	for name, c := range map[string]struct {
		large int64
		read  func(context.Context) error
	}{
		"get":   {1, func(ctx context.Context) error { _, _, err := h.Get(ctx, "a", ReadOptions{}); return err }},
		"small": {0, func(ctx context.Context) error { _, _, err := h.Get(ctx, "small", ReadOptions{}); return err }},
		"get-or-set": {1, func(ctx context.Context) error {
			_, err := h.Put(ctx, "a", nil, PutOptions{GetOrSet: true})
			return err
		}},
		"many": {2, func(ctx context.Context) error {
			_, err := h.GetMany(ctx, []string{"a", "b", "small", "none"}, ReadOptions{})
			return err
		}},
		"page": {3, func(ctx context.Context) error { _, err := h.Scan(ctx, ScanQuery{Limit: 10}); return err }},
		"keys": {0, func(ctx context.Context) error {
			_, err := h.Scan(ctx, ScanQuery{Limit: 10, KeysOnly: true})
			return err
		}},
		"stream": {3, func(ctx context.Context) error {
			_, err := h.Stream(ctx, ScanQuery{}, func(*Item) error { return nil })
			return err
		}},
		"cursor":        {3, pages(false, CursorEntries)},
		"snapshot":      {3, pages(true, CursorEntries)},
		"cursor's keys": {0, pages(false, CursorKeys)},
		"write":         {0, func(ctx context.Context) error { _, err := h.Put(ctx, "a", value, PutOptions{}); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			must(t, c.read(WithAdmission(t.Context(), func(n int64) error { asked.Add(n); return nil })))
			if asked.Load() != c.large*size {
				t.Errorf("asked for %d bytes of %d values", asked.Load(), c.large)
			}
			full := errors.New("no room")
			if err := c.read(WithAdmission(t.Context(), func(int64) error { return full })); errors.Is(err, full) != (c.large > 0) {
				t.Errorf("without room: %v", err)
			}
		})
	}
}

// TestValuesThatCannotBeReadAreGivenBack: a reader that tries again must not run
// into what it did not get.
func TestValuesThatCannotBeReadAreGivenBack(t *testing.T) {
	m := memory.New(memory.Options{})
	blobs := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	in := open(t, blobs.Table(), blobs.Blobs(), func(o *options.Options) { o.InlineValueBytes = 100 })
	h := in.writer(t, "t")
	_, err := h.Put(t.Context(), "a", make([]byte, 1000), PutOptions{})
	must(t, err)
	blobs.Add(faulty.Rule{When: faulty.Kinds(faulty.BlobGet), Do: faulty.Fail(store.ErrUnavailable)})
	var held int64
	ctx := WithAdmission(t.Context(), func(n int64) error { held += n; return nil })
	if _, _, err := h.Get(ctx, "a", ReadOptions{MaxAge: time.Hour}); !errors.Is(err, store.ErrUnavailable) || held != 0 {
		t.Errorf("%d bytes stay held after %v", held, err)
	}
}
