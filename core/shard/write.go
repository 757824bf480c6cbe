package shard

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Write performs writes of this shard, each judged by itself: a failed
// condition, or a key that moved away, does not touch the others. They are
// appended together as far as they fit, in their order.
//
// When it returns nil every applied write is durable. After an error, the
// results that have a Status are decided, and what they say was applied is
// durable; of the others none was applied, unless the error is
// store.ErrOutcomeUnknown, which leaves it open. Without an error, those that
// have no Status were not tried, because a write before them is StatusPending.
// Values are kept: the caller does not modify them afterwards.
func (s *Shard) Write(ctx context.Context, writes []Write) ([]WriteResult, error) {
	if len(writes) == 0 {
		return nil, nil
	}
	s.touched(writes)
	writes, err := s.storeValues(ctx, writes)
	if err != nil {
		return nil, err
	}
	results := make([]WriteResult, len(writes))
	for start := 0; start < len(writes); {
		end, bytes := s.portion(writes, start)
		p := &pending{writes: writes[start:end], results: results[start:end], bytes: bytes, records: end - start}
		err := s.prepare(ctx, p)
		if err == nil {
			err = s.submit(ctx, p)
		}
		if err != nil {
			// What was judged but not appended is no result, and an append that
			// was abandoned still writes there.
			return append(results[:start:start], make([]WriteResult, len(writes)-start)...), fmt.Errorf("write to %s: %w", s.partition, err)
		}
		start = end
		if slices.ContainsFunc(p.results, func(r WriteResult) bool { return r.Status == StatusPending }) {
			break // a later write of the same key must not go before
		}
	}
	s.relieve(ctx)
	return results, nil
}

// touched counts the writes that callers asked for, and not those that a
// migration or a transaction brings.
func (s *Shard) touched(writes []Write) {
	for i := range writes {
		if writes[i].Op <= OpGetOrSet {
			s.heat.touch(writes[i].Key)
		}
	}
}

// writeOverhead bounds what a write takes in a row beside key, value and type.
const writeOverhead = 96

// portion returns how far the writes from start on fit into one append.
func (s *Shard) portion(writes []Write, start int) (end, bytes int) {
	for end = start; end < len(writes); end++ {
		w := &writes[end]
		size := len(w.Key) + len(w.Value) + len(w.Type) + writeOverhead
		if end > start && (bytes+size > s.cfg.GroupMaxBytes || end-start >= s.cfg.GroupMaxRecords) {
			break
		}
		bytes += size
	}
	return end, bytes
}

// prepare reads what the checkpoint says of the keys before the request queues,
// so that no group waits for the leaves of one member.
func (s *Shard) prepare(ctx context.Context, p *pending) error {
	if err := s.retry(ctx, func() error { return s.open(ctx) }); err != nil {
		return err
	}
	s.mu.RLock()
	base := s.st.base
	s.mu.RUnlock()
	if base.Name() == "" {
		return nil
	}
	p.prior = make([]prior, len(p.writes))
	for i := range p.writes {
		w := &p.writes[i]
		if w.Blind && w.Op == OpPut && !w.conditional() {
			continue
		}
		if _, ok := s.peek(w.Key); ok {
			continue
		}
		e, ok, err := base.Get(ctx, w.Key)
		if err != nil {
			return nil // the group will meet it again, with the state of then
		}
		p.prior[i].base = base
		if ok {
			p.prior[i].entry = &e
		}
	}
	return nil
}

// relieve checkpoints within a request when the log has grown far beyond what
// the schedule should have left: a cold instance must be able to open the
// shard, whatever becomes of the timers. The writer, whose own writes are durable
// by now, neither fails with it nor waits long; after a failure nobody tries for
// a while.
func (s *Shard) relieve(ctx context.Context) {
	t := s.tuning.Load()
	s.mu.RLock()
	late := s.st != nil && (s.st.tail.bytes >= overdue*t.CheckpointTailBytes || s.st.tail.rows() >= overdue*t.CheckpointTailRows)
	s.mu.RUnlock()
	if !late || s.cfg.Clock.Now().Mono < time.Duration(s.relieveFrom.Load()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, relieveTimeout)
	defer cancel()
	if _, err := s.Checkpoint(ctx, CheckpointOptions{MergeBytes: relieveMergeBytes}); err != nil {
		s.relieveFrom.Store(int64(s.cfg.Clock.Now().Mono + relievePause))
	}
}

const (
	// overdue is how many times over the thresholds the log may grow before a
	// writer does the checkpoint itself.
	overdue = 4
	// relieveMergeBytes bounds the merging that a writer does on the way.
	relieveMergeBytes = 8 << 20
	// relieveTimeout bounds what it waits for it.
	relieveTimeout = 5 * time.Second
	// relievePause is how long no writer tries after one that failed.
	relievePause = 30 * time.Second
)
