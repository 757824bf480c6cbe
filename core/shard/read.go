package shard

import (
	"context"
	"errors"
	"fmt"

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
// one query, and the leaf if that is not cached.
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
	milli int64
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
	return st.look(key, st.milli(now)), true
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
	return s.st.look(key, s.st.milli(now)), nil
}

func (st *state) look(key string, milli int64) looked {
	l := looked{base: st.base, etag: st.etag, milli: milli}
	if it, ok := st.tail.get(key); ok {
		l.entry = &it.Entry
	}
	return l
}

// finish completes a look-up, with the checkpoint if need be.
func (l *looked) finish(ctx context.Context, key string) (record.Entry, bool, error) {
	if l.entry != nil {
		return *l.entry, l.entry.Live(l.milli), nil
	}
	e, ok, err := l.base.Get(ctx, key)
	if err != nil || !ok {
		return record.Entry{}, false, err
	}
	return e, e.Live(l.milli), nil
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
