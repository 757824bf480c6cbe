package tree_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// universe is the number of keys of the chaos: they always exist.
const universe = 500

func keyOf(i int) string { return fmt.Sprintf("key-%05d", i) }

// envelope is a value that says whose it is and how old: a reader can tell a
// foreign or an older one.
func envelope(key string, n int64) []byte { return fmt.Appendf(nil, "%s|%d|%s", key, n, key) }

func opened(key string, value []byte) (n int64, ok bool) {
	parts := strings.Split(string(value), "|")
	if len(parts) != 3 || parts[0] != key || parts[2] != key {
		return 0, false
	}
	_, err := fmt.Sscan(parts[1], &n)
	return n, err == nil
}

// chaos is many clients of several instances over one store, while shards are
// split under them: at every moment every count and every scan is exact.
type chaos struct {
	t     *testing.T
	src   clock.Source
	rnd   *rand.Rand
	mu    sync.Mutex
	dbs   []*tree.DB
	kills []*faulty.Instance
	mem   *memory.Store
	// written is the number last acknowledged for each key, next the next one.
	written [universe]atomic.Int64
	next    atomic.Int64
	// tolerant says that errors are expected: storage is failing.
	tolerant atomic.Bool
	ops      atomic.Int64
}

func (c *chaos) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func (c *chaos) db() *tree.DB {
	i := c.intn(len(c.dbs))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dbs[i]
}

func (c *chaos) tree(ctx context.Context) (*tree.Tree, error) {
	return c.db().OpenOrCreate(ctx, "chaos")
}

// instance makes an instance behind faults of its own.
func (c *chaos) instance(edit func(*options.Options)) (*tree.DB, *faulty.Instance) {
	in := faulty.New(c.mem.Table(), c.mem.Blobs(), faulty.Options{Clock: c.src})
	in.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
	o := options.Default()
	o.DefaultShardCount, o.CheckpointTailRows, o.SplitDrainBatchSize = 2, 30, 37
	o.WalGracePeriod, o.BlobGracePeriod, o.RequestTimeout = time.Second, 20*time.Second, 10*time.Second
	edit(&o)
	db, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: c.src, Options: o})
	if err != nil {
		c.t.Fatal(err)
	}
	return db, in
}

