package shard

import (
	"context"

	"github.com/latticekv/lattice/core/clock"
)

// LastClock returns the last hybrid time that the shard has given out or seen,
// as its log says now: a greater one is above every version it holds.
func (s *Shard) LastClock(ctx context.Context) (clock.HLC, error) {
	if err := s.refresh(ctx); err != nil {
		return 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st.head.Clock, nil
}
