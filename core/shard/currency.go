package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// checkGroup shares proofs of currency among readers: a proof serves everybody
// who came before it began. One is under way at a time; who comes meanwhile
// waits for the next, together.
type checkGroup struct {
	mu      sync.Mutex
	running bool
	next    *check
}

// check is one proof and those who wait for it.
type check struct {
	done chan struct{}
	lead chan struct{} // holds one token once the check may begin
	err  error
}

// join returns the check that will begin after now, and whether the caller
// must begin it at once.
func (g *checkGroup) join() (c *check, lead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &check{done: make(chan struct{}), lead: make(chan struct{}, 1)}
	}
	c = g.next
	if !g.running {
		g.running = true
		g.next = nil
		return c, true
	}
	return c, false
}

// begin closes the check to newcomers.
func (g *checkGroup) begin(c *check) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == c {
		g.next = nil
	}
}

// finish publishes the outcome and lets the next check begin.
func (g *checkGroup) finish(c *check, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.err = err
	close(c.done)
	if g.next != nil {
		g.next.lead <- struct{}{}
		return
	}
	g.running = false
}

// do waits for a proof that began after the call. The one who runs it does so
// for all, whatever becomes of its own context.
func (g *checkGroup) do(ctx context.Context, limit time.Duration, prove func(context.Context) error) error {
	c, lead := g.join()
	if !lead {
		select {
		case <-c.done:
			return c.err
		case <-c.lead:
			g.begin(c)
		case <-ctx.Done():
			return fmt.Errorf("waiting for a check: %w: %w", store.ErrUnavailable, context.Cause(ctx))
		}
	}
	shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := prove(shared)
	g.finish(c, err)
	return err
}

// current returns once memory is as current as the options demand: under the
// lease or an accepted age at once, else after a check shared with other
// readers. touches says whether an append under way concerns the reader.
func (s *Shard) current(ctx context.Context, o ReadOptions, touches func(*plan) bool) error {
	now := s.cfg.Clock.Now()
	s.mu.RLock()
	held, due, young := false, false, false
	if st := s.st; st != nil {
		held = st.reliable(now)
		due = held && st.lease.due(now)
		young = o.MaxAge > 0 && age(st.proven, now) <= o.MaxAge
	}
	s.mu.RUnlock()
	if young {
		return nil
	}
	if held && !due {
		if err := s.settle(ctx, touches); err != nil {
			return err
		}
		if s.leased() {
			return nil
		}
	}
	return s.checks.do(ctx, s.cfg.CommitTimeout, s.prove)
}

// reliable reports whether memory is what the log says, by virtue of the lease.
// After an append of unknown outcome it is not, until the head has moved.
func (st *state) reliable(now clock.Instant) bool {
	return st.lease.valid(now) && (st.suspect == "" || st.suspect != st.etag)
}

// age is how long ago an instant was, by whichever clock says longer.
func age(then, now clock.Instant) time.Duration {
	return max(now.Mono-then.Mono, time.Duration(now.Wall-then.Wall))
}

// prove shows that the state is current: by opening the shard, by taking or
// renewing the lease, or by asking the log.
func (s *Shard) prove(ctx context.Context) error {
	start := s.cfg.Clock.Now()
	if !s.opened() {
		if err := s.retry(ctx, func() error { return s.open(ctx) }); err != nil {
			return err
		}
		if s.provenSince(start) {
			return nil
		}
		// Somebody else had begun to open the shard before.
	}
	s.mu.RLock()
	take := s.wantsLease(&s.st.head, s.cfg.Clock.Now())
	s.mu.RUnlock()
	if take {
		p := &pending{control: &control{note: "lease", hasty: true, apply: keepHead}}
		err := s.submit(ctx, p)
		if err == nil || !errors.Is(err, errLeaseHeld) {
			return err
		}
	}
	return s.retry(ctx, func() error { return s.catchUp(ctx) })
}

// provenSince reports whether the state was shown to be current at the given
// moment or later.
func (s *Shard) provenSince(start clock.Instant) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st != nil && s.st.proven.Mono >= start.Mono
}

// keepHead is a control change that leaves it to the lease.
func keepHead(*Head, clock.Instant) error { return nil }

// leased reports whether memory may answer strong reads now.
func (s *Shard) leased() bool {
	now := s.cfg.Clock.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st != nil && s.st.reliable(now)
}

// settle waits, under a lease, for the append under way if it touches what is
// read: whoever asks the log may see it already, so memory must not answer
// without it. An append that stays undecided makes memory unreliable.
func (s *Shard) settle(ctx context.Context, touches func(*plan) bool) error {
	idle := s.awaits(touches)
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for an append: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
}

// awaits returns a channel that is closed when the append under way ends, nil if
// there is none that touches what is read.
func (s *Shard) awaits(touches func(*plan) bool) chan struct{} {
	s.mu.RLock()
	st := s.st
	concerned := st != nil && st.inflight != nil && touches(st.inflight)
	s.mu.RUnlock()
	if !concerned {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st == nil || s.st.inflight == nil {
		return nil
	}
	if s.st.idle == nil {
		s.st.idle = make(chan struct{})
	}
	return s.st.idle
}
