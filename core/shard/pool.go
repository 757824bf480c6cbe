package shard

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/latticekv/lattice/core/leaf"
)

// Pool is the shards that one instance has in memory, one object for each
// partition, with the caches they share. It is safe for concurrent use.
type Pool struct {
	cfg    Config
	cache  *leaf.Cache
	names  nameSource
	mu     sync.Mutex
	shards map[string]*list.Element
	recent *list.List // of *Shard, most recently opened first

	mirrored, mirrorFailures atomic.Uint64
}

// Mirrored returns how many entries this instance has mirrored to targets of
// migrations, and how many times that failed and was left to the drain.
func (p *Pool) Mirrored() (entries, failures uint64) {
	return p.mirrored.Load(), p.mirrorFailures.Load()
}

// NewPool returns an empty pool, or every fault of the configuration.
func NewPool(cfg Config) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Pool{
		cfg:    cfg,
		cache:  leaf.NewCache(cfg.CacheBytes),
		names:  nameSource{clock: cfg.Clock, instance: cfg.Instance},
		shards: make(map[string]*list.Element),
		recent: list.New(),
	}, nil
}

// Shard returns the shard of a partition. It costs no storage operation; the
// shard opens on first use. At most MaxOpenShards are remembered: the one that
// was asked for least recently is forgotten, and opens anew when needed.
func (p *Pool) Shard(partition string) *Shard {
	p.mu.Lock()
	defer p.mu.Unlock()
	if el, ok := p.shards[partition]; ok {
		p.recent.MoveToFront(el)
		return el.Value.(*Shard)
	}
	s := newShard(p, partition)
	p.shards[partition] = p.recent.PushFront(s)
	for p.recent.Len() > p.cfg.MaxOpenShards {
		last := p.recent.Back()
		p.recent.Remove(last)
		delete(p.shards, last.Value.(*Shard).partition)
		last.Value.(*Shard).retire()
	}
	return s
}

// Close gives back the leases that the instance holds. The pool still serves,
// without leases. It returns the errors of all shards; a lease that could not be
// given back expires.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	var open []*Shard
	for el := p.recent.Front(); el != nil; el = el.Next() {
		open = append(open, el.Value.(*Shard))
	}
	p.mu.Unlock()
	var errs []error
	for _, s := range open {
		errs = append(errs, s.release(ctx))
	}
	return errors.Join(errs...)
}

// CacheStats describes the cache of leaves that the shards share.
func (p *Pool) CacheStats() leaf.Stats { return p.cache.Stats() }

// Forget drops a shard from memory, for one that was destroyed.
func (p *Pool) Forget(partition string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if el, ok := p.shards[partition]; ok {
		p.recent.Remove(el)
		delete(p.shards, partition)
		el.Value.(*Shard).retire()
	}
}
