package shard

import (
	"context"
	"errors"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// errLeaseHeld: another instance may append now, and this one must not.
var errLeaseHeld = errors.New("another instance holds the lease")

// localLease is this object's belief that it holds the shard's lease. It counts
// as lost as soon as either clock says so: the wall clock, since others read
// theirs, or the monotonic one, since the wall clock may have been set back.
type localLease struct {
	held     bool
	until    int64 // Unix milliseconds
	deadline time.Duration
	renew    time.Duration
}

// valid reports whether strong reads may be answered from memory.
func (l *localLease) valid(now clock.Instant) bool {
	return l.held && now.Milli() < l.until && now.Mono < l.deadline
}

// due reports whether a valid lease should be renewed.
func (l *localLease) due(now clock.Instant) bool { return now.Mono >= l.renew }

// checkLease refuses to append where another's lease bars the way.
func (s *Shard) checkLease(h *Head, now clock.Instant) error {
	if s.barred(&h.Lease, now) {
		return errLeaseHeld
	}
	return nil
}

// barred reports whether another owner's lease may still be alive.
func (s *Shard) barred(l *Lease, now clock.Instant) bool {
	return l.Owner != 0 && l.Owner != s.owner && !s.cfg.Exclusive &&
		now.Milli() <= l.Expiry+s.cfg.MaxClockSkew.Milliseconds()
}

// stampLease decides what an append does to the lease: hand it over if another
// instance asked, take or renew it if this one is to have leases, else clear
// away one that has expired.
//
// While a migration is open nobody holds the lease, neither of the source nor of
// the target: any instance may be the one to mirror to it or to carry the
// migration on, and sealed slots must not wait for a lease.
func (s *Shard) stampLease(h *Head, now clock.Instant) {
	l := &h.Lease
	switch {
	case l.Owner == s.owner && l.Handoff != 0:
		*l = Lease{Token: l.Token, Backoff: now.Milli() + s.cfg.LeaseContentionBackoff.Milliseconds()}
	case !s.cfg.Leases || s.retired.Load() || now.Milli() < l.Backoff || h.Meta().migrating():
		l.Owner, l.Expiry, l.Handoff = 0, 0, 0
	default:
		if l.Owner != s.owner {
			l.Token++
		}
		l.Owner, l.Handoff, l.Backoff = s.owner, 0, 0
		l.Expiry = now.Milli() + s.cfg.LeaseDuration.Milliseconds()
	}
}

// markHandoff asks the owner for the shard. Nothing else may be appended.
func (s *Shard) markHandoff(h *Head) { h.Lease.Handoff = s.owner }

// wantsLease reports whether a strong read should take or renew the lease
// rather than ask the log.
func (s *Shard) wantsLease(h *Head, now clock.Instant) bool {
	return s.cfg.Leases && !s.retired.Load() && !s.barred(&h.Lease, now) && now.Milli() >= h.Lease.Backoff &&
		!h.Meta().migrating()
}

// held returns the local view of the lease in a head that an append of ours
// made at now.
func (s *Shard) held(h *Head, now clock.Instant) localLease {
	if h.Lease.Owner != s.owner || s.retired.Load() {
		return localLease{}
	}
	safe := s.cfg.LeaseDuration - s.cfg.MaxClockSkew
	return localLease{
		held:     true,
		until:    h.Lease.Expiry - s.cfg.MaxClockSkew.Milliseconds(),
		deadline: now.Mono + safe,
		renew:    now.Mono + s.cfg.LeaseDuration/4,
	}
}

// retire ends this object's right to answer from memory, for good. The caller
// forgets it; requests that still use it go by the log.
func (s *Shard) retire() (held bool) {
	s.retired.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st == nil {
		return false
	}
	held = s.st.head.Lease.Owner == s.owner
	s.st.lease = localLease{}
	return held
}

// release retires the object and gives the lease back, so that others need not
// wait for it to expire.
func (s *Shard) release(ctx context.Context) error {
	if !s.retire() {
		return nil
	}
	return s.submit(ctx, &pending{control: &control{note: "release", hasty: true, apply: keepHead}})
}
