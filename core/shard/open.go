package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// open loads the shard if it is not in memory: one query and, if there is a
// checkpoint, one manifest. An open shard costs nothing.
func (s *Shard) open(ctx context.Context) error {
	if s.opened() {
		return nil
	}
	unlock, err := s.lockLoading(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.opened() {
		return nil
	}
	return s.load(ctx)
}

func (s *Shard) opened() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st != nil
}

// lockLoading takes the right to replace the state.
func (s *Shard) lockLoading(ctx context.Context) (unlock func(), err error) {
	select {
	case s.loading <- struct{}{}:
		return func() { <-s.loading }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the shard to load: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
}

// load reads the shard from storage alone. A checkpoint that vanishes between
// head and manifest was replaced and collected: the new head is read then. The
// caller holds the right to load.
func (s *Shard) load(ctx context.Context) error {
	var missing error
	for range maxReadings {
		start := s.cfg.Clock.Now()
		r, err := s.readLog(ctx, 0, nil)
		if err != nil {
			return err
		}
		base, err := s.loadBase(ctx, &r.head)
		if err == nil {
			s.install(r, base, start)
			return nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if r.head.Meta().Closed {
			return ErrClosed
		}
		missing = err
	}
	return store.Corruptf("checkpoint of %s is gone and the head still names it: %v", s.partition, missing)
}

// loadBase opens the manifest that a head names.
func (s *Shard) loadBase(ctx context.Context, h *Head) (*run.Set, error) {
	c := h.Meta().Checkpoint
	if c.Manifest == "" {
		return s.runs.Empty(), nil
	}
	base, err := s.runs.Open(ctx, c.Manifest)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint of %s: %w", s.partition, err)
	}
	if base.Seq() != c.Seq {
		return nil, store.Corruptf("manifest %s covers row %d, the head of %s says %d", c.Manifest, base.Seq(), s.partition, c.Seq)
	}
	return base, nil
}

// install makes a reading the state. What an append under way needs to know is
// carried over.
func (s *Shard) install(r logReading, base *run.Set, start clock.Instant) {
	st := &state{base: base, tail: &tail{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.st; old != nil {
		st.inflight, st.idle = old.inflight, old.idle
		st.awaited, st.echoed = old.awaited, old.echoed
		if old.etag == r.etag {
			st.suspect, st.lease = old.suspect, old.lease
		}
	}
	if !st.awaited.IsZero() && r.head.Append == st.awaited {
		st.echoed = st.awaited
	}
	suspect := st.suspect
	st.take(r)
	st.suspect = suspect
	st.prove(start)
	s.st = st
}

// take applies the rows of a reading, and its head.
func (st *state) take(r logReading) {
	for i := range r.rows {
		st.absorb(&r.rows[i].Row, r.rows[i].size)
		if !st.awaited.IsZero() && r.rows[i].Append == st.awaited {
			st.echoed = st.awaited
		}
	}
	if r.etag != st.etag {
		st.advance(r.head, r.etag)
	}
}

// catchUp brings the state up to date; when it returns nil the state was
// current at some moment after the call.
func (s *Shard) catchUp(ctx context.Context) error {
	_, err := s.follow(ctx)
	return err
}

// follow reads what the log has grown by, in one query, and takes up a newer
// checkpoint. gap says that rows in between were gone and the shard was loaded
// anew.
func (s *Shard) follow(ctx context.Context) (gap bool, err error) {
	unlock, err := s.lockLoading(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	s.mu.RLock()
	st := s.st
	s.mu.RUnlock()
	if st == nil {
		return true, s.load(ctx)
	}
	start := s.cfg.Clock.Now()
	s.mu.RLock()
	last, from := st.head, st.head.Seq+1
	s.mu.RUnlock()
	r, err := s.readLog(ctx, from, &last)
	if errors.Is(err, errTruncated) {
		return true, s.load(ctx)
	}
	if err != nil {
		return false, err
	}
	base, err := s.newerBase(ctx, st, &r.head)
	if errors.Is(err, store.ErrNotFound) {
		return true, s.load(ctx)
	}
	if err != nil {
		return false, err
	}
	s.merge(st, r, base, start)
	return false, nil
}

// newerBase opens the checkpoint that a head names if the state has an older
// one, nil if it has not.
func (s *Shard) newerBase(ctx context.Context, st *state, h *Head) (*run.Set, error) {
	s.mu.RLock()
	have := st.base.Name()
	s.mu.RUnlock()
	if h.Meta().Checkpoint.Manifest == have {
		return nil, nil
	}
	return s.loadBase(ctx, h)
}

// merge takes a reading into the state. An append of this instance may have
// advanced it meanwhile: rows and heads it knows are passed over.
func (s *Shard) merge(st *state, r logReading, base *run.Set, start clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st != st {
		return
	}
	fresh := r
	for len(fresh.rows) > 0 && fresh.rows[0].Seq <= st.head.Seq {
		fresh.rows = fresh.rows[1:]
	}
	if r.head.Seq >= st.head.Seq {
		st.take(fresh)
	}
	if st.head.Lease.Owner != s.owner {
		st.lease = localLease{}
	}
	if base != nil && base.Name() == st.head.Meta().Checkpoint.Manifest {
		st.adopt(base)
	}
	if st.behind() {
		return // a graft in the newer checkpoint would be missed
	}
	st.prove(start)
}

// reopen answers a blob that was missed under the state with the given head. If
// the state has moved on, the caller just reads again. If not, the shard is
// loaded anew; and if its head has not changed either, the blob is lost, which
// is said loudly.
func (s *Shard) reopen(ctx context.Context, used store.ETag, cause error) error {
	unlock, err := s.lockLoading(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.etag() != used {
		return nil
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if s.etag() == used {
		return store.Corruptf("%s refers to a blob that is gone: %v", s.partition, cause)
	}
	return nil
}

// etag returns that of the head the state stands for, empty if there is none.
func (s *Shard) etag() store.ETag {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.st == nil {
		return ""
	}
	return s.st.etag
}

// peek looks a key up in the log's tail.
func (s *Shard) peek(key string) (*tailItem, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st.tail.get(key)
}
