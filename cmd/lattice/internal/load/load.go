// Package load moves rows into a tree: batches in flight over several workers,
// bounded memory, patience with a busy service, and an exact account of what
// was written, what was not, and where to go on.
//
// Rows of one key always pass through the same worker, in order, so that the
// last one wins as it would if they were written one by one.
package load

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

var (
	// ErrInterrupted: the caller's context ended before the input did.
	ErrInterrupted = errors.New("interrupted")
	// ErrTooManyRejects: Options.MaxRejects rows were rejected.
	ErrTooManyRejects = errors.New("too many rejected rows")
	// ErrPatience: the service stayed busy or out of reach for
	// Options.RetryFor.
	ErrPatience = errors.New("the service did not recover in time")
)

// Target is the tree to write to. Its client must not repeat calls by itself:
// the loader does, with times to live counted anew.
type Target interface {
	Batch(context.Context, client.Batch) ([]client.OpResult, error)
	Set(context.Context, string, []byte, client.SetOptions) (client.SetResult, error)
}

// Options configure a run. Zero values stand for the defaults.
type Options struct {
	// BatchOps and BatchBytes bound a batch; 0 is 1,000 operations and
	// 4,000,000 bytes, a little less than what a service accepts by default.
	BatchOps, BatchBytes int
	// Concurrency is how many requests are in flight at most; 0 is 4.
	Concurrency int
	// TTL is for rows that say nothing about expiry; 0 is for ever.
	TTL time.Duration
	// SkipRows passes over the first rows of the input.
	SkipRows int64
	// MaxRejects ends the run with that many rejected rows; 0 is no limit.
	MaxRejects int64
	// RetryFor is how long one batch is tried; 0 is 5 minutes. A service that
	// has never answered is given FirstContact only: waiting does not help
	// where nothing runs.
	RetryFor time.Duration
	// FirstContact is how long the first answer may take to come, if the
	// service cannot be reached; 0 is 10 s.
	FirstContact time.Duration
	// Grace is how long requests may go on after an interrupt or a failure;
	// 0 is 10 s.
	Grace time.Duration
	// OnReject is told of every rejected row, one at a time.
	OnReject func(*rows.Fault)
	// OnWait is told before each pause. It must not block.
	OnWait func(wait time.Duration, err error)
	// Stats, if set, can be watched while the run goes on.
	Stats *Stats
}

