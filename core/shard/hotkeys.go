package shard

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/latticekv/lattice/core/leaf"
)

const (
	// sampledOne: about one in so many operations is looked at.
	sampledOne = 64
	// sketchKeys is the number of keys that a shard keeps count of. Every key
	// with more than that share of the samples is among them.
	sketchKeys = 32
	// sketchSamples is the number of samples at which all counts are halved, so
	// that what was hot once is forgotten.
	sketchSamples = 2048
	// minHotSamples is how often a key must have been seen to be told of.
	minHotSamples = 8
)

// HotKey is a key that many operations of a shard are for.
type HotKey struct {
	Key string
	// Share is the key's part of the operations as this instance sampled them
	// lately, never underestimated; Certain is the part that is not an
	// artefact of counting few keys.
	Share, Certain float64
}

// heat samples operations to find the keys that most of them are for. To count
// an operation takes one atomic subtraction; the gaps between samples vary, so
// that a workload with a rhythm does not hide from them.
type heat struct {
	// left counts down to the next sample.
	left   atomic.Int64
	mu     sync.Mutex
	chance uint64
	sketch *sketch // nil before the first sample
}

// touch counts an operation on a key. It allocates nothing, except for keys
// longer than those met before.
func (h *heat) touch(key string) {
	if h.left.Add(-1) < 0 {
		h.sample(key)
	}
}

// sample looks at an operation, unless another is being looked at.
func (h *heat) sample(key string) {
	if !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	if h.left.Load() >= 0 {
		return
	}
	if h.sketch == nil {
		h.sketch = &sketch{}
	}
	h.sketch.add(key)
	h.left.Store(h.gap())
}

// gap draws the operations to be passed over, sampledOne-1 on average, by
// xorshift (Marsaglia, 2003).
func (h *heat) gap() int64 {
	x := max(h.chance, 1)
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	h.chance = x
	return int64((x >> 11) % (2*sampledOne - 1))
}

// HotKeys returns the keys that are certain to be hot among the operations that
// this instance passed to the shard lately, the hottest first: none if the load
// is spread over many keys. It does no I/O.
func (s *Shard) HotKeys() []HotKey {
	s.heat.mu.Lock()
	defer s.heat.mu.Unlock()
	if s.heat.sketch == nil {
		return nil
	}
	return s.heat.sketch.hot()
}

// sketch counts the most frequent keys of a stream in bounded memory: the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi, "Efficient
// computation of frequent and top-k elements in data streams", 2005.
type sketch struct {
	counters [sketchKeys]keyCount
	used     int
	total    uint32 // the sum of all counts
}

// keyCount is one counter. The key occurred at most count times, and at least
// count less over.
type keyCount struct {
	hash        uint64
	count, over uint32
	key         []byte // of the counter's own, and reused
}

// add counts an occurrence. A key without a counter takes over the smallest.
func (k *sketch) add(key string) {
	c := k.counter(leaf.Hash(key), key)
	c.count++
	if k.total++; k.total >= sketchSamples {
		k.fade()
	}
}

func (k *sketch) counter(hash uint64, key string) *keyCount {
	least := 0
	for i := range k.used {
		c := &k.counters[i]
		if c.hash == hash && string(c.key) == key {
			return c
		}
		if c.count < k.counters[least].count {
			least = i
		}
	}
	if k.used < sketchKeys {
		least = k.used
		k.used++
	}
	c := &k.counters[least]
	c.hash, c.over, c.key = hash, c.count, append(c.key[:0], key...)
	return c
}

// fade halves all counts.
func (k *sketch) fade() {
	k.total = 0
	for i := range k.used {
		c := &k.counters[i]
		c.count /= 2
		c.over /= 2
		k.total += c.count
	}
}

// hot returns the keys whose part of the samples is certain to exceed what any
// of very many keys might seem to have.
func (k *sketch) hot() []HotKey {
	var out []HotKey
	for _, c := range k.counters[:k.used] {
		if certain := c.count - c.over; certain >= max(minHotSamples, k.total/sketchKeys) {
			out = append(out, HotKey{
				Key:   string(c.key),
				Share: float64(c.count) / float64(k.total), Certain: float64(certain) / float64(k.total),
			})
		}
	}
	slices.SortFunc(out, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Key, b.Key))
	})
	return out
}
