package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

// BenchmarkAppend measures the transaction of a put: one new row, and the head
// replaced.
func BenchmarkAppend(b *testing.B) {
	table, data := memory.New(memory.Options{}).Table(), make([]byte, 200)
	etags, err := table.Apply(context.Background(), "shard", []store.Op{store.Insert("~head", data)})
	if err != nil {
		b.Fatal(err)
	}
	head := etags[0]
	key := []byte("0000000000000000")
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		for i, v := len(key)-1, n; v > 0; i, v = i-1, v/10 {
			key[i] = '0' + byte(v%10)
		}
		ops := [2]store.Op{store.Insert(string(key), data), store.Replace("~head", data, head)}
		etags, err := table.Apply(context.Background(), "shard", ops[:])
		if err != nil {
			b.Fatal(err)
		}
		head = etags[1]
	}
}

// BenchmarkCheck measures the query of a strong read: head, and nothing new.
func BenchmarkCheck(b *testing.B) {
	table := memory.New(memory.Options{}).Table()
	for i := range 1000 {
		if _, err := table.Apply(context.Background(), "shard", []store.Op{store.Insert(fmt.Sprintf("%016d", i), nil)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		page, err := table.Range(context.Background(), "shard", store.RangeQuery{From: "0000000000000998!"})
		if err != nil || len(page.Rows) != 1 {
			b.Fatal(len(page.Rows), err)
		}
	}
}
