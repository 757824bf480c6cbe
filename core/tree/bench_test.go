package tree

import (
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/options"
)

// BenchmarkGetOfCheckpoint reads keys that are in leaves, decoded and cached.
func BenchmarkGetOfCheckpoint(b *testing.B) {
	h := benchTree(b)
	keys := make([]string, 100_000)
	ops := make([]BatchOp, len(keys))
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
		ops[i] = BatchOp{Key: keys[i], Value: make([]byte, 100)}
	}
	for part := range 100 {
		_, err := h.Batch(b.Context(), ops[part*1000:(part+1)*1000])
		must(b, err)
	}
	_, err := h.db.Checkpoint(b.Context(), 0)
	must(b, err)
	for i := 0; b.Loop(); i++ {
		if _, ok, err := h.Get(b.Context(), keys[i*7919%len(keys)], ReadOptions{}); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

// BenchmarkPutWithoutLeases is BenchmarkPut as a host of many instances has it.
func BenchmarkPutWithoutLeases(b *testing.B) {
	h := benchTree(b, func(o *options.Options) { o.Leases = false })
	value := make([]byte, 100)
	for i := 0; b.Loop(); i++ {
		if _, err := h.Put(b.Context(), "key", value, PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