func (o Options) withDefaults() Options {
	if o.BatchOps == 0 {
		o.BatchOps = 1000
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 4_000_000
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	if o.RetryFor == 0 {
		o.RetryFor = 5 * time.Minute
	}
	if o.FirstContact == 0 {
		o.FirstContact = 10 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Stats == nil {
		o.Stats = &Stats{}
	}
	return o
}

// Stats count while a run goes on.
type Stats struct {
	// Read, Written, Rejected, Expired and Skipped count rows.
	Read, Written, Rejected, Expired, Skipped atomic.Int64
	// Waiting is how many workers wait for a busy service.
	Waiting atomic.Int64
}

// Summary is the account of a run.
type Summary struct {
	// Read counts the rows of the input, bad and skipped ones included.
	Read int64 `json:"read"`
	// Written counts rows that are durable. A row that a later one of the
	// same key replaced before it was sent counts as written.
	Written int64 `json:"written"`
	// Rejected counts rows that could not be used or were refused.
	Rejected int64 `json:"rejected"`
	// Expired counts rows that were past their expiry and were left out.
	Expired int64 `json:"expired"`
	// Skipped counts the rows passed over at the start.
	Skipped int64 `json:"skipped"`
	// Unsettled counts rows that were read and of which it is not known
	// whether they were written.
	Unsettled int64 `json:"unsettled"`
	// Settled is how many rows from the start of the input need not be read
	// again: the SkipRows of a run that goes on.
	Settled int64 `json:"settled"`
}

// Run writes the rows of src until its end. It returns what was done even if
// it fails. When ctx ends, it reads no more, writes what it holds, and returns
// ErrInterrupted. Rejected rows are no error.
func Run(ctx context.Context, target Target, src rows.Source, o Options) (Summary, error) {
	l := newLoader(ctx, target, o.withDefaults())
	defer l.cancel(nil)
	err := l.feed(ctx, src)
	l.finish(err)
	if failure := context.Cause(l.stop); l.stop.Err() != nil && !errors.Is(failure, errDone) {
		err = failure
	}
	return l.summary(), err
}

// errDone ends the run's own contexts when nothing is wrong.
var errDone = errors.New("done")

// loader is one run.
type loader struct {
	Options
	target  Target
	workers []*worker
	wg      sync.WaitGroup
	seed    maphash.Seed
	memory  *semaphore.Weighted
	budget  int64
	gate    gate
	// reached says that the service has answered at least once.
	reached atomic.Bool
	track   tracker

	// stop ends with the first failure: nothing new is sent after it.
	stop context.Context
	fail context.CancelCauseFunc
	// requests is the context of what is in flight; it outlives stop and the
	// caller's context by Grace.
	requests context.Context
	cancel   context.CancelCauseFunc

	rejects sync.Mutex
}

// memoryFactor is how many batches' worth of rows each worker may hold, raw
// text and decoded operation counted both.
const memoryFactor = 5

func newLoader(ctx context.Context, target Target, o Options) *loader {
	l := &loader{Options: o, target: target, seed: maphash.MakeSeed()}
	l.budget = int64(memoryFactor * o.Concurrency * o.BatchBytes)
	l.memory = semaphore.NewWeighted(l.budget)
	l.requests, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.stop, l.fail = context.WithCancelCause(l.requests)
	l.track.open = map[int64]struct{}{}
	for range o.Concurrency {
		w := &worker{l: l, in: make(chan *item, 64), at: map[string]int{}}
		l.workers = append(l.workers, w)
		l.wg.Go(w.run)
	}
	return l
}

// item is a row on its way.
type item struct {
	row rows.Row
	// num is the number of the row in the input, from 1.
	num int64
	// replaced is the earlier row of the same key in whose place this one is
	// sent. It counts as written if this one is; it is sent after all if this
	// one cannot be.
	replaced *item
	size     int
	weight   int64
}

// next is what the reader has to say.
type next struct {
	row rows.Row
	err error
}

// read reads ahead of feed by one row, so that an interrupt is noticed while
// the input is silent. It ends when feed does, or with the input's next word.
func read(src rows.Source, out chan<- next, done <-chan struct{}) {
	for {
		row, err := src.Next()
		select {
		case out <- next{row, err}:
		case <-done:
			return
		}
		var fault *rows.Fault
		if err != nil && !errors.As(err, &fault) {
			return
		}
	}
}

// feed hands rows to workers until the input ends, ctx does, or a worker
// fails.
func (l *loader) feed(ctx context.Context, src rows.Source) error {
	in, done := make(chan next, 16), make(chan struct{})
	defer close(done)
	go read(src, in, done)
	for {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case <-l.stop.Done():
			return context.Cause(l.stop)
		case n := <-in:
			if errors.Is(n.err, io.EOF) {
				return nil
			}
			if err := l.take(ctx, n); err != nil {
				return err
			}
		}
	}
}

// take deals with one word of the reader.
func (l *loader) take(ctx context.Context, n next) error {
	var fault *rows.Fault
	if n.err != nil && !errors.As(n.err, &fault) {
		return fmt.Errorf("read input: %w", n.err)
	}
	num := l.Stats.Read.Add(1)
	if num <= l.SkipRows {
		l.Stats.Skipped.Add(1)
		return nil
	}
	if fault != nil {
		l.reject(fault)
		return l.tooMany()
	}
	it := &item{row: n.row, num: num, size: n.row.Op.Size()}
	it.weight = min(int64(len(n.row.Raw)+it.size), l.budget/2)
	l.track.add(num)
	return l.hand(ctx, it)
}

// hand gives an item to the worker of its key, when there is room for it.
func (l *loader) hand(ctx context.Context, it *item) error {
	if !l.memory.TryAcquire(it.weight) && !l.waitForRoom(ctx, it.weight) {
		return l.interrupted()
	}
	w := l.workers[maphash.String(l.seed, it.row.Op.Key)%uint64(len(l.workers))]
	select {
	case w.in <- it:
		return l.tooMany()
	case <-ctx.Done():
	case <-l.stop.Done():
	}
	return l.interrupted()
}

// waitForRoom waits until rows are settled; an interrupt and a failure both
// end the wait.
func (l *loader) waitForRoom(ctx context.Context, weight int64) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.stop, cancel)()
	return l.memory.Acquire(ctx, weight) == nil
}

func (l *loader) interrupted() error {
	if l.stop.Err() != nil {
		return context.Cause(l.stop)
	}
	return ErrInterrupted
}

func (l *loader) tooMany() error {
	if l.MaxRejects > 0 && l.Stats.Rejected.Load() >= l.MaxRejects {
		return ErrTooManyRejects
	}
	return nil
}

// finish lets the workers write what they hold, for Grace at most if the run
// has come to a bad end.
func (l *loader) finish(err error) {
	for _, w := range l.workers {
		close(w.in)
	}
	endGrace := func() bool { return true }
	if err != nil {
		t := time.AfterFunc(l.Grace, func() { l.cancel(err) })
		endGrace = t.Stop
	} else {
		stop := context.AfterFunc(l.stop, func() { time.AfterFunc(l.Grace, func() { l.cancel(errDone) }) })
		defer stop()
	}
	l.wg.Wait()
	endGrace()
}

// reject accounts for a row that is not written.
func (l *loader) reject(f *rows.Fault) {
	l.rejects.Lock()
	defer l.rejects.Unlock()
	l.Stats.Rejected.Add(1)
	if l.OnReject != nil {
		l.OnReject(f)
	}
}

// settle accounts for an item whose end is known.
func (l *loader) settle(it *item) {
	l.memory.Release(it.weight)
	l.track.remove(it.num)
}

func (l *loader) summary() Summary {
	s := l.Stats
	sum := Summary{Read: s.Read.Load(), Written: s.Written.Load(), Rejected: s.Rejected.Load(), Expired: s.Expired.Load(), Skipped: s.Skipped.Load()}
	sum.Unsettled, sum.Settled = l.track.rest(sum.Read)
	return sum
}

// tracker knows the rows whose end is open.
type tracker struct {
	mu   sync.Mutex
	open map[int64]struct{}
}

func (t *tracker) add(num int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[num] = struct{}{}
}

func (t *tracker) remove(num int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, num)
}

// rest returns how many rows are open, and how many before the first of them.
func (t *tracker) rest(read int64) (open, settled int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	settled = read
	for n := range t.open {
		settled = min(settled, n-1)
	}
	return int64(len(t.open)), settled
}
