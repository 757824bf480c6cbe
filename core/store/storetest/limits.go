package storetest

import (
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// limitCases are about sizes: what the contract allows must work, one more
// must be refused without effect.
var limitCases = []tableCase{
	{"RowsOfEverySizeSurvive", rowSizes},
	{"RowOverTheLimitIsTooLarge", func(t *testing.T, f fixture) {
		over := make([]byte, store.MaxRowBytes+1)
		wantError(t, f.reject(t, store.Insert("a", over)), store.ErrTooLarge)
		f.wantNoRow(t, "a")
		etag := f.apply(t, store.Insert("a", []byte("one")))[0]
		wantError(t, f.reject(t, store.Replace("a", over, etag)), store.ErrTooLarge)
		f.wantRow(t, "a", []byte("one"))
	}},
	{"FullTransactionSucceeds", fullTransaction},
	{"TransactionOfTooManyOperationsIsTooLarge", func(t *testing.T, f fixture) {
		wantError(t, f.reject(t, inserts(store.MaxTransactionOps+1, 1)...), store.ErrTooLarge)
		f.wantKeys(t, store.RangeQuery{}, nil)
	}},
	{"EmptyTransactionIsTooLarge", func(t *testing.T, f fixture) {
		wantError(t, f.reject(t), store.ErrTooLarge)
	}},
	{"HeaviestTransactionSucceeds", heaviestTransaction},
	{"HeaviestTransactionOfManyRowsSucceeds", func(t *testing.T, f fixture) {
		each := store.MaxTransactionBytes / store.MaxTransactionOps
		ops := inserts(store.MaxTransactionOps, each)
		f.apply(t, ops...)
		for _, i := range []int{0, len(ops) / 2, len(ops) - 1} {
			f.wantRow(t, ops[i].Key, ops[i].Data)
		}
	}},
	{"TransactionOverTheBytesIsTooLarge", func(t *testing.T, f fixture) {
		ops := inserts(4, store.MaxTransactionBytes/4)
		ops = append(ops, store.Insert("more", []byte{1}))
		wantError(t, f.reject(t, ops...), store.ErrTooLarge)
		f.wantKeys(t, store.RangeQuery{}, nil)
	}},
	{"SameRowTwiceIsInvalid", func(t *testing.T, f fixture) {
		wantError(t, f.reject(t, store.Insert("a", nil), store.Insert("b", nil), store.Insert("a", nil)), store.ErrInvalid)
		f.wantKeys(t, store.RangeQuery{}, nil)
		etag := f.apply(t, store.Insert("a", []byte("one")))[0]
		wantError(t, f.reject(t, store.Delete("a", etag), store.Insert("a", []byte("two"))), store.ErrInvalid)
		f.wantRow(t, "a", []byte("one"))
	}},
	{"ReplaceWithoutETagIsInvalid", func(t *testing.T, f fixture) {
		wantError(t, f.reject(t, store.Replace("a", []byte("two"), "")), store.ErrInvalid)
		f.wantNoRow(t, "a")
		f.apply(t, store.Insert("a", []byte("one")))
		wantError(t, f.reject(t, store.Replace("a", []byte("two"), "")), store.ErrInvalid)
		f.wantRow(t, "a", []byte("one"))
	}},
	{"UnknownOperationIsInvalid", func(t *testing.T, f fixture) {
		wantError(t, f.reject(t, store.Op{Key: "a"}), store.ErrInvalid)
		wantError(t, f.reject(t, store.Op{Kind: 99, Key: "a"}), store.ErrInvalid)
		f.wantNoRow(t, "a")
	}},
}

// rowSizes crosses the sizes at which providers cut a payload into pieces.
func rowSizes(t *testing.T, f fixture) {
	sizes := []int{0, 1, 2, 255, 256, 4095, 4096, 63_999, 64_000, 64_001, 65_535, 65_536, 128_000, 128_001,
		640_000, 704_000, store.MaxRowBytes - 1, store.MaxRowBytes}
	for i, size := range sizes {
		key := fmt.Sprintf("row%02d", i)
		etag := f.apply(t, store.Insert(key, pattern(size, 1)))[0]
		f.wantRow(t, key, pattern(size, 1))
		// The other way round too, so that a row shrinks and grows in place.
		other := sizes[len(sizes)-1-i]
		f.apply(t, store.Replace(key, pattern(other, 2), etag))
		f.wantRow(t, key, pattern(other, 2))
	}
	rows := f.all(t, store.RangeQuery{})
	for i, row := range rows {
		if want := sizes[len(sizes)-1-i]; len(row.Data) != want {
			t.Fatalf("range returned row %q with %d bytes, want %d", row.Key, len(row.Data), want)
		}
	}
}

func fullTransaction(t *testing.T, f fixture) {
	ops := inserts(store.MaxTransactionOps, 10)
	etags := f.apply(t, ops...)
	next := make([]store.Op, len(ops))
	for i, op := range ops {
		if got := f.wantRow(t, op.Key, op.Data); got != etags[i] {
			t.Fatalf("row %d has ETag %q, apply returned %q", i, got, etags[i])
		}
		next[i] = store.Replace(op.Key, fmt.Append(nil, "second", i), etags[i])
	}
	f.apply(t, next...)
	for i := range next {
		f.wantRow(t, next[i].Key, next[i].Data)
		next[i] = store.Delete(next[i].Key, "")
	}
	f.apply(t, next...)
	f.wantKeys(t, store.RangeQuery{}, nil)
}

func heaviestTransaction(t *testing.T, f fixture) {
	var ops []store.Op
	for left := store.MaxTransactionBytes; left > 0; {
		size := min(left, store.MaxRowBytes)
		ops = append(ops, store.Insert(fmt.Sprintf("row%d", len(ops)), pattern(size, byte(len(ops)))))
		left -= size
	}
	f.apply(t, ops...)
	for _, op := range ops {
		f.wantRow(t, op.Key, op.Data)
	}
}

// inserts returns n inserts of size bytes each, in key order.
func inserts(n, size int) []store.Op {
	ops := make([]store.Op, n)
	for i := range ops {
		ops[i] = store.Insert(rowKey(i), pattern(size, byte(i)))
	}
	return ops
}

func rowKey(i int) string { return fmt.Sprintf("%010d", i) }
