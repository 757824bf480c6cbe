package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// rangeCases are about order, bounds and pages.
var rangeCases = []tableCase{
	{"RangeOfMissingPartitionIsEmpty", func(t *testing.T, f fixture) {
		page, err := f.table.Range(t.Context(), f.part, store.RangeQuery{})
		if err != nil || len(page.Rows) != 0 || page.More {
			t.Fatalf("got %d rows, more %v, error %v", len(page.Rows), page.More, err)
		}
	}},
	{"RangeOfEmptiedPartitionIsEmpty", func(t *testing.T, f fixture) {
		f.apply(t, store.Insert("a", nil))
		f.apply(t, store.Delete("a", ""))
		f.wantKeys(t, store.RangeQuery{}, nil)
		f.apply(t, store.Insert("b", nil))
		f.wantKeys(t, store.RangeQuery{}, []string{"b"})
	}},
	{"RangeIsInBytewiseOrder", func(t *testing.T, f fixture) {
		f.insertKeys(t, awkward)
		f.wantKeys(t, store.RangeQuery{}, awkward)
	}},
	{"RangeRespectsBounds", rangeBounds},
	{"RangeReturnsETagsAndData", func(t *testing.T, f fixture) {
		etags := f.apply(t, store.Insert("a", []byte("one")), store.Insert("b", pattern(70_000, 3)))
		rows := f.all(t, store.RangeQuery{})
		for i, want := range [][]byte{[]byte("one"), pattern(70_000, 3)} {
			if rows[i].ETag != etags[i] || !slices.Equal(rows[i].Data, want) {
				t.Fatalf("row %d is %q %s, want %q %s", i, rows[i].ETag, brief(rows[i].Data), etags[i], brief(want))
			}
		}
	}},
	{"PagesMeetWithoutGap", pagesMeet},
	{"RangeOver1001RowsHasTwoPages", func(t *testing.T, f fixture) {
		f.fill(t, store.MaxPageRows)
		f.wantPage(t, store.RangeQuery{}, store.MaxPageRows, false)
		f.wantPage(t, store.RangeQuery{Limit: store.MaxPageRows}, store.MaxPageRows, false)
		last := f.apply(t, store.Insert(rowKey(store.MaxPageRows), nil))
		page := f.wantPage(t, store.RangeQuery{}, store.MaxPageRows, true)
		rest := f.wantPage(t, store.RangeQuery{From: store.NextKey(page.Rows[store.MaxPageRows-1].Key)}, 1, false)
		if rest.Rows[0].ETag != last[0] {
			t.Fatalf("the last row has ETag %q, want %q", rest.Rows[0].ETag, last[0])
		}
		if rows := f.all(t, store.RangeQuery{}); len(rows) != store.MaxPageRows+1 {
			t.Fatalf("all pages together have %d rows", len(rows))
		}
	}},
	{"RangeOverHeavyRowsIsComplete", heavyRange},
	{"RangeWithBadLimitIsInvalid", func(t *testing.T, f fixture) {
		for _, limit := range []int{-1, store.MaxPageRows + 1} {
			_, err := f.table.Range(t.Context(), f.part, store.RangeQuery{Limit: limit})
			wantError(t, err, store.ErrInvalid)
		}
	}},
	{"RangeWithBadBoundIsInvalid", func(t *testing.T, f fixture) {
		for _, bound := range []string{"a b", "a'", "é", "a\x00", strings.Repeat("k", store.MaxKeyBytes+2)} {
			_, err := f.table.Range(t.Context(), f.part, store.RangeQuery{From: bound})
			wantError(t, err, store.ErrInvalid)
			_, err = f.table.Range(t.Context(), f.part, store.RangeQuery{To: bound})
			wantError(t, err, store.ErrInvalid)
		}
	}},
}

func rangeBounds(t *testing.T, f fixture) {
	f.insertKeys(t, []string{"b", "bb", "c", "d", "~"})
	for _, c := range []struct {
		q    store.RangeQuery
		want []string
	}{
		{store.RangeQuery{From: "b"}, []string{"b", "bb", "c", "d", "~"}},
		{store.RangeQuery{From: "b!"}, []string{"bb", "c", "d", "~"}},
		{store.RangeQuery{From: store.NextKey("bb")}, []string{"c", "d", "~"}},
		{store.RangeQuery{From: "a", To: "c"}, []string{"b", "bb"}},
		{store.RangeQuery{From: "c", To: "d"}, []string{"c"}},
		{store.RangeQuery{To: "b"}, nil},
		{store.RangeQuery{To: store.NextKey("b")}, []string{"b"}},
		{store.RangeQuery{From: "~"}, []string{"~"}},
		{store.RangeQuery{From: "~~"}, nil},
		{store.RangeQuery{From: "d", To: "d"}, nil},
		{store.RangeQuery{From: "d", To: "b"}, nil},
		{store.RangeQuery{From: "bc", To: "c"}, nil},
		{store.RangeQuery{From: strings.Repeat("~", store.MaxKeyBytes)}, nil},
	} {
		f.wantKeys(t, c.q, c.want)
	}
}

