package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
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

// failed reports an error unless storage is failing, or it is one of those that
// the interface documents for a topology that moves: the caller is told to try
// again. Those are counted.
func (c *Chaos) failed(what string, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, tree.ErrRoutingUnstable), errors.Is(err, tree.ErrTopologyUnstable):
		c.refused.Add(1)
	case !c.tolerant.Load():
		c.tb.Errorf("%s: %v", what, err)
	}
	return true
}

func (c *Chaos) write(ctx context.Context, h *tree.Tree) {
	i, n := c.intn(universe), c.next.Add(1)
	r, err := h.Put(ctx, keyOf(i), envelope(keyOf(i), n), tree.PutOptions{})
	if !c.failed("put", err) {
		c.acknowledge(i, r.Version)
	}
}

// acknowledge notes a write whose success was told: from then on the key has
// that version or a later one.
func (c *Chaos) acknowledge(i int, v clock.Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acked[i].Compare(v) < 0 {
		c.acked[i] = v
	}
}

func (c *Chaos) writeBatch(ctx context.Context, h *tree.Tree) {
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
			c.tb.Errorf("batch: key %d: %v", first+i, r.Err)
			continue
		}
		c.acknowledge(first+i, r.Version)
	}
}

func (c *Chaos) read(ctx context.Context, h *tree.Tree) {
	i := c.intn(universe)
	c.mu.Lock()
	least := c.acked[i]
	c.mu.Unlock()
	it, ok, err := h.Get(ctx, keyOf(i), tree.ReadOptions{})
	if c.failed("get", err) {
		return
	}
	c.check(keyOf(i), it.Value, ok, "get")
	if it.Version.Compare(least) < 0 {
		c.tb.Errorf("get: key %d has version %s, a write of %s was acknowledged", i, it.Version, least)
	}
}

func (c *Chaos) check(key string, value []byte, ok bool, what string) {
	if _, whole := opened(key, value); !ok || !whole {
		c.tb.Errorf("%s: key %s: there %v, value %q", what, key, ok, value)
	}
}

func (c *Chaos) readBatch(ctx context.Context, h *tree.Tree) {
	var keys []string
	for range 30 {
		keys = append(keys, keyOf(c.intn(universe)))
	}
	items, err := h.GetMany(ctx, keys, tree.ReadOptions{})
	if c.failed("batch get", err) {
		return
	}
	if len(items) != len(keys) {
		c.tb.Errorf("batch get of %d keys found %d", len(keys), len(items))
	}
	for _, it := range items {
		c.check(it.Key, it.Value, true, "batch get")
	}
}

func (c *Chaos) count(ctx context.Context, h *tree.Tree) {
	n, err := h.Count(ctx, tree.Bounds{}, tree.ReadOptions{})
	if errors.Is(err, tree.ErrTopologyUnstable) {
		c.refused.Add(1)
		return
	}
	if !c.failed("count", err) && n.Total != universe {
		c.tb.Errorf("count is %d", n.Total)
	}
}

// scan reads everything, or a range, forward or back, in pages or as a stream.
func (c *Chaos) scan(ctx context.Context, h *tree.Tree) {
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
		c.tb.Errorf("a scan of %d keys has %d (reverse %v)", hi-lo, len(keys), q.Reverse)
	}
	for i := range min(len(keys), hi-lo) {
		want := keyOf(lo + i)
		if q.Reverse {
			want = keyOf(hi - 1 - i)
		}
		if keys[i] != want {
			c.tb.Errorf("a scan has %s at place %d instead of %s", keys[i], i, want)
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

// kinds are what a client does next, one as likely as another.
var kinds = []func(*Chaos, context.Context, *tree.Tree){
	(*Chaos).write, (*Chaos).write, (*Chaos).writeBatch, (*Chaos).read, (*Chaos).read,
	(*Chaos).readBatch, (*Chaos).count, (*Chaos).scan, (*Chaos).scan,
}

// client does one thing after another.
func (c *Chaos) client(end time.Duration) {
	for c.src.Now().Mono < end && !c.tb.Failed() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		if h, err := c.tree(ctx); !c.failed("open", err) {
			kinds[c.intn(len(kinds))](c, ctx, h)
			c.ops.Add(1)
		}
		cancel()
		_ = c.src.Sleep(context.Background(), time.Duration(c.intn(10))*time.Millisecond)
	}
}
