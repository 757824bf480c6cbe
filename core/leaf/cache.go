package leaf

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Cache keeps decoded pages by blob name, bounded by bytes. Names are never
// reused, so what is cached is always right.
//
// Hits take no lock. Eviction is the CLOCK approximation of least recently
// used: a hand passes over the pages in a ring and evicts the first that was
// not hit since it passed last.
type Cache struct {
	limit int64
	items sync.Map // name to *item

	mu    sync.Mutex
	ring  []*item // loaded pages; hand is the next to be looked at
	hand  int
	bytes int64

	// What evicted pages were hit, and loads.
	hits, misses atomic.Int64
}

// item is one page, loaded or being loaded.
type item struct {
	name string
	done chan struct{} // closed when page, err and gaveUp are set
	page *Page
	err  error
	// gaveUp says that the context of the one who loaded ended, whatever the
	// error says: it is no answer for others.
	gaveUp bool
	size   int64
	hits   atomic.Int64
	seen   int64 // hits when the hand passed; guarded by Cache.mu
}

// Stats are counts of a Cache since it was made, and its present content.
type Stats struct {
	// Hits are look-ups answered from memory, Misses those that had to load.
	Hits, Misses int64
	// Pages and Bytes are what the cache holds now.
	Pages int
	Bytes int64
}

// itemOverhead estimates the bytes that an item takes beside its page.
const itemOverhead = 256

// NewCache returns a cache that keeps at most limit bytes of pages. With a
// limit of 0 it keeps nothing, but still joins concurrent loads of one page.
func NewCache(limit int64) *Cache { return &Cache{limit: limit} }

// Lookup returns a page that is in memory.
func (c *Cache) Lookup(name string) (*Page, bool) {
	v, ok := c.items.Load(name)
	if !ok {
		return nil, false
	}
	it := v.(*item)
	select {
	case <-it.done:
	default:
		return nil, false
	}
	if it.err != nil {
		return nil, false
	}
	it.hits.Add(1)
	return it.page, true
}

// Get returns the page of the name, calling load if it is not in memory. When
// several ask at once, one loads and the others wait for it, each no longer
// than its context; if the one that loads is cancelled, another takes over.
// Errors are passed on and not remembered.
func (c *Cache) Get(ctx context.Context, name string, load func(context.Context) (*Page, error)) (*Page, error) {
	for {
		mine := &item{name: name, done: make(chan struct{})}
		v, loaded := c.items.LoadOrStore(name, mine)
		if !loaded {
			return c.fill(ctx, mine, load)
		}
		it := v.(*item)
		select {
		case <-it.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if it.err == nil {
			it.hits.Add(1)
			return it.page, nil
		}
		if !it.gaveUp {
			return nil, it.err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
}

var errLoadPanicked = errors.New("loading the page panicked")

// fill loads the page of an item and wakes those who wait for it.
func (c *Cache) fill(ctx context.Context, it *item, load func(context.Context) (*Page, error)) (*Page, error) {
	c.misses.Add(1)
	it.err = errLoadPanicked
	defer func() {
		if it.err != nil {
			c.items.CompareAndDelete(it.name, it)
		}
		close(it.done)
	}()
	it.page, it.err = load(ctx)
	it.gaveUp = it.err != nil && ctx.Err() != nil
	if it.err == nil {
		it.size = int64(it.page.Bytes()+len(it.name)) + itemOverhead
		c.admit(it)
	}
	return it.page, it.err
}

// admit adds a loaded page to the ring and evicts others until it fits.
func (c *Cache) admit(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.size > c.limit {
		c.items.CompareAndDelete(it.name, it)
		return
	}
	for c.bytes+it.size > c.limit {
		c.evict()
	}
	c.ring = append(c.ring, it)
	c.bytes += it.size
}

// evict removes the next page that was not hit since the hand passed. Whoever
// still reads it may go on. The bound on passes keeps steady hits from holding
// the hand up for ever.
func (c *Cache) evict() {
	for range 2 * len(c.ring) {
		c.hand %= len(c.ring)
		if it := c.ring[c.hand]; it.hits.Load() == it.seen {
			break
		}
		c.ring[c.hand].seen = c.ring[c.hand].hits.Load()
		c.hand++
	}
	c.hand %= len(c.ring)
	victim, last := c.ring[c.hand], len(c.ring)-1
	c.ring[c.hand] = c.ring[last]
	c.ring[last] = nil
	c.ring = c.ring[:last]
	c.bytes -= victim.size
	c.hits.Add(victim.hits.Load())
	c.items.CompareAndDelete(victim.name, victim)
}

// Stats returns the counts. Hits of pages that were being evicted meanwhile may
// be missing.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Hits: c.hits.Load(), Misses: c.misses.Load(), Pages: len(c.ring), Bytes: c.bytes}
	for _, it := range c.ring {
		s.Hits += it.hits.Load()
	}
	return s
}
