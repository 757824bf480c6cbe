package storetest

import (
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// transactionCases are about atomicity.
var transactionCases = []tableCase{
	{"MixedTransactionAppliesAll", func(t *testing.T, f fixture) {
		etags := f.apply(t, store.Insert("a", []byte("a1")), store.Insert("b", []byte("b1")), store.Insert("c", []byte("c1")))
		got := f.apply(t,
			store.Insert("d", []byte("d1")), store.Replace("a", []byte("a2"), etags[0]),
			store.Delete("b", etags[1]), store.Delete("c", ""))
		if f.wantRow(t, "d", []byte("d1")) != got[0] || f.wantRow(t, "a", []byte("a2")) != got[1] {
			t.Fatalf("the ETags %q are not those of the rows", got)
		}
		f.wantKeys(t, store.RangeQuery{}, []string{"a", "d"})
	}},
	{"FailedOperationAppliesNone", failedOperation},
	{"ETagsAreInTheOrderOfOperations", func(t *testing.T, f fixture) {
		// Against key order, so that a provider that sorts is found out.
		ops := []store.Op{store.Insert("z", nil), store.Insert("m", nil), store.Insert("a", nil)}
		etags := f.apply(t, ops...)
		for i, op := range ops {
			if got := f.wantRow(t, op.Key, nil); got != etags[i] {
				t.Fatalf("row %q has ETag %q, apply returned %q", op.Key, got, etags[i])
			}
		}
		f.apply(t, store.Replace("m", nil, etags[1]), store.Replace("a", nil, etags[2]), store.Replace("z", nil, etags[0]))
	}},
	{"AppendGuardedByHeadAppliesOnce", guardedAppend},
	{"RandomTransactionsMatchAModel", matchesModel},
}

// failedOperation puts one failing operation of each kind at each place of a
// transaction that would otherwise change everything.
func failedOperation(t *testing.T, f fixture) {
	etags := f.apply(t, store.Insert("keep", []byte("1")), store.Insert("drop", []byte("1")), store.Insert("moved", []byte("1")))
	f.apply(t, store.Replace("moved", []byte("2"), etags[2]))
	good := []store.Op{store.Insert("new", nil), store.Replace("keep", []byte("2"), etags[0]), store.Delete("drop", etags[1])}
	bad := []struct {
		name string
		op   store.Op
		want error
	}{
		{"insert over existing", store.Insert("moved", nil), store.ErrExists},
		{"stale replace", store.Replace("moved", nil, etags[2]), store.ErrPrecondition},
		{"replace of missing", store.Replace("missing", nil, etags[2]), store.ErrPrecondition},
		{"stale delete", store.Delete("moved", etags[2]), store.ErrPrecondition},
		{"delete of missing with ETag", store.Delete("missing", etags[2]), store.ErrPrecondition},
		{"delete of missing", store.Delete("missing", ""), store.ErrNotFound},
	}
	for _, b := range bad {
		for at := 0; at <= len(good); at++ {
			ops := append(append(append([]store.Op{}, good[:at]...), b.op), good[at:]...)
			wantOpError(t, f.reject(t, ops...), b.want, at, b.op.Key)
			f.wantKeys(t, store.RangeQuery{}, []string{"drop", "keep", "moved"})
			if f.wantRow(t, "keep", []byte("1")) != etags[0] || f.wantRow(t, "drop", []byte("1")) != etags[1] {
				t.Fatalf("%s at %d: a failed transaction changed an ETag", b.name, at)
			}
			f.wantRow(t, "moved", []byte("2"))
		}
	}
}

// guardedAppend is the transaction on which the log of a shard stands.
func guardedAppend(t *testing.T, f fixture) {
	head := f.apply(t, store.Insert("~head", []byte("0")))[0]
	for i := 1; i <= 20; i++ {
		row := store.Insert(rowKey(i), pattern(100, byte(i)))
		stale := head
		head = f.apply(t, row, store.Replace("~head", []byte(rowKey(i)), head))[1]
		// The same append again fails on the row, a later one on the head.
		wantOpError(t, f.reject(t, row, store.Replace("~head", nil, head)), store.ErrExists, 0, row.Key)
		late := store.Insert(rowKey(i+1), nil)
		wantOpError(t, f.reject(t, late, store.Replace("~head", nil, stale)), store.ErrPrecondition, 1, "~head")
	}
	rows := f.all(t, store.RangeQuery{From: rowKey(11)})
	if len(rows) != 11 || rows[10].Key != "~head" || rows[10].ETag != head {
		t.Fatalf("range from row 11 returned %d rows, want 10 and the head", len(rows))
	}
}
