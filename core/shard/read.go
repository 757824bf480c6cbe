package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// maxMissed bounds how often a read is begun anew because blobs were collected
// under it.
const maxMissed = 8

// Get returns the live entry of a key; false if there is none. The entry's Ref,
// if it has one, is to be loaded with Load. With zero options the answer is
// linearizable: it costs no storage operation under the lease, else a share of
// one query, and the leaf if that is not cached. *PendingError says that an
// undecided transaction has a part in the key.
func (s *Shard) Get(ctx context.Context, key string, o ReadOptions) (record.Entry, bool, error) {
	s.counted()
	s.heat.touch(key)
	if look, ok := s.glance(key); ok {
		if e, found, err := look.finish(ctx, key); err == nil {
			return e, found, nil
		}
	}
	if s.reportDue(s.cfg.Clock.Now().Mono) {
		s.report(ctx)
	}
	var missed error
	for range maxMissed {
		if err := s.current(ctx, o, func(p *plan) bool { return p.changes(key) }); err != nil {
			return record.Entry{}, false, err
		}
		look, err := s.look(key)
		if err != nil {
			return record.Entry{}, false, err
		}
		e, found, err := look.finish(ctx, key)
		if !errors.Is(err, store.ErrNotFound) {
			return e, found, err
		}
		missed = err
		if err := s.reopen(ctx, look.etag, err); err != nil {
			return record.Entry{}, false, err
		}
	}
	return record.Entry{}, false, missed
}

// looked is what memory says of one key at one moment.
type looked struct {
	entry *record.Entry // from the tail, nil if the checkpoint must be asked
	base  *run.Set
	etag  store.ETag
	at    clock.Instant
	milli int64
	// prepared are the undecided mutations of the key.
	prepared []Prepared
}

// glance looks a key up where the lease makes memory reliable and no append
// concerns the key: the fast path.
func (s *Shard) glance(key string) (looked, bool) {
	now := s.cfg.Clock.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.st
	if st == nil || !st.reliable(now) || st.lease.due(now) || st.barrier() != nil || s.reportDue(now.Mono) {
		return looked{}, false
	}
	if st.inflight != nil && st.inflight.changes(key) {
		return looked{}, false
	}
	if !st.owns(key) {
		return looked{}, false
	}
	return st.look(key, now), true
}

// pending returns the undecided mutations of a key.
func (st *state) pending(key string) []Prepared {
	if len(st.prepared.byTx) == 0 {
		return nil
	}
	at, _ := st.prepared.byKey.Get(key)
	return at
}

// look reads memory, once it has been shown to be current.
func (s *Shard) look(key string) (looked, error) {
	now := s.cfg.Clock.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.st.barrier(); err != nil {
		return looked{}, err
	}
	if !s.st.owns(key) {
		return looked{}, ErrStaleRouting
	}
	return s.st.look(key, now), nil
}

func (st *state) look(key string, now clock.Instant) looked {
	l := looked{base: st.base, etag: st.etag, at: now, milli: st.milli(now), prepared: st.pending(key)}
	if it, ok := st.tail.get(key); ok {
		l.entry = &it.Entry
	}
	return l
}

// finish completes a look-up, with the checkpoint if need be, and returns the live
// entry. *PendingError says that transactions stand in the way.
func (l *looked) finish(ctx context.Context, key string) (record.Entry, bool, error) {
	e, ok, err := l.find(ctx, key)
	if err != nil || l.prepared == nil {
		return e, ok && e.Live(l.milli), err
	}
	return record.Entry{}, false, &PendingError{Prepared: l.prepared, Current: e, Exists: ok, Milli: l.milli, At: l.at}
}

// find returns the entry of the key, dead or alive.
func (l *looked) find(ctx context.Context, key string) (record.Entry, bool, error) {
	if l.entry != nil {
		return *l.entry, true, nil
	}
	return l.base.Get(ctx, key)
}

// barrier says why the shard serves nothing, if so.
func (st *state) barrier() error {
	if st.head.Meta().Closed {
		return ErrClosed
	}
	if st.behind() {
		return fmt.Errorf("the shard's checkpoint is not loaded yet: %w", store.ErrUnavailable)
	}
	return nil
}

// owns reports whether the shard serves the key's slot.
func (st *state) owns(key string) bool { return !st.head.meta.refuses(key) }
