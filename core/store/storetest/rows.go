package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// rowCases are about single rows.
var rowCases = []tableCase{
	{"GetReturnsWhatWasInserted", func(t *testing.T, f fixture) {
		etags := f.apply(t, store.Insert("a", []byte("one")))
		if got := f.wantRow(t, "a", []byte("one")); got != etags[0] {
			t.Fatalf("get returned ETag %q, insert %q", got, etags[0])
		}
	}},
	{"GetOfMissingRowIsNotFound", func(t *testing.T, f fixture) {
		f.wantNoRow(t, "a")
		f.apply(t, store.Insert("b", nil))
		f.wantNoRow(t, "a")
	}},
	{"InsertOverExistingIsExists", func(t *testing.T, f fixture) {
		etag := f.apply(t, store.Insert("a", []byte("one")))[0]
		wantOpError(t, f.reject(t, store.Insert("a", []byte("two"))), store.ErrExists, 0, "a")
		if got := f.wantRow(t, "a", []byte("one")); got != etag {
			t.Fatalf("failed insert changed the ETag from %q to %q", etag, got)
		}
	}},
	{"InsertIgnoresIfMatch", func(t *testing.T, f fixture) {
		f.apply(t, store.Op{Kind: store.OpInsert, Key: "a", Data: []byte("one"), IfMatch: ""})
		wantOpError(t, f.reject(t, store.Insert("a", nil)), store.ErrExists, 0, "a")
	}},
	{"ReplaceWithCurrentETagSucceeds", replaceChain},
	{"ReplaceWithStaleETagIsPrecondition", func(t *testing.T, f fixture) {
		first := f.apply(t, store.Insert("a", []byte("one")))[0]
		f.apply(t, store.Replace("a", []byte("two"), first))
		wantOpError(t, f.reject(t, store.Replace("a", []byte("three"), first)), store.ErrPrecondition, 0, "a")
		f.wantRow(t, "a", []byte("two"))
	}},
	{"ReplaceOfMissingRowIsPrecondition", func(t *testing.T, f fixture) {
		etag := f.apply(t, store.Insert("a", nil))[0]
		wantOpError(t, f.reject(t, store.Replace("b", nil, etag)), store.ErrPrecondition, 0, "b")
		f.wantNoRow(t, "b")
		f.apply(t, store.Delete("a", ""))
		wantOpError(t, f.reject(t, store.Replace("a", nil, etag)), store.ErrPrecondition, 0, "a")
		f.wantNoRow(t, "a")
	}},
	{"ReplaceWithEqualDataChangesTheETag", func(t *testing.T, f fixture) {
		first := f.apply(t, store.Insert("a", []byte("same")))[0]
		second := f.apply(t, store.Replace("a", []byte("same"), first))[0]
		if first == second {
			t.Fatalf("two versions have the ETag %q", first)
		}
		wantOpError(t, f.reject(t, store.Replace("a", nil, first)), store.ErrPrecondition, 0, "a")
	}},
	{"ETagOfAReinsertedRowIsNew", func(t *testing.T, f fixture) {
		first := f.apply(t, store.Insert("a", []byte("same")))[0]
		f.apply(t, store.Delete("a", first))
		f.apply(t, store.Insert("a", []byte("same")))
		wantOpError(t, f.reject(t, store.Replace("a", []byte("late"), first)), store.ErrPrecondition, 0, "a")
		f.wantRow(t, "a", []byte("same"))
	}},
	{"DeleteWithCurrentETagRemoves", func(t *testing.T, f fixture) {
		etag := f.apply(t, store.Insert("a", []byte("one")))[0]
		f.apply(t, store.Delete("a", etag))
		f.wantNoRow(t, "a")
	}},
	{"DeleteWithoutETagRemovesAnyVersion", func(t *testing.T, f fixture) {
		etag := f.apply(t, store.Insert("a", []byte("one")))[0]
		f.apply(t, store.Replace("a", []byte("two"), etag))
		f.apply(t, store.Delete("a", ""))
		f.wantNoRow(t, "a")
	}},
	{"DeleteWithStaleETagIsPrecondition", func(t *testing.T, f fixture) {
		etag := f.apply(t, store.Insert("a", []byte("one")))[0]
		f.apply(t, store.Replace("a", []byte("two"), etag))
		wantOpError(t, f.reject(t, store.Delete("a", etag)), store.ErrPrecondition, 0, "a")
		f.wantRow(t, "a", []byte("two"))
	}},
	{"DeleteOfMissingRowIsNotFound", func(t *testing.T, f fixture) {
		wantOpError(t, f.reject(t, store.Delete("a", "")), store.ErrNotFound, 0, "a")
	}},
	{"DeleteOfMissingRowWithETagIsPrecondition", func(t *testing.T, f fixture) {
		etag := f.apply(t, store.Insert("a", nil))[0]
		f.apply(t, store.Delete("a", etag))
		wantOpError(t, f.reject(t, store.Delete("a", etag)), store.ErrPrecondition, 0, "a")
	}},
	{"AllByteValuesSurvive", func(t *testing.T, f fixture) {
		data := make([]byte, 256)
		for i := range data {
			data[i] = byte(i)
		}
		f.apply(t, store.Insert("a", data))
		f.wantRow(t, "a", data)
		f.apply(t, store.Insert("high", bytes.Repeat([]byte{0x00, 0xFF, 0x80, 0x0A}, 99)))
		f.wantRow(t, "high", bytes.Repeat([]byte{0x00, 0xFF, 0x80, 0x0A}, 99))
	}},
	{"DataIsCopiedBothWays", copied},
	{"AwkwardKeysAreDistinct", awkwardKeys},
	{"ForbiddenKeysAreInvalid", forbiddenKeys},
	{"PartitionsAreIsolated", isolated},
	{"EndedContextHasNoEffect", endedContext},
}