func newChaos(t *testing.T, seed uint64, instances int, edit func(i int, o *options.Options)) *chaos {
	src := clock.NewSystem()
	c := &chaos{t: t, src: src, rnd: rand.New(rand.NewPCG(seed, 7)), mem: memory.New(memory.Options{Clock: src})}
	for i := range instances {
		db, in := c.instance(func(o *options.Options) { edit(i, o) })
		c.dbs, c.kills = append(c.dbs, db), append(c.kills, in)
	}
	h, err := c.tree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ops []tree.BatchOp
	for i := range universe {
		ops = append(ops, tree.BatchOp{Key: keyOf(i), Value: envelope(keyOf(i), 0)})
	}
	if _, err := h.Batch(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	return c
}

// failed reports an error unless storage is failing.
func (c *chaos) failed(what string, err error) bool {
	if err != nil && !c.tolerant.Load() {
		c.t.Errorf("%s: %v", what, err)
	}
	return err != nil
}

func (c *chaos) write(ctx context.Context, h *tree.Tree) {
	i, n := c.intn(universe), c.next.Add(1)
	_, err := h.Put(ctx, keyOf(i), envelope(keyOf(i), n), tree.PutOptions{})
	if !c.failed("put", err) {
		c.acknowledge(i, n)
	}
}

// acknowledge notes a write whose success was told. Numbers grow, but writes of
// one key may be told in another order.
func (c *chaos) acknowledge(i int, n int64) {
	for {
		old := c.written[i].Load()
		if n <= old || c.written[i].CompareAndSwap(old, n) {
			return
		}
	}
}

func (c *chaos) writeBatch(ctx context.Context, h *tree.Tree) {
	first, n := c.intn(universe-20), c.next.Add(1)
	var ops []tree.BatchOp
	for i := first; i < first+20; i++ {
		ops = append(ops, tree.BatchOp{Key: keyOf(i), Value: envelope(keyOf(i), n)})
	}
	res, err := h.Batch(ctx, ops)
	if c.failed("batch", err) {
		return
	}
	for i, r := range res {
		if r.Err != nil {
			c.t.Errorf("batch: key %d: %v", first+i, r.Err)
		}
		c.acknowledge(first+i, n)
	}
}

func (c *chaos) read(ctx context.Context, h *tree.Tree) {
	i := c.intn(universe)
	it, ok, err := h.Get(ctx, keyOf(i), tree.ReadOptions{})
	if c.failed("get", err) {
		return
	}
	c.check(keyOf(i), it.Value, ok, "get")
}

func (c *chaos) check(key string, value []byte, ok bool, what string) {
	if _, whole := opened(key, value); !ok || !whole {
		c.t.Errorf("%s: key %s: there %v, value %q", what, key, ok, value)
	}
}

func (c *chaos) readBatch(ctx context.Context, h *tree.Tree) {
	var keys []string
	for range 30 {
		keys = append(keys, keyOf(c.intn(universe)))
	}
	items, err := h.GetMany(ctx, keys, tree.ReadOptions{})
	if c.failed("batch get", err) {
		return
	}
	if len(items) != len(keys) {
		c.t.Errorf("batch get of %d keys found %d", len(keys), len(items))
	}
	for _, it := range items {
		c.check(it.Key, it.Value, true, "batch get")
	}
}

func (c *chaos) count(ctx context.Context, h *tree.Tree) {
	n, err := h.Count(ctx, tree.Bounds{}, tree.ReadOptions{})
	if !errors.Is(err, tree.ErrTopologyUnstable) && !c.failed("count", err) && n.Total != universe {
		c.t.Errorf("count is %d", n.Total)
	}
}

// scan reads everything, or a range, forward or back, in pages or as a stream.
func (c *chaos) scan(ctx context.Context, h *tree.Tree) {
	lo, hi := 0, universe
	if c.intn(2) == 0 {
		lo, hi = 100, 300
	}
	q := tree.ScanQuery{Bounds: tree.Bounds{From: keyOf(lo), To: keyOf(hi)}, Reverse: c.intn(2) == 0, Limit: 60}
	var keys []string
	add := func(it *tree.Item) error {
		c.check(it.Key, it.Value, true, "scan")
		keys = append(keys, it.Key)
		return nil
	}
	var err error
	if c.intn(2) == 0 {
		_, err = h.Stream(ctx, q, add)
	} else {
		err = pages(ctx, h, q, add)
	}
	if c.failed("scan", err) {
		return
	}
	if len(keys) != hi-lo {
		c.t.Errorf("a scan of %d keys has %d (reverse %v)", hi-lo, len(keys), q.Reverse)
	}
	for i := range min(len(keys), hi-lo) {
		want := keyOf(lo + i)
		if q.Reverse {
			want = keyOf(hi - 1 - i)
		}
		if keys[i] != want {
			c.t.Errorf("a scan has %s at place %d instead of %s", keys[i], i, want)
			return
		}
	}
}

func pages(ctx context.Context, h *tree.Tree, q tree.ScanQuery, add func(*tree.Item) error) error {
	for {
		p, err := h.Scan(ctx, q)
		if err != nil {
			return err
		}
		for i := range p.Items {
			if err := add(&p.Items[i]); err != nil {
				return err
			}
		}
		if q.Token = p.NextToken; q.Token == "" {
			return nil
		}
	}
}

// run lets 16 clients loose for a while.
func (c *chaos) run(d time.Duration) {
	kinds := []func(*chaos, context.Context, *tree.Tree){
		(*chaos).write, (*chaos).write, (*chaos).writeBatch, (*chaos).read, (*chaos).read,
		(*chaos).readBatch, (*chaos).count, (*chaos).scan, (*chaos).scan,
	}
	end := c.src.Now().Mono + d
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for c.src.Now().Mono < end && !c.t.Failed() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if h, err := c.tree(ctx); !c.failed("open", err) {
					kinds[c.intn(len(kinds))](c, ctx, h)
					c.ops.Add(1)
				}
				cancel()
				_ = c.src.Sleep(context.Background(), time.Duration(c.intn(10))*time.Millisecond)
			}
		})
	}
	wg.Go(func() { c.force(end) })
	for range 2 {
		wg.Go(func() { c.tick(end) })
	}
	wg.Wait()
}

