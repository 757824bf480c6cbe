package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// outcome is what became of an append.
type outcome uint8

const (
	outcomeLanded outcome = iota + 1 // it is in the log
	outcomeLost                      // it is not, and can never be: judge again
)

// commit takes a group to its outcome: it judges on top of the state it knows,
// appends, and starts over when another instance was faster. Every member's
// err and results are set when it returns. It returns what was appended.
func (s *Shard) commit(ctx context.Context, group []*pending) []*plan {
	b := s.newBackoff()
	for lost := 0; ; {
		p, v, err := s.attempt(ctx, group)
		if v == verdictDone && err == nil {
			return p
		}
		switch {
		case v == verdictAgain && err == nil:
			if lost++; s.yield(ctx, &b, lost) == nil {
				continue
			}
			err = fmt.Errorf("too many writers: %w", store.ErrUnavailable)
		case errors.Is(err, errLeaseHeld):
			if slices.ContainsFunc(group, (*pending).hasty) {
				if len(group) > 1 {
					return s.commitSingly(ctx, group) // the others have time
				}
				break
			}
			if err = s.awaitHandoff(ctx, &b); err == nil {
				continue
			}
		case v == verdictFinal:
		case store.Transient(err):
			if b.wait(ctx, store.RetryAfter(err)) == nil {
				continue
			}
		case len(group) > 1:
			return s.commitSingly(ctx, group)
		}
		fail(group, err)
		return nil
	}
}

// yield prepares another attempt after a lost race. The state is fresh after the
// first loss, and the attempt is made at once. After more of them it gives way
// for a while, and then reads up again: to judge on what is known from before
// the wait would be to lose once more.
func (s *Shard) yield(ctx context.Context, b *backoff, lost int) error {
	if lost == 1 {
		return context.Cause(ctx)
	}
	if err := b.wait(ctx, 0); err != nil {
		return err
	}
	// If this fails the attempt will say so.
	_ = s.catchUp(ctx)
	return nil
}

// verdict is what an attempt came to.
type verdict uint8

const (
	verdictDone  verdict = iota // the group has its outcome, or the error came before anything was sent
	verdictAgain                // another instance was faster
	verdictFinal                // something was sent and the error is the outcome
)

// retryable reports whether a failed operation, known not to have been applied
// or harmless if it was, is worth another try.
func retryable(err error) bool {
	return store.Transient(err) || errors.Is(err, store.ErrOutcomeUnknown)
}

// fail gives every member of a group the same error.
func fail(group []*pending, err error) {
	for _, m := range group {
		if m.err == nil {
			m.err = err
		}
	}
}

// commitSingly keeps the fault of one member, an unreadable leaf say, from the
// others.
func (s *Shard) commitSingly(ctx context.Context, group []*pending) (landed []*plan) {
	for _, m := range group {
		m.err = nil
		landed = append(landed, s.commit(ctx, []*pending{m})...)
	}
	return landed
}

// attempt judges and appends once, and returns what it appended. Unless the
// verdict is final, an error means that nothing was.
func (s *Shard) attempt(ctx context.Context, group []*pending) ([]*plan, verdict, error) {
	if err := s.open(ctx); err != nil {
		return nil, verdictDone, err
	}
	p, err := s.judge(ctx, group)
	p.serves = group
	if errors.Is(err, store.ErrNotFound) {
		return nil, verdictAgain, s.reopen(ctx, p.from, err)
	}
	if err != nil {
		return nil, verdictDone, err
	}
	if p.empty() {
		current, err := s.provedSince(ctx, p)
		if err == nil && !current {
			return nil, verdictAgain, nil
		}
		return nil, verdictDone, err
	}
	out, err := s.send(ctx, p)
	switch {
	case err != nil:
		return nil, verdictFinal, err
	case out == outcomeLost:
		return nil, verdictAgain, nil
	}
	s.reads.Add(-p.reads)
	return []*plan{p}, verdictDone, nil
}

// provedSince shows, for a plan that appends nothing, that the state it was
// judged on was current after the requests came in.
func (s *Shard) provedSince(ctx context.Context, p *plan) (bool, error) {
	if s.leased() {
		return s.unchanged(p), nil
	}
	if err := s.catchUp(ctx); err != nil {
		return false, err
	}
	return s.unchanged(p), nil
}

// unchanged reports whether the head is still the one a plan started from.
func (s *Shard) unchanged(p *plan) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st != nil && s.st.etag == p.from
}

// deliver brings a plan to its outcome. While that is open, readers who rely on a
// lease wait for it if they read a key it touches: others may see it already.
func (s *Shard) deliver(ctx context.Context, p *plan) (outcome, error) {
	if !s.begin(p) {
		return outcomeLost, nil
	}
	defer s.end()
	b := s.newBackoff()
	unknown := false
	for {
		etags, err := s.cfg.Table.Apply(ctx, s.partition, p.ops)
		if err == nil {
			s.landed(p, etags[len(etags)-1])
			return outcomeLanded, nil
		}
		if !store.Transient(err) {
			if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrTooLarge) {
				return 0, err
			}
			unknown = true
			out, rerr := s.resolve(ctx, p, &b)
			if out != 0 || rerr != nil && !retryable(rerr) {
				return out, rerr
			}
			err = errors.Join(rerr, err)
		}
		if b.wait(ctx, store.RetryAfter(err)) != nil {
			return 0, s.undecided(p, unknown, err)
		}
	}
}

