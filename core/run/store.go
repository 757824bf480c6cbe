package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/store"
)

// The kinds of blob that a Store writes, as NewName is told them.
const (
	KindLeaf     = "leaf"
	KindIndex    = "index"
	KindManifest = "manifest"
)

// Options tune a Store. The zero value is usable.
type Options struct {
	// LeafTarget is the uncompressed size of a full leaf in bytes. Default
	// leaf.DefaultTarget; at most leaf.MaxPayload / 4.
	LeafTarget int
	// ParallelPuts bounds the blobs written at once. Default 8.
	ParallelPuts int
	// ParallelReads bounds the leaves that a cold scan reads at once; a merge
	// reads half as many ahead. Default 8.
	ParallelReads int
	// PutAttempts bounds how often a write is tried whose outcome is unknown,
	// or that is throttled. Default 5.
	PutAttempts int
	// TierUnit is the size in bytes below which a flushed run counts as of
	// level 0; each level is TierFactor times larger. Default 1 MiB.
	TierUnit int64
}

// TierFactor is the ratio between the sizes of neighbouring levels.
const TierFactor = 8

func (o Options) leafTarget() int {
	if o.LeafTarget <= 0 {
		return leaf.DefaultTarget
	}
	return min(o.LeafTarget, leaf.MaxPayload/4)
}

func (o Options) parallelPuts() int { return orDefault(o.ParallelPuts, 8) }

func (o Options) parallelReads() int { return orDefault(o.ParallelReads, 8) }

func (o Options) putAttempts() int { return orDefault(o.PutAttempts, 5) }

func (o Options) tierUnit() int64 { return orDefault(o.TierUnit, 1<<20) }

func orDefault[T int | int64 | float64](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Store reads and writes the runs of one shard. Its fields must not change
// after the first use; then it is safe for concurrent use.
type Store struct {
	// Blobs holds everything.
	Blobs store.BlobStore
	// Cache keeps decoded leaves; it may be shared by all shards.
	Cache *leaf.Cache
	// Clock paces retries and decides what has expired.
	Clock clock.Source
	// Prefix begins every blob name.
	Prefix string
	// NewName returns the rest of a name that was never used before, for a
	// blob of the given kind.
	NewName func(kind string) string
	// Options tune.
	Options Options

	// lastIndex is the index blob read or written last: views that follow each
	// other mostly share it.
	lastIndex atomic.Pointer[index]
}

// page returns the page of a leaf through the cache.
func (s *Store) page(ctx context.Context, l *Leaf) (*leaf.Page, error) {
	if p, ok := s.Cache.Lookup(l.Blob); ok {
		return p, nil
	}
	return s.Cache.Get(ctx, l.Blob, func(ctx context.Context) (*leaf.Page, error) {
		return s.readPage(ctx, l)
	})
}

// adopt gives a cursor the page of its leaf if it is in memory.
func (s *Store) adopt(c *cursor) bool {
	page, ok := s.Cache.Lookup(c.leaves[c.at].Blob)
	if ok {
		c.stand(page)
	}
	return ok
}

// pageOnce returns the page of a leaf that will not be needed again: a merge
// must not drive out of the cache what readers use.
func (s *Store) pageOnce(ctx context.Context, l *Leaf) (*leaf.Page, error) {
	if p, ok := s.Cache.Lookup(l.Blob); ok {
		return p, nil
	}
	return s.readPage(ctx, l)
}

// readPage reads a leaf and checks that it is the one that the index describes.
func (s *Store) readPage(ctx context.Context, l *Leaf) (*leaf.Page, error) {
	data, _, err := s.Blobs.Get(ctx, l.Blob)
	if err != nil {
		return nil, fmt.Errorf("read leaf %q: %w", l.Blob, err)
	}
	p, err := leaf.Decode(l.Blob, data)
	if err != nil {
		return nil, err
	}
	if n := p.Len(); n != l.Entries || n == 0 || p.Key(0) != l.First || p.Key(n-1) != l.Last {
		return nil, store.Corruptf("leaf %q holds %d entries, not those of the index, which has %d", l.Blob, n, l.Entries)
	}
	return p, nil
}

// newName returns a fresh blob name.
func (s *Store) newName(kind string) string { return s.Prefix + s.NewName(kind) }

// firstPause is the wait before the second attempt of a write; it doubles.
const firstPause = 50 * time.Millisecond

// put writes a blob under a fresh name. That the name exists already can only
// be the echo of an earlier attempt.
func (s *Store) put(ctx context.Context, name string, data []byte) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		_, err := s.Blobs.Put(ctx, name, data, store.Create)
		if err == nil || errors.Is(err, store.ErrExists) {
			return nil
		}
		again := errors.Is(err, store.ErrOutcomeUnknown) || store.Transient(err)
		if !again || attempt >= s.Options.putAttempts() {
			return fmt.Errorf("write %q: %w", name, err)
		}
		wait := max(clock.Jitter(s.Clock, pause), store.RetryAfter(err))
		if serr := s.Clock.Sleep(ctx, wait); serr != nil {
			return fmt.Errorf("write %q: %w", name, errors.Join(err, serr))
		}
		pause *= 2
	}
}
