package tree

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// shared keeps the outcome of a computation for a while, and lets concurrent
// callers share one. The zero value is ready for use.
type shared[T any] struct {
	mu sync.Mutex
	// last is the latest outcome, nil if there is none; at is when its
	// computation began.
	last *T
	at   clock.Instant
	// running is the computation that newcomers join, nil if there is none.
	running *computation[T]
}

// computation is one under way, or over.
type computation[T any] struct {
	done  chan struct{} // closed when the rest is set
	value *T
	err   error
	// abandoned says that the caller who computed gave up, for reasons that are
	// not those of the others.
	abandoned bool
}

// request is what a caller of shared.get wants.
type request[T any] struct {
	clock clock.Source
	// ttl is how old an outcome may be.
	ttl time.Duration
	// fits says whether an outcome is of use to the caller.
	fits func(*T) bool
	// compute makes an outcome, knowing the one before, which may be nil.
	compute func(ctx context.Context, before *T) (*T, error)
}

// get returns an outcome that began to be computed at most ttl ago, or was
// computed while the caller waited, or computes one. Nobody modifies what it
// returns.
func (s *shared[T]) get(ctx context.Context, r request[T]) (*T, error) {
	for {
		value, c, mine := s.join(r)
		if value != nil {
			return value, nil
		}
		if mine {
			return s.lead(ctx, c, r)
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another request's figures: %w: %w", store.ErrUnavailable, context.Cause(ctx))
		}
		if !c.abandoned && (c.err != nil || r.fits(c.value)) {
			return c.value, c.err
		}
	}
}

// join returns a fresh outcome, or else the computation that makes the next one,
// and whether that is for the caller to do.
func (s *shared[T]) join(r request[T]) (value *T, c *computation[T], mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && r.fits(s.last) && age(s.at, r.clock.Now()) < r.ttl {
		return s.last, nil, false
	}
	if s.running != nil {
		return nil, s.running, false
	}
	s.running = &computation[T]{done: make(chan struct{}), abandoned: true}
	return nil, s.running, true
}

// age is how long ago an instant was, by whichever clock says longer.
func age(then, now clock.Instant) time.Duration {
	return max(now.Mono-then.Mono, time.Duration(now.Wall-then.Wall))
}

// lead does a computation within the caller's own context. It counts as
// abandoned until it has an outcome that concerns the others.
func (s *shared[T]) lead(ctx context.Context, c *computation[T], r request[T]) (*T, error) {
	began := r.clock.Now()
	s.mu.Lock()
	before := s.last
	s.mu.Unlock()
	defer s.finish(c, began)
	c.value, c.err = r.compute(ctx, before)
	c.abandoned = c.err != nil && ctx.Err() != nil
	return c.value, c.err
}

// finish publishes an outcome, unless it was dropped meanwhile.
func (s *shared[T]) finish(c *computation[T], began clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == c {
		s.running = nil
		if c.err == nil && !c.abandoned {
			s.last, s.at = c.value, began
		}
	}
	close(c.done)
}

// drop forgets the outcome, and that of a computation under way: callers from
// now on get one that began after the call.
func (s *shared[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.running = nil, nil
}
