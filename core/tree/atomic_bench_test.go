package tree

import (
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/options"
)

// BenchmarkAtomicBatch is a batch of sixteen keys over four shards.
func BenchmarkAtomicBatch(b *testing.B) {
	in, _ := fresh(b, func(o *options.Options) { o.CheckpointTailRows, o.CheckpointTailBytes = 10_000, 64<<20 })
	tr := in.writer(b, "bench")
	var ops []BatchOp
	for i := range 16 {
		ops = append(ops, setOf(fmt.Sprintf("key-%02d", i), "a value of some length that is stored"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.AtomicBatch(b.Context(), ops, ""); err != nil {
			b.Fatal(err)
		}
	}
}
