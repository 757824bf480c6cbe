package clock

import (
	"math/rand/v2"
	"sync"
)

// Seeded is a Source with the time of another Source and repeatable random
// numbers.
type Seeded struct {
	Source

	mu  sync.Mutex
	rng *rand.PCG
}

// NewSeeded returns a Seeded over src. Equal seeds give equal numbers, in the
// order in which they are drawn.
func NewSeeded(src Source, seed uint64) *Seeded {
	return &Seeded{Source: src, rng: rand.NewPCG(seed, 0)}
}

// Uint64 implements Source.
func (s *Seeded) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Uint64()
}
