package shard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

// Shard is one instance's view of a physical shard, and its way to change it.
// It is safe for concurrent use. It opens on first use.
type Shard struct {
	pool      *Pool
	cfg       *Config
	partition string
	// owner names this object as a holder of leases. It is not the instance:
	// an object that was forgotten and one that took its place must not take
	// each other's lease for their own.
	owner  uint64
	writer uint32
	runs   *run.Store
	tuning atomic.Pointer[Tuning]

	// mu guards what is known of the shard. It is never held over I/O.
	mu sync.RWMutex
	st *state // nil before the shard is opened

	queue  commitQueue
	checks checkGroup
	// loading serialises what replaces the state: opening and catching up.
	loading chan struct{}
	// checkpointing keeps the instance from doing a checkpoint twice at once.
	checkpointing atomic.Bool
	// relieveFrom is the time of the monotonic clock from which a writer may do
	// an overdue checkpoint.
	relieveFrom atomic.Int64
	// heat finds the keys that most operations are for.
	heat heat
	// reads are operations that no append and no report has taken along yet;
	// reportAt is the monotonic time from which a reader reports them. The rest
	// is guarded by counting: the row of this object as it was last seen.
	reads      atomic.Int64
	reportAt   atomic.Int64
	counting   sync.Mutex
	counterTag store.ETag
	reported   uint64
	// crowd is the number of requests in the last group, pace the nanoseconds
	// that its append took.
	crowd, pace atomic.Int64
	// pinned are views of pinned states, by id.
	pinned      sync.Map // of *View
	pinnedCount atomic.Int64
	// retired says that the pool has forgotten the object: it holds no lease.
	retired atomic.Bool
}

func newShard(p *Pool, partition string) *Shard {
	s := &Shard{
		pool:      p,
		cfg:       &p.cfg,
		partition: partition,
		owner:     p.cfg.Clock.Uint64() | 1,
		writer:    uint32(p.cfg.Instance) ^ uint32(p.cfg.Instance>>32),
		loading:   make(chan struct{}, 1),
	}
	t := p.cfg.Tuning
	s.tuning.Store(&t)
	s.heat.chance = s.owner
	s.runs = newRunStore(p, partition)
	return s
}

// SetTuning replaces the tree's own settings. It takes effect at the next
// operation.
func (s *Shard) SetTuning(t Tuning) {
	if *s.tuning.Load() != t {
		changed := t // only this copy is on the heap: nearly always nothing changes
		s.tuning.Store(&changed)
	}
}

// Partition returns the name of the shard's partition.
func (s *Shard) Partition() string { return s.partition }

// Create makes the shard: an empty head. It changes nothing if there is one.
// The shard exists durably when Create returns nil.
func (s *Shard) Create(ctx context.Context) error {
	h := Head{Clock: clock.Next(0, s.cfg.Clock.Now())}
	if err := h.setMeta(Meta{}); err != nil {
		return err
	}
	ops := []store.Op{store.Insert(headKey, h.encode(nil))}
	return s.retry(ctx, func() error {
		_, err := s.cfg.Table.Apply(ctx, s.partition, ops)
		if store.LostRace(err) {
			return nil
		}
		return err
	})
}

// retry calls f until it succeeds or fails for good, with jittered backoff, as
// long as ctx allows. An unknown outcome is tried again: f is idempotent.
func (s *Shard) retry(ctx context.Context, f func() error) error {
	b := s.newBackoff()
	for {
		err := f()
		if err == nil || !retryable(err) {
			return err
		}
		if werr := b.wait(ctx, store.RetryAfter(err)); werr != nil {
			return err
		}
	}
}

// backoff is a bounded, jittered exponential wait.
type backoff struct {
	clock clock.Source
	next  time.Duration
	// until is the monotonic time after which nothing is tried again, whatever
	// the context allows.
	until time.Duration
}

const (
	backoffMin = 2 * time.Millisecond
	backoffMax = 100 * time.Millisecond
)

func (s *Shard) newBackoff() backoff {
	return backoff{clock: s.cfg.Clock, next: backoffMin, until: s.cfg.Clock.Now().Mono + s.cfg.CommitTimeout}
}

// errTimeUp ends retries whose context sets no deadline.
var errTimeUp = errors.New("time is up")

// wait sleeps, at least as long as the storage asked for.
func (b *backoff) wait(ctx context.Context, atLeast time.Duration) error {
	d := max(clock.Jitter(b.clock, b.next), atLeast)
	if b.clock.Now().Mono+d > b.until {
		return errTimeUp
	}
	b.next = min(2*b.next, backoffMax)
	return b.clock.Sleep(ctx, d)
}
