package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/store"
)

func TestCheckOps(t *testing.T) {
	row := make([]byte, store.MaxRowBytes)
	many := func(n, size int) []store.Op {
		var ops []store.Op
		for i := range n {
			ops = append(ops, store.Insert(fmt.Sprintf("row%d", i), row[:size]))
		}
		return ops
	}
	for _, c := range []struct {
		name string
		ops  []store.Op
		want error
	}{
		{"insert", []store.Op{store.Insert("a", nil)}, nil},
		{"replace", []store.Op{store.Replace("a", nil, "x")}, nil},
		{"delete", []store.Op{store.Delete("a", "x")}, nil},
		{"delete of any version", []store.Op{store.Delete("a", "")}, nil},
		{"largest row", []store.Op{store.Insert("a", row)}, nil},
		{"most operations", many(store.MaxTransactionOps, 1), nil},
		{"most bytes", many(4, store.MaxTransactionBytes/4), nil},
		{"replace without ETag", []store.Op{store.Replace("a", nil, "")}, store.ErrInvalid},
		{"unknown kind", []store.Op{{Kind: 4, Key: "a"}}, store.ErrInvalid},
		{"no kind", []store.Op{{Key: "a"}}, store.ErrInvalid},
		{"bad key", []store.Op{store.Insert("a/b", nil)}, store.ErrInvalid},
		{"same row twice", []store.Op{store.Insert("a", nil), store.Insert("b", nil), store.Delete("a", "")}, store.ErrInvalid},
		{"no operation", nil, store.ErrTooLarge},
		{"too many operations", many(store.MaxTransactionOps+1, 1), store.ErrTooLarge},
		{"row too large", []store.Op{store.Insert("a", append(row, 0))}, store.ErrTooLarge},
		{"too many bytes", append(many(4, store.MaxTransactionBytes/4), store.Insert("b", row[:1])), store.ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) { wantOnly(t, store.CheckOps("p", c.ops), c.want) })
	}
	wantOnly(t, store.CheckOps("a b", []store.Op{store.Insert("a", nil)}), store.ErrInvalid)
}

// wantOnly demands an error of exactly one category, or none.
func wantOnly(t *testing.T, err, want error) {
	t.Helper()
	if want == nil && err == nil {
		return
	}
	for _, sentinel := range []error{store.ErrInvalid, store.ErrTooLarge, store.ErrUnavailable} {
		if errors.Is(err, sentinel) != (sentinel == want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if want == nil {
		t.Errorf("got %v, want none", err)
	}
}

func TestCheckKeyAllowsExactlyItsAlphabet(t *testing.T) {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz~._-"
	for c := range 256 {
		key := "a" + string([]byte{byte(c)}) + "b"
		want := error(store.ErrInvalid)
		if strings.IndexByte(alphabet, byte(c)) >= 0 {
			want = nil
		}
		wantOnly(t, store.CheckKey("row key", key), want)
	}
	wantOnly(t, store.CheckKey("row key", strings.Repeat("k", store.MaxKeyBytes)), nil)
	wantOnly(t, store.CheckKey("row key", strings.Repeat("k", store.MaxKeyBytes+1)), store.ErrInvalid)
	wantOnly(t, store.CheckKey("row key", ""), store.ErrInvalid)
}

func TestCheckGetAndRange(t *testing.T) {
	wantOnly(t, store.CheckGet("p", "k"), nil)
	wantOnly(t, store.CheckGet("", "k"), store.ErrInvalid)
	wantOnly(t, store.CheckGet("p", ""), store.ErrInvalid)
	longest := strings.Repeat("k", store.MaxKeyBytes)
	for _, c := range []struct {
		name, partition string
		q               store.RangeQuery
		want            error
	}{
		{"everything", "p", store.RangeQuery{}, nil},
		{"most rows", "p", store.RangeQuery{Limit: store.MaxPageRows}, nil},
		{"past a key", "p", store.RangeQuery{From: store.NextKey(longest), To: store.NextKey("a")}, nil},
		{"backwards", "p", store.RangeQuery{From: "b", To: "a"}, nil},
		{"bad partition", "p/q", store.RangeQuery{}, store.ErrInvalid},
		{"negative limit", "p", store.RangeQuery{Limit: -1}, store.ErrInvalid},
		{"too many rows", "p", store.RangeQuery{Limit: store.MaxPageRows + 1}, store.ErrInvalid},
		{"bad start", "p", store.RangeQuery{From: "a'"}, store.ErrInvalid},
		{"bad end", "p", store.RangeQuery{To: "a\x00"}, store.ErrInvalid},
		{"long start", "p", store.RangeQuery{From: longest + "kk"}, store.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) { wantOnly(t, store.CheckRange(c.partition, c.q), c.want) })
	}
}

func TestCheckBlob(t *testing.T) {
	for _, c := range []struct {
		name string
		blob string
		size int
		cond store.PutCondition
		want error
	}{
		{"create", "a/b", 1, store.Create, nil},
		{"always", "a", 0, store.Always, nil},
		{"if match", "a", 0, store.IfMatch("x"), nil},
		{"largest", "a", store.MaxBlobBytes, store.Create, nil},
		{"dots inside", ".a/b.c/..d", 0, store.Create, nil},
		{"too large", "a", store.MaxBlobBytes + 1, store.Create, store.ErrTooLarge},
		{"no condition", "a", 0, store.PutCondition{}, store.ErrInvalid},
		{"if match nothing", "a", 0, store.IfMatch(""), store.ErrInvalid},
		{"unknown condition", "a", 0, store.PutCondition{Mode: 9}, store.ErrInvalid},
		{"empty name", "", 0, store.Create, store.ErrInvalid},
		{"empty segment", "a//b", 0, store.Create, store.ErrInvalid},
		{"leading slash", "/a", 0, store.Create, store.ErrInvalid},
		{"trailing slash", "a/", 0, store.Create, store.ErrInvalid},
		{"parent", "a/../b", 0, store.Create, store.ErrInvalid},
		{"self", ".", 0, store.Create, store.ErrInvalid},
		{"trailing dot", "a./b", 0, store.Create, store.ErrInvalid},
		{"space", "a b", 0, store.Create, store.ErrInvalid},
		{"long name", strings.Repeat("n/", 256) + "n", 0, store.Create, store.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) { wantOnly(t, store.CheckBlob(c.blob, c.size, c.cond), c.want) })
	}
}

