package tree

import (
	"context"
	"io"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/providers/memory"
)

// countedSource makes entries of 100 bytes with keys of 16 digits, ascending or
// in an order of its own, without an allocation for each.
type countedSource struct {
	n, next int
	mixed   bool
	key     [16]byte
	value   [100]byte
}

func (s *countedSource) Next(_ context.Context, e *BulkEntry) error {
	if s.next == s.n {
		return io.EOF
	}
	i := s.next
	if s.mixed {
		i = int(int64(s.next) * 7_368_787 % int64(s.n)) // a prime: each number once
	}
	s.next++
	x := uint64(i)*0x9e3779b97f4a7c15 + 1
	for d := len(s.key) - 1; d >= 0; d-- {
		s.key[d] = byte('0' + i%10)
		i /= 10
	}
	for b := range s.value {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		s.value[b] = byte(x)
	}
	*e = BulkEntry{Key: string(s.key[:]), Value: s.value[:]}
	return nil
}

// BenchmarkBulkLoad loads a million entries of 100 bytes that do not compress.
func BenchmarkBulkLoad(b *testing.B) {
	const n = 1_000_000
	load := func(b *testing.B, mixed bool, f func(*Tree, BulkSource) (BulkResult, error)) {
		b.ReportAllocs()
		for b.Loop() {
			m := memory.New(memory.Options{})
			h := open(b, m.Table(), m.Blobs(), func(*options.Options) {}).writer(b, "t")
			res, err := f(h, &countedSource{n: n, mixed: mixed})
			if err != nil || res.Accepted != n || res.TotalLiveKeys != n {
				b.Fatal(res, err)
			}
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	}
	oneShot := func(h *Tree, src BulkSource) (BulkResult, error) {
		return h.BulkLoad(b.Context(), src, BulkOptions{})
	}
	b.Run("one-shot", func(b *testing.B) { load(b, true, oneShot) })
	b.Run("one-shot in order", func(b *testing.B) { load(b, false, oneShot) })
	b.Run("stream", func(b *testing.B) {
		load(b, false, func(h *Tree, src BulkSource) (BulkResult, error) {
			return h.BulkStream(b.Context(), src, BulkOptions{})
		})
	})
}