// resolve finds out what became of an append whose reply was lost, or that lost
// a race, perhaps against an earlier attempt of its own. It returns no outcome
// if the head has not moved: then the same append, byte for byte, may be sent
// again, and whichever attempt lands, the result is the same.
func (s *Shard) resolve(ctx context.Context, p *plan, b *backoff) (outcome, error) {
	for {
		gap, err := s.follow(ctx)
		if err == nil {
			return s.decide(p, gap)
		}
		if !retryable(err) || b.wait(ctx, store.RetryAfter(err)) != nil {
			return 0, err
		}
	}
}

// decide reads the outcome off a state that was brought up to date.
func (s *Shard) decide(p *plan, gap bool) (outcome, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.st.echoed == p.id:
		return outcomeLanded, nil
	case s.st.etag == p.from:
		return 0, nil
	case gap && age(p.now, s.cfg.Clock.Now()) > s.cfg.WalGracePeriod/2:
		// Rows are gone that were appended since; ours may be among them. Had
		// less time passed, ours would still be there.
		return outcomeLost, fmt.Errorf("the log was truncated meanwhile: %w", store.ErrOutcomeUnknown)
	default:
		return outcomeLost, nil
	}
}

// undecided ends an append whose time is up.
func (s *Shard) undecided(p *plan, unknown bool, cause error) error {
	if !unknown {
		return fmt.Errorf("append: %w", cause)
	}
	s.mu.Lock()
	if s.st != nil && s.st.etag == p.from {
		s.st.suspect = p.from
	}
	s.mu.Unlock()
	// %v: the cause is not a second category.
	return fmt.Errorf("append: %w: %v", store.ErrOutcomeUnknown, cause)
}

// begin announces an append, unless the state has moved since it was planned.
func (s *Shard) begin(p *plan) bool {
	if s.cfg.Leases {
		p.index()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st == nil || s.st.etag != p.from {
		return false
	}
	s.st.awaited, s.st.echoed = p.id, record.ID{}
	if p.head.Lease.Owner != s.owner {
		// Others may append as soon as this lands, which is before it is heard
		// of here: memory stops answering now.
		s.st.lease = localLease{}
	}
	s.st.inflight = p
	return true
}

// end lets those go on who waited for the append.
func (s *Shard) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st != nil && s.st.inflight != nil {
		s.st.inflight, s.st.awaited = nil, record.ID{}
		if s.st.idle != nil {
			close(s.st.idle)
			s.st.idle = nil
		}
	}
}

// landed takes a successful append into the state.
func (s *Shard) landed(p *plan, etag store.ETag) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.st
	if st == nil || st.etag != p.from {
		return // a reader that caught up was faster, and took the same rows
	}
	for i := range p.rows {
		st.absorb(&p.rows[i], p.sizes[i])
	}
	st.advance(p.head, etag)
	if p.base != nil {
		st.adopt(p.base)
	}
	st.lease = s.held(&p.head, p.now)
	st.prove(p.now)
}

// awaitHandoff asks the owner of the lease for the shard and waits until it has
// let go or the lease has run out. A busy owner is fast, and the request may lose
// its race to an append: so it is made, after reading up, until it stands.
func (s *Shard) awaitHandoff(ctx context.Context, b *backoff) error {
	for {
		if err := s.requestHandoff(ctx); err != nil && !retryable(err) {
			return err
		}
		if err := b.wait(ctx, 0); err != nil {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, errLeaseHeld)
		}
		if err := s.catchUp(ctx); err != nil && !retryable(err) {
			return err
		}
		if s.free() {
			return nil
		}
	}
}

// free reports whether no other lease bars the way.
func (s *Shard) free() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st == nil || !s.barred(&s.st.head.Lease, s.cfg.Clock.Now())
}

// requestHandoff puts this object's name down in the lease, unless somebody's
// stands there already.
func (s *Shard) requestHandoff(ctx context.Context) error {
	s.mu.RLock()
	st := s.st
	j := judge{s: s, head: st.head, plan: &plan{from: st.etag, fromSeq: st.head.Seq, now: s.cfg.Clock.Now()}}
	s.mu.RUnlock()
	if j.head.Lease.Handoff != 0 || !s.barred(&j.head.Lease, j.plan.now) {
		return nil
	}
	j.first = clock.Next(j.head.Clock, j.plan.now)
	s.markHandoff(&j.head)
	j.plan.records = []record.Record{{Kind: record.KindControl, Note: []byte("handoff")}}
	j.finish()
	_, err := s.send(ctx, j.plan)
	return err
}