func replaceChain(t *testing.T, f fixture) {
	etag := f.apply(t, store.Insert("a", []byte("0")))[0]
	seen := []store.ETag{etag}
	for i := 1; i <= 10; i++ {
		data := fmt.Append(nil, i)
		next := f.apply(t, store.Replace("a", data, etag))[0]
		if slices.Contains(seen, next) {
			t.Fatalf("ETag %q was used before", next)
		}
		if got := f.wantRow(t, "a", data); got != next {
			t.Fatalf("get returned ETag %q, replace %q", got, next)
		}
		seen, etag = append(seen, next), next
	}
}

func copied(t *testing.T, f fixture) {
	given := []byte("given")
	f.apply(t, store.Insert("a", given))
	given[0] = 'X'
	row, err := f.table.Get(t.Context(), f.part, "a")
	if err != nil {
		t.Fatal(err)
	}
	row.Data[1] = 'X'
	page, err := f.table.Range(t.Context(), f.part, store.RangeQuery{})
	if err != nil || len(page.Rows) != 1 {
		t.Fatalf("range returned %d rows, error %v", len(page.Rows), err)
	}
	page.Rows[0].Data[2] = 'X'
	f.wantRow(t, "a", []byte("given"))
}

// awkward are allowed keys that a careless provider folds, trims, parses or
// sorts wrongly; in bytewise order.
var awkward = []string{
	"-", "--", "-1", ".", "..", "...", "0", "00", "0000000000000000001", "007", "1", "10", "1e5", "2", "9", "A", "AA", "Aa",
	"NULL", "Z", "_", "__", "a", "a-", "a.", "a..b", "a.0", "aA", "a_", "aa", "a~", "null", "true", "z", "z~", "~", "~0", "~head", "~~",
}

func awkwardKeys(t *testing.T, f fixture) {
	if !slices.IsSorted(awkward) {
		t.Fatal("the list of keys is not in bytewise order")
	}
	long := strings.Repeat("k", store.MaxKeyBytes)
	ops := []store.Op{store.Insert(long, []byte(long))}
	for _, key := range awkward {
		ops = append(ops, store.Insert(key, []byte(key)))
	}
	f.apply(t, ops...)
	for _, op := range ops {
		f.wantRow(t, op.Key, op.Data)
	}
	for _, key := range []string{"AAA", "Null", "TRUE", "0001", "~HEAD", "a.1"} {
		f.wantNoRow(t, key)
	}
}

func forbiddenKeys(t *testing.T, f fixture) {
	bad := []string{"", "a b", "a/b", `a\b`, "a#b", "a?b", "a%b", "a'b", `a"b`, "a+b", "a!", "a:b", "a\x00", "a\n", "a\x7f", "é", "a\xff",
		strings.Repeat("k", store.MaxKeyBytes+1)}
	for _, key := range bad {
		wantError(t, f.reject(t, store.Insert(key, nil)), store.ErrInvalid)
		_, err := f.table.Get(t.Context(), f.part, key)
		wantError(t, err, store.ErrInvalid)
		_, err = f.table.Get(t.Context(), key, "a")
		wantError(t, err, store.ErrInvalid)
		_, err = f.table.Range(t.Context(), key, store.RangeQuery{})
		wantError(t, err, store.ErrInvalid)
		_, err = f.table.Apply(t.Context(), key, []store.Op{store.Insert("a", nil)})
		wantError(t, err, store.ErrInvalid)
	}
	if rows := f.all(t, store.RangeQuery{}); len(rows) != 0 {
		t.Fatalf("%d rows were written", len(rows))
	}
}

func isolated(t *testing.T, f fixture) {
	other := f
	other.part = f.part + "0"
	longer := f
	longer.part = f.part + "~"
	for i, each := range []fixture{f, other, longer} {
		each.apply(t, store.Insert("same", []byte{byte(i)}), store.Insert(fmt.Sprintf("own%d", i), nil))
	}
	for i, each := range []fixture{f, other, longer} {
		each.wantRow(t, "same", []byte{byte(i)})
		each.wantKeys(t, store.RangeQuery{}, []string{fmt.Sprintf("own%d", i), "same"})
	}
	other.apply(t, store.Delete("same", ""))
	f.wantRow(t, "same", []byte{0})
	longer.wantRow(t, "same", []byte{2})
}

func endedContext(t *testing.T, f fixture) {
	etag := f.apply(t, store.Insert("a", []byte("one")))[0]
	ctx := cancelled(t)
	_, err := f.table.Get(ctx, f.part, "a")
	wantEnded(t, err)
	_, err = f.table.Range(ctx, f.part, store.RangeQuery{})
	wantEnded(t, err)
	_, err = f.table.Apply(ctx, f.part, []store.Op{store.Replace("a", []byte("two"), etag)})
	wantEnded(t, err)
	f.wantRow(t, "a", []byte("one"))
}

func wantEnded(t *testing.T, err error) {
	t.Helper()
	wantError(t, err, store.ErrUnavailable)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v hides that the context was cancelled", err)
	}
}
