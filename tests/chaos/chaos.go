// Package chaos lets many clients of several instances loose on one store while
// shards are split under them, and holds every answer against what must be
// true: a fixed set of keys always exists, so every count and every scan is
// known. It runs on any storage, in real or in virtual time.
package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
)

// Open opens the store as a process of its own would, behind faults of its own.
type Open func(o options.Options) (*tree.DB, *faulty.Instance, error)

// Config says what a Chaos runs on.
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
}

// Chaos is a store with its instances and clients.
type Chaos struct {
	tb    testing.TB
	cfg   Config
	src   clock.Source
	mu    sync.Mutex
	rnd   *rand.Rand
	dbs   []*tree.DB
	kills []*faulty.Instance
	// next is the number of the next value.
	next atomic.Int64
	// acked is the latest version acknowledged of each key.
	acked [universe]clock.Version
	// tolerant says that errors are expected: storage is failing.
	tolerant atomic.Bool
	// ops counts what clients did, refused those told to try again.
	ops, refused atomic.Int64
}

// workers is the number of clients.
const workers = 16

// New makes the instances and the keys.
func New(tb testing.TB, cfg Config) *Chaos {
	tb.Helper()
	c := &Chaos{tb: tb, cfg: cfg, src: cfg.Clock, rnd: rand.New(rand.NewPCG(cfg.Seed, 7))}
	for i := range cfg.Instances {
		db, in := c.instance(i)
		c.dbs, c.kills = append(c.dbs, db), append(c.kills, in)
	}
	h, err := c.tree(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var ops []tree.BatchOp
	for i := range universe {
		ops = append(ops, tree.BatchOp{Key: keyOf(i), Value: envelope(keyOf(i), 0)})
	}
	if _, err := h.Batch(tb.Context(), ops); err != nil {
		tb.Fatal(err)
	}
	return c
}

// instance makes instance i, with options under which much happens soon.
func (c *Chaos) instance(i int) (*tree.DB, *faulty.Instance) {
	o := options.Default()
	o.DefaultShardCount, o.CheckpointTailRows, o.SplitDrainBatchSize = 2, 30, 37
	o.WalGracePeriod, o.BlobGracePeriod, o.RequestTimeout = time.Second, 20*time.Second, requestTimeout
	if c.cfg.Edit != nil {
		c.cfg.Edit(i, &o)
	}
	db, in, err := c.cfg.Open(o)
	if err != nil {
		c.tb.Fatal(err)
	}
	return db, in
}

// requestTimeout bounds every request.
const requestTimeout = 10 * time.Second

func (c *Chaos) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func (c *Chaos) db() *tree.DB {
	i := c.intn(len(c.dbs))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dbs[i]
}

func (c *Chaos) tree(ctx context.Context) (*tree.Tree, error) {
	return c.db().OpenOrCreate(ctx, "chaos")
}

// Run lets the clients loose for d, and forces a split every half second.
func (c *Chaos) Run(d time.Duration) {
	end := c.src.Now().Mono + d
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { c.client(end) })
	}
	wg.Go(func() { c.force(end) })
	for range 2 {
		wg.Go(func() { c.tick(end) })
	}
	wg.Wait()
}

// force splits a random shard every half second.
func (c *Chaos) force(end time.Duration) {
	for c.src.Now().Mono < end {
		_ = c.src.Sleep(context.Background(), 500*time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if h, err := c.tree(ctx); err == nil {
			owners := h.ShardMap().Shards()
			_, err := h.BeginSplit(ctx, owners[c.intn(len(owners))], "test")
			if !errors.Is(err, split.ErrBusy) && !errors.Is(err, split.ErrTooSmall) {
				c.failed("begin split", err)
			}
		}
		cancel()
	}
}

// tick runs the timers on random instances, sometimes two at once.
func (c *Chaos) tick(end time.Duration) {
	for c.src.Now().Mono < end {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		rep, err := c.db().Migrations(ctx, time.Second)
		c.failed("migrations", err)
		for _, f := range rep.Failures {
			c.failed("migrations", f.Err)
		}
		_, err = c.db().Checkpoint(ctx, time.Second)
		c.failed("checkpoint", err)
		_, err = c.db().Collect(ctx, time.Second)
		c.failed("collect", err)
		cancel()
		_ = c.src.Sleep(context.Background(), 50*time.Millisecond)
	}
}

// recovery is how soon after storage works again everything is exact: well
// within the 15 seconds that are allowed.
const recovery = 5 * time.Second

// RunUnderFaults is Run for d while a share of all storage calls goes wrong and
// an instance is killed every fifth of d, another taking its place. Errors are
// tolerated meanwhile. Then the faults stop, and within 5 seconds every answer is
// exact again: a short Run shows that.
func (c *Chaos) RunUnderFaults(d time.Duration, share float64) {
	c.tolerant.Store(true)
	for _, in := range c.kills {
		in.Add(faulty.Storm(share, 10*time.Millisecond)...)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 4 {
			_ = c.src.Sleep(context.Background(), d/5)
			c.replace(i%len(c.kills), share)
		}
	})
	c.Run(d)
	wg.Wait()
	began := c.src.Now().Mono
	for _, in := range c.kills {
		in.Clear()
		in.Wait()
	}
	_ = c.src.Sleep(context.Background(), began+recovery-c.src.Now().Mono)
	c.tolerant.Store(false)
	c.Run(time.Second)
}

// replace kills an instance and puts a fresh one into its place.
func (c *Chaos) replace(i int, share float64) {
	c.kills[i].Kill()
	db, in := c.instance(i)
	in.Add(faulty.Storm(share, 10*time.Millisecond)...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dbs[i], c.kills[i] = db, in
}

// Settle ends all splits and checks what is left, as a fresh instance sees it.
func (c *Chaos) Settle() {
	ctx := context.Background()
	db, _ := c.instance(0)
	h, err := db.Open(ctx, "chaos")
	if err != nil {
		c.tb.Fatal(err)
	}
	active, done := c.finish(ctx, db, h)
	if active != 0 {
		c.tb.Fatalf("%d splits do not end", active)
	}
	c.count(ctx, h)
	c.scan(ctx, h)
	for i := range universe {
		it, ok, err := h.Get(ctx, keyOf(i), tree.ReadOptions{})
		if err != nil {
			c.tb.Errorf("key %d: %v", i, err)
			continue
		}
		c.check(keyOf(i), it.Value, ok, "in the end")
		if it.Version.Compare(c.acked[i]) < 0 {
			c.tb.Errorf("key %d ends as version %s, a write of %s was acknowledged", i, it.Version, c.acked[i])
		}
	}
	if c.refused.Load() > c.ops.Load()/20 {
		c.tb.Errorf("%d of %d operations were told to try again", c.refused.Load(), c.ops.Load())
	}
	c.tb.Logf("%d operations, %d asked to try again, %d splits, %d shards", c.ops.Load(), c.refused.Load(), done, len(h.ShardMap().Shards()))
	if c.ops.Load() == 0 || done == 0 {
		c.tb.Error("nothing happened")
	}
}

// finish drives the splits on until none is left or it takes too long.
func (c *Chaos) finish(ctx context.Context, db *tree.DB, h *tree.Tree) (left, done int) {
	for range 200 {
		if _, err := db.Migrations(ctx, time.Second); err != nil {
			c.tb.Fatal(err)
		}
		active, over, err := h.Splits(ctx)
		if err != nil {
			c.tb.Fatal(err)
		}
		if left, done = len(active), len(over); left == 0 {
			break
		}
		_ = c.src.Sleep(ctx, 100*time.Millisecond)
	}
	return left, done
}
