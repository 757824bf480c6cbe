package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/trace"
)

// pending is a request that waits for an append: some writes, or one control
// change of the head.
type pending struct {
	writes  []Write
	prior   []prior
	results []WriteResult
	control *control
	// atomic says that all writes are done or none.
	atomic bool
	err    error

	bytes   int
	records int
	// deadline is that of its caller, zero if there is none.
	deadline time.Time
	// turn is how a request that waits hears that it is its turn; one that leads
	// from the start has none.
	turn chan turn
	// ref names the operation of its caller, nil if nobody follows it.
	ref trace.Ref
	// queued is guarded by the queue's lock: still waiting for a group.
	queued bool
}

// prior is what a write found before it was queued: the checkpoint's entry of
// its key, good as long as that checkpoint is the shard's.
type prior struct {
	base  *run.Set
	entry *record.Entry
}

// hasty reports whether the request gives up where a lease bars the way.
func (p *pending) hasty() bool {
	return p.control != nil && p.control.hasty || len(p.writes) > 0 && p.writes[0].hasty
}

// turn is what a waiting request is told.
type turn uint8

const (
	turnDone turn = iota + 1 // the outcome is there
	turnLead                 // commit the next group, its own request included
)

// commitQueue gathers requests while an append is under way: whoever finds no
// leader becomes it, commits one group, and hands the lead to a request that
// still waits. All work is done on behalf of a request that has not been
// answered, by its own goroutine: nothing runs after a response.
type commitQueue struct {
	mu      sync.Mutex
	waiting []*pending
	led     bool
}

// enqueue adds p and reports whether its goroutine must lead.
func (q *commitQueue) enqueue(p *pending) (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.queued = true
	q.waiting = append(q.waiting, p)
	if !q.led {
		q.led = true
		return true
	}
	p.turn = make(chan turn, 1)
	return false
}

// take removes the next group: the oldest requests, at least one, within the
// bounds. A control change goes alone, so that its fate is its own.
func (q *commitQueue) take(group []*pending, maxBytes, maxRecords int) []*pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes, records, n := 0, 0, 0
	for _, p := range q.waiting {
		bytes += p.bytes
		records += p.records
		full := bytes > maxBytes || records > maxRecords
		if n > 0 && (full || p.control != nil || q.waiting[0].control != nil) {
			break
		}
		p.queued = false
		group = append(group, p)
		n++
	}
	q.waiting = q.waiting[:copy(q.waiting, q.waiting[n:])]
	clear(q.waiting[len(q.waiting):cap(q.waiting)])
	return group
}

// length is the number of requests that wait.
func (q *commitQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// pass hands the lead to the oldest waiting request, or lays it down.
func (q *commitQueue) pass() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.led = false
		return
	}
	q.waiting[0].turn <- turnLead
}

// withdraw takes a request out that gave up waiting, and reports whether it was
// still there.
func (q *commitQueue) withdraw(p *pending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.queued {
		return false
	}
	for i, w := range q.waiting {
		if w == p {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	p.queued = false
	return true
}

// submit takes a request through the queue and returns when its outcome is
// known, or when ctx ends and the outcome is not.
func (s *Shard) submit(ctx context.Context, p *pending) error {
	p.deadline, _ = ctx.Deadline()
	if h := s.cfg.Trace; h != nil {
		p.ref = h.Ref(ctx)
	}
	if s.queue.enqueue(p) {
		s.lead(ctx, p)
		return p.err
	}
	select {
	case t := <-p.turn:
		if t == turnLead {
			s.lead(ctx, p)
		}
		return p.err
	case <-ctx.Done():
	}
	if s.queue.withdraw(p) {
		s.yieldLead(p)
		return fmt.Errorf("waiting to append: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	return s.abandon(ctx, p)
}

// yieldLead passes on a lead that was given to a request as it withdrew.
func (s *Shard) yieldLead(p *pending) {
	select {
	case <-p.turn:
		s.queue.pass()
	default:
	}
}

// abandon gives up on a request that is in a group: what comes of it is not
// known to the caller.
func (s *Shard) abandon(ctx context.Context, p *pending) error {
	select {
	case <-p.turn:
		return p.err
	default:
		return fmt.Errorf("append under way: %w: %w", store.ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// lead commits the group that holds p, and passes the lead on. The members are
// told first, so that those of them that have more to write can be in the next
// group; unless the append must be mirrored before they are answered, which the
// next group need not wait for.
func (s *Shard) lead(ctx context.Context, p *pending) {
	s.gather(ctx)
	group := s.queue.take(nil, s.cfg.GroupMaxBytes, s.cfg.GroupMaxRecords)
	start := s.cfg.Clock.Now().Mono
	gctx, cancel := s.groupContext(ctx, group)
	landed := s.commit(gctx, group)
	cancel()
	s.crowd.Store(int64(len(group)))
	s.pace.Store(int64(s.cfg.Clock.Now().Mono - start))
	if mirrored(landed) {
		s.queue.pass()
		for _, a := range landed {
			s.mirror(ctx, a)
		}
		tell(group, p)
		return
	}
	tell(group, p)
	s.queue.pass()
}

// tell lets the members of a group go on, but for the one that led it.
func tell(group []*pending, leader *pending) {
	for _, member := range group {
		if member != leader {
			member.turn <- turnDone
		}
	}
}

const (
	// crowdedGroup is a group of so many that a wait for more of them pays.
	crowdedGroup = 8
	// gatherShare is the part of the time of an append that such a wait takes,
	// maxGather its bound.
	gatherShare = 8
	maxGather   = time.Millisecond
)

// gather waits a little before a group is taken, where the last one was large:
// its members are just being told, and will write again. Otherwise two halves of
// the writers would wait for each other's appends for ever, each append carrying
// half of what it could.
func (s *Shard) gather(ctx context.Context) {
	if s.crowd.Load() < crowdedGroup || s.queue.length() >= 2*int(s.crowd.Load()) {
		return
	}
	wait := min(time.Duration(s.pace.Load())/gatherShare, maxGather)
	// A context that ends meanwhile is noticed later.
	_ = s.cfg.Clock.Sleep(ctx, wait)
}

// groupContext is the context of an append. Alone, a request goes under its own.
// The context of a group outlives a leader that is cancelled, since others
// depend on the outcome, and lasts until the latest deadline among them.
func (s *Shard) groupContext(ctx context.Context, group []*pending) (context.Context, context.CancelFunc) {
	if len(group) == 1 {
		return ctx, func() {}
	}
	base := context.WithoutCancel(ctx)
	var latest time.Time
	for _, m := range group {
		if m.deadline.IsZero() {
			return base, func() {}
		}
		if m.deadline.After(latest) {
			latest = m.deadline
		}
	}
	return context.WithDeadline(base, latest)
}
