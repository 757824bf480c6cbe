package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// Delay is how long an operation takes: Fixed, and a uniformly random part of
// Jitter on top. Half of it passes before the effect, half before the reply.
type Delay struct{ Fixed, Jitter time.Duration }

// Profile imitates a storage account. Zero fields imitate nothing.
type Profile struct {
	// Read, Range and Apply are the delays of the operations of the table.
	Read, Range, Apply Delay
	// BlobRead, BlobWrite and BlobList are those of the blobs; a delete counts
	// as a write.
	BlobRead, BlobWrite, BlobList Delay
	// PartitionEntities is the number of entities that one partition serves per
	// second: rows read, and operations applied.
	PartitionEntities int
	// AccountRequests is the number of requests per second of the account,
	// tables and blobs together.
	AccountRequests int
	// Burst is for how long a limit may be saved up; 0 is 100 ms. A request
	// over a limit gets a *store.ThrottledError and has no effect.
	Burst time.Duration
}

// Azure returns the documented limits of a standard account, 2,000 entities/s
// per partition and 20,000 requests/s per account, with latencies of the order
// that callers in the same region see.
func Azure() *Profile {
	ms := func(fixed, jitter int) Delay {
		return Delay{Fixed: time.Duration(fixed) * time.Millisecond, Jitter: time.Duration(jitter) * time.Millisecond}
	}
	return &Profile{
		Read: ms(2, 3), Range: ms(3, 4), Apply: ms(5, 6),
		BlobRead: ms(5, 10), BlobWrite: ms(10, 15), BlobList: ms(10, 20),
		PartitionEntities: 2000, AccountRequests: 20000,
	}
}

type kind uint8

const (
	kindRead kind = iota
	kindRange
	kindApply
	kindBlobRead
	kindBlobWrite
	kindBlobList
	kinds
)

// writes reports whether an operation of the kind has an effect.
func (k kind) writes() bool { return k == kindApply || k == kindBlobWrite }

// maxIdleBuckets bounds the partitions whose limits are remembered; full
// buckets are forgotten beyond it.
const maxIdleBuckets = 4096

// shaper applies a Profile.
type shaper struct {
	clock  clock.Source
	delays [kinds]Delay
	burst  time.Duration
	rate   float64

	mu         sync.Mutex
	account    bucket
	partitions map[string]*bucket
}

func newShaper(p Profile, src clock.Source) *shaper {
	if p.Burst <= 0 {
		p.Burst = 100 * time.Millisecond
	}
	s := &shaper{clock: src, burst: p.Burst, rate: float64(p.PartitionEntities), partitions: map[string]*bucket{}}
	s.delays = [kinds]Delay{p.Read, p.Range, p.Apply, p.BlobRead, p.BlobWrite, p.BlobList}
	s.account = newBucket(float64(p.AccountRequests), p.Burst, src.Now().Mono)
	return s
}

// begin lets the request travel and admits it, or refuses it before it has any
// effect. The partition is empty for a blob.
func (s *shaper) begin(ctx context.Context, k kind, partition string, entities int) error {
	if err := s.travel(ctx, k); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now().Mono
	if wait := s.account.wait(now); wait > 0 {
		return busy("account", wait)
	}
	if b := s.bucketOf(partition, now); b != nil {
		if wait := b.wait(now); wait > 0 {
			return busy("partition "+partition, wait)
		}
		b.tokens -= float64(entities)
	}
	s.account.tokens--
	return nil
}

// reply lets the answer travel. If the caller's context ends meanwhile, the
// reply is lost, whatever it was.
func (s *shaper) reply(ctx context.Context, k kind) error { return s.travel(ctx, k) }

// charge takes entities from a partition's limit after the fact.
func (s *shaper) charge(partition string, entities int) {
	if entities <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bucketOf(partition, s.clock.Now().Mono); b != nil {
		b.tokens -= float64(entities)
	}
}

func (s *shaper) travel(ctx context.Context, k kind) error {
	d := s.delays[k]
	half := d.Fixed / 2
	if d.Jitter > 1 {
		half += time.Duration(s.clock.Uint64() % uint64(d.Jitter/2+1))
	}
	err := s.clock.Sleep(ctx, half)
	if err == nil {
		return nil
	}
	if k.writes() {
		return fmt.Errorf("%w: waiting for the reply: %w", store.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("%w: waiting for the reply: %w", store.ErrUnavailable, err)
}

func (s *shaper) bucketOf(partition string, now time.Duration) *bucket {
	if partition == "" || s.rate == 0 {
		return nil
	}
	b := s.partitions[partition]
	if b == nil {
		s.forgetIdle(now)
		fresh := newBucket(s.rate, s.burst, now)
		b = &fresh
		s.partitions[partition] = b
	}
	return b
}

// forgetIdle drops buckets that are full again, which equal fresh ones.
func (s *shaper) forgetIdle(now time.Duration) {
	if len(s.partitions) < maxIdleBuckets {
		return
	}
	for name, b := range s.partitions {
		if b.refill(now); b.tokens >= b.capacity {
			delete(s.partitions, name)
		}
	}
}

// bucket is a token bucket that may be overdrawn by one request, so that a
// request larger than the burst is possible. A rate of zero is no limit.
type bucket struct {
	rate, capacity, tokens float64
	last                   time.Duration
}

func newBucket(rate float64, burst, now time.Duration) bucket {
	capacity := max(rate*burst.Seconds(), 1)
	return bucket{rate: rate, capacity: capacity, tokens: capacity, last: now}
}

func (b *bucket) refill(now time.Duration) {
	b.tokens = min(b.tokens+b.rate*(now-b.last).Seconds(), b.capacity)
	b.last = now
}

// wait refills the bucket and returns how long until it has a whole token, 0
// if it has one.
func (b *bucket) wait(now time.Duration) time.Duration {
	if b.rate == 0 {
		return 0
	}
	b.refill(now)
	if b.tokens >= 1 {
		return 0
	}
	return time.Duration((1-b.tokens)/b.rate*float64(time.Second)) + 1
}

// errBusy is the cause of every throttling of this provider.
var errBusy = errors.New("server busy")

func busy(what string, wait time.Duration) error {
	return &store.ThrottledError{RetryAfter: wait, Err: fmt.Errorf("%s over its limit: %w", what, errBusy)}
}
