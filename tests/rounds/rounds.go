// Package rounds lets writers rewrite the same sixteen keys over and over, each
// time by one atomic batch, while readers of other instances look at them in every
// way there is and shards are split under all of them. Whatever a reader sees at
// once must be one round; what it sees later must not be an older one; and a round
// that was acknowledged before a reader asked must not be missed. It runs on any
// storage, in real or in virtual time.
package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
)

// Open opens the store as a process of its own would, behind faults of its own.
type Open func(o options.Options) (*tree.DB, *faulty.Instance, error)

// Config says what a run is made of.
type Config struct {
	// Seed of what is random about the clients.
	Seed uint64
	// Instances is how many there are, Open makes each of them.
	Instances int
	Open      Open
	// Clock is that of the store.
	Clock clock.Source
	// Edit changes the options of instance i; it may be nil.
	Edit func(i int, o *options.Options)
	// Storm is the share of storage calls that go wrong; instances die only if
	// it is above 0.
	Storm float64
	// Readers and Writers are numbers of clients.
	Readers, Writers int
}

const (
	treeName = "rounds"
	shards   = 8
	// size is the number of keys. Odd rounds delete the second half of them.
	size = 16
)

// Rounds is a store with its instances and clients.
type Rounds struct {
	tb   testing.TB
	cfg  Config
	keys []string

	mu  sync.Mutex
	rnd *rand.Rand
	in  []*member
	// acked is the highest version that a writer was told of.
	acked clock.Version

	next                                 atomic.Int64
	written, failed, seen, refused, died atomic.Int64
	splits                               atomic.Int64
}

// member is one instance.
type member struct {
	db     *tree.DB
	faults *faulty.Instance
}

// New makes the instances and the keys, two for each of eight shards.
func New(tb testing.TB, cfg Config) *Rounds {
	tb.Helper()
	r := &Rounds{tb: tb, cfg: cfg, rnd: rand.New(rand.NewPCG(cfg.Seed, 11)), in: make([]*member, cfg.Instances)}
	for i := range r.in {
		r.start(i)
	}
	if _, _, err := r.in[0].db.Create(tb.Context(), treeName, tree.CreateOptions{ShardCount: shards}); err != nil {
		tb.Fatal(err)
	}
	t, err := r.in[0].db.Open(tb.Context(), treeName)
	if err != nil {
		tb.Fatal(err)
	}
	r.keys = spread(t)
	r.write(tb.Context(), 0)
	if r.written.Load() != 1 {
		tb.Fatal("the first round was not written")
	}
	for _, m := range r.in {
		r.disturb(m)
	}
	return r
}

// spread returns the keys.
func spread(t *tree.Tree) []string {
	of := map[any]int{}
	var keys []string
	for i := 0; len(keys) < size; i++ {
		key := fmt.Sprintf("key-%04d", i)
		if id := t.ShardMap().OwnerOf(key); of[id] < size/shards {
			of[id]++
			keys = append(keys, key)
		}
	}
	return keys
}

func (r *Rounds) start(i int) *member {
	o := options.Default()
	o.CheckpointTailRows, o.InlineValueBytes = 20, 40
	o.WalGracePeriod, o.BlobGracePeriod = time.Second, 20*time.Second
	o.LeaseDuration, o.LeaseContentionBackoff = 2*time.Second, time.Second
	o.TxTimeout, o.TxDecisionRetention = 2*time.Second, 5*time.Second
	o.RequestTimeout = requestTimeout
	if r.cfg.Edit != nil {
		r.cfg.Edit(i, &o)
	}
	db, in, err := r.cfg.Open(o)
	if err != nil {
		r.tb.Fatal(err)
	}
	m := &member{db, in}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in[i] = m
	return m
}

// undecided is how long a batch stays so at most, with the disagreement of clocks.
const undecided = 6 * time.Second

// requestTimeout bounds every request.
const requestTimeout = 8 * time.Second

func (r *Rounds) disturb(m *member) {
	if r.cfg.Storm > 0 {
		m.faults.Add(faulty.Storm(r.cfg.Storm, 10*time.Millisecond)...)
	}
}

func (r *Rounds) draw(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rnd.IntN(n)
}

func (r *Rounds) member() *member {
	i := r.draw(len(r.in))
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.in[i]
}

func (r *Rounds) floor() clock.Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// tolerates complains of an error that may not be. A request may be told to try
// again, which is counted, and storage that fails may fail it in any way but by
// damage.
func (r *Rounds) tolerates(what string, err error) {
	switch {
	case errors.Is(err, store.ErrCorrupt):
		r.tb.Errorf("%s: %v", what, err)
	case r.cfg.Storm > 0:
	case errors.Is(err, tree.ErrRoutingUnstable), errors.Is(err, tree.ErrTopologyUnstable), store.Transient(err):
		r.refused.Add(1)
	default:
		r.tb.Errorf("%s: %v", what, err)
	}
}

