package metered_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/providers/metered"
)

func wrapped() *metered.Store {
	inner := memory.New(memory.Options{})
	return metered.New(inner.Table(), inner.Blobs())
}

func TestConformance(t *testing.T) {
	storetest.RunTable(t, func(*testing.T) store.Table { return wrapped().Table() })
	storetest.RunBlobs(t, func(*testing.T) store.BlobStore { return wrapped().Blobs() })
}

// TestEachCallIsCounted runs one step after the other and demands exactly the
// counters that the step moves.
func TestEachCallIsCounted(t *testing.T) {
	s := wrapped()
	table, blobs := s.Table(), s.Blobs()
	steps := []struct {
		name string
		run  func(ctx context.Context)
		want metered.Snapshot
	}{
		{"apply", func(ctx context.Context) {
			_, _ = table.Apply(ctx, "p", []store.Op{store.Insert("a", make([]byte, 10)), store.Insert("b", make([]byte, 5))})
		}, metered.Snapshot{Applies: 1, Entities: 2, TableBytesWritten: 15}},
		{"conflict", func(ctx context.Context) {
			_, _ = table.Apply(ctx, "p", []store.Op{store.Insert("a", nil)})
		}, metered.Snapshot{Applies: 1, Entities: 1, Conflicts: 1}},
		{"get", func(ctx context.Context) { _, _ = table.Get(ctx, "p", "a") },
			metered.Snapshot{Gets: 1, RowsRead: 1, TableBytesRead: 10}},
		{"get of nothing", func(ctx context.Context) { _, _ = table.Get(ctx, "p", "c") }, metered.Snapshot{Gets: 1}},
		{"invalid get", func(ctx context.Context) { _, _ = table.Get(ctx, "p", "") }, metered.Snapshot{Gets: 1, Failures: 1}},
		{"range", func(ctx context.Context) { _, _ = table.Range(ctx, "p", store.RangeQuery{}) },
			metered.Snapshot{Ranges: 1, RowsRead: 2, TableBytesRead: 15}},
		{"blob put", func(ctx context.Context) { _, _ = blobs.Put(ctx, "x", make([]byte, 7), store.Create) },
			metered.Snapshot{BlobPuts: 1, BlobBytesWritten: 7}},
		{"blob get", func(ctx context.Context) { _, _, _ = blobs.Get(ctx, "x") }, metered.Snapshot{BlobGets: 1, BlobBytesRead: 7}},
		{"blob range", func(ctx context.Context) { _, _, _ = blobs.GetRange(ctx, "x", 5, 9) },
			metered.Snapshot{BlobRanges: 1, BlobBytesRead: 2}},
		{"blob list", func(ctx context.Context) { _, _ = blobs.List(ctx, "", "") }, metered.Snapshot{BlobLists: 1}},
		{"blob delete", func(ctx context.Context) { _ = blobs.Delete(ctx, "x") }, metered.Snapshot{BlobDeletes: 1}},
	}
	var total metered.Snapshot
	for _, step := range steps {
		before := s.Snapshot()
		step.run(t.Context())
		if got := s.Snapshot().Sub(before); got != step.want {
			t.Errorf("%s counted %+v, want %+v", step.name, got, step.want)
		}
		total = s.Snapshot()
	}
	if total.Calls() != int64(len(steps)) || total.TableCalls() != 6 || total.BlobCalls() != 5 || total.BytesWritten() != 22 {
		t.Errorf("totals are %d calls, %d and %d, %d bytes", total.Calls(), total.TableCalls(), total.BlobCalls(), total.BytesWritten())
	}
}

// TestSubCoversEveryCounter fails when a counter is added and Sub forgotten.
func TestSubCoversEveryCounter(t *testing.T) {
	var s metered.Snapshot
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(i + 1))
	}
	if got := s.Sub(metered.Snapshot{}); got != s {
		t.Errorf("Sub of nothing is %+v, want %+v", got, s)
	}
	if got := s.Sub(s); got != (metered.Snapshot{}) {
		t.Errorf("Sub of itself is %+v", got)
	}
}