// force splits a random shard every half second.
func (c *chaos) force(end time.Duration) {
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
func (c *chaos) tick(end time.Duration) {
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

// settle ends all splits and checks what is left.
func (c *chaos) settle() {
	ctx := context.Background()
	db, _ := c.instance(func(*options.Options) {})
	h, err := db.Open(ctx, "chaos")
	if err != nil {
		c.t.Fatal(err)
	}
	for range 200 {
		if _, err := db.Migrations(ctx, time.Second); err != nil {
			c.t.Fatal(err)
		}
		active, _, err := h.Splits(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(active) == 0 {
			break
		}
		_ = c.src.Sleep(ctx, 100*time.Millisecond)
	}
	active, done, err := h.Splits(ctx)
	if err != nil || len(active) != 0 {
		c.t.Fatalf("%d splits do not end, %v", len(active), err)
	}
	c.count(ctx, h)
	c.scan(ctx, h)
	for i := range universe {
		it, ok, err := h.Get(ctx, keyOf(i), tree.ReadOptions{})
		n, whole := opened(keyOf(i), it.Value)
		if err != nil || !ok || !whole || n < c.written[i].Load() && !c.unordered() {
			c.t.Errorf("key %d: there %v, number %d, acknowledged %d, %v", i, ok, n, c.written[i].Load(), err)
		}
	}
	c.t.Logf("%d operations, %d splits, %d shards", c.ops.Load(), len(done), len(h.ShardMap().Shards()))
}

// unordered says that the highest number of a key need not be the last written:
// two clients may write it at once.
func (c *chaos) unordered() bool { return true }

func TestChaosOfSplits(t *testing.T) {
	modes := map[string]func(i int, o *options.Options){
		"without leases": func(int, *options.Options) {},
		"mixed leases": func(i int, o *options.Options) {
			o.Leases, o.LeaseDuration, o.LeaseContentionBackoff = i == 0, 2*time.Second, time.Second
		},
	}
	for name, edit := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, 1, 3, edit)
				c.run(10 * time.Second)
				c.settle()
			})
		})
	}
}

// The same with storage that fails in every way and instances that are killed:
// errors are tolerated meanwhile, and everything is exact soon after.
func TestChaosOfSplitsUnderFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChaos(t, 2, 3, func(int, *options.Options) {})
		c.tolerant.Store(true)
		for _, in := range c.kills {
			in.Add(faulty.Storm(0.1, 10*time.Millisecond)...)
		}
		go func() {
			for i := range 4 {
				_ = c.src.Sleep(context.Background(), 2*time.Second)
				c.kills[i%3].Kill()
				db, in := c.instance(func(*options.Options) {})
				in.Add(faulty.Storm(0.1, 10*time.Millisecond)...)
				c.mu.Lock()
				c.dbs[i%3], c.kills[i%3] = db, in
				c.mu.Unlock()
			}
		}()
		c.run(10 * time.Second)
		for _, in := range c.kills {
			in.Clear()
			in.Wait()
		}
		_ = c.src.Sleep(context.Background(), 10*time.Second)
		c.tolerant.Store(false)
		c.run(time.Second)
		c.settle()
	})
}