func TestCheckBlobRangeAndPrefix(t *testing.T) {
	wantOnly(t, store.CheckBlobRange("a", 0, 1), nil)
	wantOnly(t, store.CheckBlobRange("a", -1, 1), store.ErrInvalid)
	wantOnly(t, store.CheckBlobRange("a", 0, 0), store.ErrInvalid)
	wantOnly(t, store.CheckBlobRange("", 0, 1), store.ErrInvalid)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a.", "~"} {
		wantOnly(t, store.CheckBlobPrefix(prefix), nil)
	}
	for _, prefix := range []string{"/", "a//", "a b", "\xff", strings.Repeat("p", store.MaxKeyBytes+1)} {
		wantOnly(t, store.CheckBlobPrefix(prefix), store.ErrInvalid)
	}
}

func TestEveryPrefixOfABlobNameIsAPrefix(t *testing.T) {
	segment := rapid.StringMatching(`[0-9A-Za-z~._-]{0,8}[0-9A-Za-z~_-]`)
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "segments"), "/")
		if err := store.CheckBlobName(name); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckBlobPrefix(name[:rapid.IntRange(0, len(name)).Draw(t, "cut")]); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNextKeyIsBetweenNeighbours: nothing that may be a key lies between a key
// and its next key.
func TestNextKeyIsBetweenNeighbours(t *testing.T) {
	key := rapid.StringMatching(`[0-9A-Za-z~._-]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		next := store.NextKey(a)
		if next <= a || b > a && b < next {
			t.Fatalf("the key after %q is %q, before %q", a, next, b)
		}
	})
}

func TestCheckContextWrapsTheCause(t *testing.T) {
	if err := store.CheckContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := store.CheckContext(ctx)
	wantOnly(t, err, store.ErrUnavailable)
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestCategories(t *testing.T) {
	throttled := &store.ThrottledError{RetryAfter: time.Second, Err: errors.New("busy")}
	wrapped := func(err error) error {
		return fmt.Errorf("apply: %w", &store.OpError{Index: 3, Key: "k", Err: err})
	}
	for _, c := range []struct {
		err             error
		transient, lost bool
		after           time.Duration
	}{
		{nil, false, false, 0},
		{store.ErrNotFound, false, false, 0},
		{wrapped(store.ErrExists), false, true, 0},
		{wrapped(store.ErrPrecondition), false, true, 0},
		{store.ErrThrottled, true, false, 0},
		{wrapped(throttled), true, false, time.Second},
		{store.ErrUnavailable, true, false, 0},
		{store.ErrOutcomeUnknown, false, false, 0},
		{store.Corruptf("row %d", 7), false, false, 0},
	} {
		if store.Transient(c.err) != c.transient || store.LostRace(c.err) != c.lost || store.RetryAfter(c.err) != c.after {
			t.Errorf("%v: transient %v, lost race %v, retry after %s", c.err, store.Transient(c.err), store.LostRace(c.err), store.RetryAfter(c.err))
		}
	}
	if err := wrapped(throttled); !errors.Is(err, throttled.Err) || !strings.Contains(err.Error(), `operation 3 on row "k"`) {
		t.Errorf("got %v", err)
	}
	if err := store.Corruptf("row %d", 7); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "row 7") {
		t.Errorf("got %v", err)
	}
}

func TestOpsDoNotTouchWhatTheyAreGiven(t *testing.T) {
	data := []byte("data")
	ops := []store.Op{store.Insert("a", data), store.Replace("b", data, "x"), store.Delete("c", "y")}
	before := slices.Clone(ops)
	if err := store.CheckOps("p", ops); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(ops) != fmt.Sprint(before) || string(data) != "data" {
		t.Errorf("ops are %v", ops)
	}
}