// Run lets the clients loose for d, with splits and a reshard, and then looks at
// what is left through a fresh instance.
func (r *Rounds) Run(d time.Duration) {
	end := r.cfg.Clock.Now().Mono + d
	var wg sync.WaitGroup
	for range r.cfg.Writers {
		wg.Go(func() { r.writer(end) })
	}
	for range r.cfg.Readers {
		wg.Go(func() { r.reader(end) })
	}
	for i := range r.in {
		wg.Go(func() { r.tick(i, end) })
	}
	wg.Go(func() { r.divide(end) })
	if r.cfg.Storm > 0 {
		wg.Go(func() { r.reap(end) })
	}
	wg.Wait()
	for _, m := range r.in {
		m.faults.Clear()
		m.faults.Wait()
	}
	r.cfg.Storm = 0
	r.last()
}

// last reads everything once more, when nothing fails any longer, and sees that
// nothing stays behind.
func (r *Rounds) last() {
	m := r.start(0)
	r.sleep(undecided)
	for range 2 {
		if _, err := m.db.Migrations(context.Background(), 10*time.Second); err != nil {
			r.tb.Error(err)
		}
		rep, err := m.db.Transactions(context.Background(), 0)
		if err != nil || rep.Failed > 0 {
			r.tb.Errorf("transactions: %+v, %v", rep, err)
		}
	}
	t, err := m.db.Open(context.Background(), treeName)
	if err != nil {
		r.tb.Fatal(err)
	}
	var floor clock.Version
	for _, look := range looks {
		look(r, context.Background(), t, &floor)
	}
	if r.refused.Load() > r.seen.Load()/20 {
		r.tb.Errorf("%d requests were told to try again", r.refused.Load())
	}
	r.tb.Logf("%d rounds written, %d not or perhaps; %d looks, %d asked to try again; %d splits, %d instances died",
		r.written.Load(), r.failed.Load(), r.seen.Load(), r.refused.Load(), r.splits.Load(), r.died.Load())
}

// Figures are the numbers of rounds written, of looks, and of splits completed.
func (r *Rounds) Figures() (written, seen, splits int64) {
	return r.written.Load(), r.seen.Load(), r.splits.Load()
}

func (r *Rounds) sleep(d time.Duration) { _ = r.cfg.Clock.Sleep(context.Background(), d) }

func (r *Rounds) pause(ms int) { r.sleep(time.Duration(1+r.draw(ms)) * time.Millisecond) }

// divide splits shards, and lets the tree grow once.
func (r *Rounds) divide(end time.Duration) {
	for n := 0; r.cfg.Clock.Now().Mono < end; n++ {
		r.pause(600)
		m := r.member()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if t, err := m.db.Open(ctx, treeName); err == nil {
			owners := t.ShardMap().Shards()
			if n == 2 {
				_, _, _ = t.Reshard(ctx, len(owners)+4)
			} else {
				_, _ = t.BeginSplit(ctx, owners[r.draw(len(owners))], "test")
			}
		}
		cancel()
	}
}

// tick runs the timers of whoever is in a place.
func (r *Rounds) tick(i int, end time.Duration) {
	for r.cfg.Clock.Now().Mono < end {
		r.mu.Lock()
		m := r.in[i]
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		moved, merr := m.db.Migrations(ctx, time.Second)
		r.splits.Add(int64(moved.Completed))
		_, cerr := m.db.Checkpoint(ctx, time.Second)
		_, gerr := m.db.Collect(ctx, time.Second)
		done, terr := m.db.Transactions(ctx, time.Second)
		cancel()
		errs := []error{merr, cerr, gerr, terr}
		for _, f := range append(moved.Failures, done.Failures...) {
			errs = append(errs, f.Err)
		}
		for _, err := range errs {
			if err != nil {
				r.tolerates("tick", err)
			}
		}
		r.pause(300)
	}
}

// reap kills instances, most of them in the middle of a call, and replaces them.
func (r *Rounds) reap(end time.Duration) {
	for r.cfg.Clock.Now().Mono < end {
		r.pause(2000)
		i := r.draw(len(r.in))
		r.mu.Lock()
		m := r.in[i]
		r.mu.Unlock()
		if point := r.draw(3); point > 0 {
			m.faults.KillAt(m.faults.Calls()+uint64(1+r.draw(20)), faulty.Points[point-1])
			r.pause(200)
		}
		m.faults.Kill()
		r.died.Add(1)
		r.pause(300)
		r.disturb(r.start(i))
	}
}
