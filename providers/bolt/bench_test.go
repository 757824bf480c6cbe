package bolt_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/bolt"
)

// BenchmarkInsert measures durable inserts of one row by callers that share
// syncs of the disk.
func BenchmarkInsert(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			table, data := open(b, b.TempDir(), bolt.Options{}).Table(), make([]byte, 100)
			var n atomic.Uint64
			b.SetParallelism(callers / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := fmt.Sprintf("%012d", n.Add(1))
					if _, err := table.Apply(b.Context(), "p", []store.Op{store.Insert(key, data)}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkGet measures reads of one row.
func BenchmarkGet(b *testing.B) {
	table := open(b, b.TempDir(), bolt.Options{NoSync: true}).Table()
	if _, err := table.Apply(b.Context(), "p", []store.Op{store.Insert("a", make([]byte, 100))}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Get(b.Context(), "p", "a"); err != nil {
			b.Fatal(err)
		}
	}
}