// pagesMeet reads with every page size, so that each boundary and the exactly
// full last page occur.
func pagesMeet(t *testing.T, f fixture) {
	const rows = 12
	f.fill(t, rows)
	for limit := 1; limit <= rows+1; limit++ {
		seen := 0
		for q := (store.RangeQuery{Limit: limit}); ; {
			page := f.wantPage(t, q, min(limit, rows-seen), rows-seen > limit)
			for _, row := range page.Rows {
				if row.Key != rowKey(seen) {
					t.Fatalf("limit %d: row %d is %q", limit, seen, row.Key)
				}
				seen++
			}
			if !page.More {
				break
			}
			q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
		}
		if seen != rows {
			t.Fatalf("limit %d: %d rows, want %d", limit, seen, rows)
		}
	}
}

// heavyRange reads more bytes than any service returns in one answer.
func heavyRange(t *testing.T, f fixture) {
	const rows, size = 12, 700_000
	for i := 0; i < rows; i += 3 {
		f.apply(t, store.Insert(rowKey(i), pattern(size, byte(i))), store.Insert(rowKey(i+1), pattern(size, byte(i+1))),
			store.Insert(rowKey(i+2), pattern(size, byte(i+2))))
	}
	got := f.all(t, store.RangeQuery{})
	if len(got) != rows {
		t.Fatalf("%d rows, want %d", len(got), rows)
	}
	for i, row := range got {
		if row.Key != rowKey(i) || !slices.Equal(row.Data, pattern(size, byte(i))) {
			t.Fatalf("row %d is %q with %s", i, row.Key, brief(row.Data))
		}
	}
}

// all reads every page of a range and checks order and progress.
func (f fixture) all(t *testing.T, q store.RangeQuery) []store.Row {
	t.Helper()
	var rows []store.Row
	for {
		page, err := f.table.Range(t.Context(), f.part, q)
		if err != nil {
			t.Fatalf("range %+v: %v", q, err)
		}
		for _, row := range page.Rows {
			if len(rows) > 0 && row.Key <= rows[len(rows)-1].Key {
				t.Fatalf("row %q comes after row %q", row.Key, rows[len(rows)-1].Key)
			}
			rows = append(rows, row)
		}
		if !page.More {
			return rows
		}
		if len(page.Rows) == 0 {
			t.Fatalf("range %+v: an empty page says that more follows", q)
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
}

func keysOf(rows []store.Row) []string {
	var keys []string
	for _, row := range rows {
		keys = append(keys, row.Key)
	}
	return keys
}

func (f fixture) wantKeys(t *testing.T, q store.RangeQuery, want []string) {
	t.Helper()
	if got := keysOf(f.all(t, q)); !slices.Equal(got, want) {
		t.Fatalf("range %+v has %q, want %q", q, got, want)
	}
}

// wantPage reads one page of small rows and demands its length. More may be
// set without need only if the page is full.
func (f fixture) wantPage(t *testing.T, q store.RangeQuery, rows int, more bool) store.Page {
	t.Helper()
	page, err := f.table.Range(t.Context(), f.part, q)
	if err != nil {
		t.Fatalf("range %+v: %v", q, err)
	}
	if len(page.Rows) != rows {
		t.Fatalf("range %+v has %d rows, want %d", q, len(page.Rows), rows)
	}
	if more && !page.More {
		t.Fatalf("range %+v of %d rows hides that more follow", q, rows)
	}
	if page.More && !more {
		f.wantEmptyAfter(t, page)
	}
	return page
}

// wantEmptyAfter demands that nothing follows a page: More says "may".
func (f fixture) wantEmptyAfter(t *testing.T, page store.Page) {
	t.Helper()
	if len(page.Rows) == 0 {
		t.Fatal("an empty page says that more follows")
	}
	next, err := f.table.Range(t.Context(), f.part, store.RangeQuery{From: store.NextKey(page.Rows[len(page.Rows)-1].Key)})
	if err != nil || len(next.Rows) != 0 || next.More {
		t.Fatalf("after the last page: %d rows, more %v, error %v", len(next.Rows), next.More, err)
	}
}

// insertKeys inserts rows in an order that is not that of their keys.
func (f fixture) insertKeys(t *testing.T, keys []string) {
	t.Helper()
	var ops []store.Op
	for i := range keys {
		ops = append(ops, store.Insert(keys[(i*7+3)%len(keys)], nil))
	}
	f.apply(t, ops...)
}

// fill inserts n small rows in full transactions.
func (f fixture) fill(t *testing.T, n int) {
	t.Helper()
	for ops := range slices.Chunk(inserts(n, 8), store.MaxTransactionOps) {
		f.apply(t, ops...)
	}
}
