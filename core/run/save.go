package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// Save writes the manifest of a view under a fresh name, and the index blob if
// it is time, and returns the view with that name. Both are durable on return.
// A view that has a name is returned as it is.
//
// The view is meant to take the place of old: what old refers to and it does
// not is remembered in the manifest for the grace period (see Dropped).
func (s *Store) Save(ctx context.Context, old, set *Set, grace time.Duration) (*Set, error) {
	if set.name != "" {
		return set, nil
	}
	saved, err := s.settle(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("save: %w", err)
	}
	saved.dropped = saved.dropsSince(old, s.Clock.Now().Milli(), grace)
	saved.name = s.newName(KindManifest)
	if err := s.put(ctx, saved.name, encodeManifest(saved)); err != nil {
		return nil, fmt.Errorf("save: %w", err)
	}
	return saved, nil
}

// settle returns a copy of the view in which the manifest holds few leaves.
func (s *Store) settle(ctx context.Context, set *Set) (*Set, error) {
	n := *set
	inline, settled := 0, 0
	for _, r := range set.runs {
		for i := range r.Leaves[r.settled:] {
			inline += leafSize(&r.Leaves[r.settled+i])
		}
		settled += r.settled
	}
	if settled == 0 {
		n.index = indexRef{}
	}
	if inline <= maxInline(n.index.bytes) && n.index.leaves <= 2*settled {
		return &n, nil
	}
	return s.rewriteIndex(ctx, &n)
}

const (
	// minInline is the index in a manifest, in bytes, that is never worth an
	// index blob.
	minInline = 64 << 10
	// perFlush is what one flush of a MiB or so adds to the indexes, filters
	// included.
	perFlush = 16 << 10
)

// maxInline returns how many bytes of index a manifest may hold beside an index
// blob of a given size. Every save writes the manifest, about half full; every
// so many saves the index is rewritten. The sum of both is least at
// sqrt(2 × index × growth per save).
func maxInline(indexBytes int) int {
	return max(minInline, int(math.Sqrt(2*perFlush*float64(indexBytes))))
}

// rewriteIndex moves all leaves of all runs to a new index blob.
func (s *Store) rewriteIndex(ctx context.Context, n *Set) (*Set, error) {
	runs := make([]*Run, len(n.runs))
	ix := &index{name: s.newName(KindIndex), slots: make([][]Leaf, len(n.runs))}
	n.index = indexRef{name: ix.name}
	for i, r := range n.runs {
		settled := *r
		settled.slot, settled.settled = i, len(r.Leaves)
		runs[i], ix.slots[i] = &settled, r.Leaves
		n.index.leaves += len(r.Leaves)
	}
	n.runs = runs
	var blob []byte
	blob, n.index.bytes = encodeIndex(ix.slots)
	if err := s.put(ctx, ix.name, blob); err != nil {
		return nil, err
	}
	s.lastIndex.Store(ix)
	return n, nil
}

// Open reads a view by the name of its manifest; the name "" is the empty view.
// It takes one read, and one more if there is an index blob that this Store did
// not read or write last. A missing blob is store.ErrNotFound, naming it; a
// damaged one store.ErrCorrupt.
func (s *Store) Open(ctx context.Context, name string) (*Set, error) {
	if name == "" {
		return s.Empty(), nil
	}
	data, _, err := s.Blobs.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", name, err)
	}
	set, err := decodeManifest(name, data)
	if err != nil {
		return nil, err
	}
	set.store = s
	ix, err := s.openIndex(ctx, set.index.name)
	if err != nil {
		return nil, err
	}
	for i, r := range set.runs {
		if set.runs[i], err = r.join(ix); err != nil {
			return nil, store.Corruptf("manifest %q, run %d: %v", name, i, err)
		}
	}
	return set, nil
}

// openIndex reads an index blob; nil if the name is empty.
func (s *Store) openIndex(ctx context.Context, name string) (*index, error) {
	if name == "" {
		return nil, nil
	}
	if ix := s.lastIndex.Load(); ix != nil && ix.name == name {
		return ix, nil
	}
	data, _, err := s.Blobs.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read index %q: %w", name, err)
	}
	ix, err := decodeIndex(name, data)
	if err != nil {
		return nil, err
	}
	s.lastIndex.Store(ix)
	return ix, nil
}

// Discard deletes the blobs of a view that lost a race or was abandoned, except
// those that the view it was made from refers to, and large values, which the
// log refers to. It is a courtesy to the collector, which finds the rest.
func (s *Store) Discard(ctx context.Context, from, lost *Set) error {
	keep := map[string]bool{}
	from.ownBlobs(func(name string) bool { keep[name] = true; return true }, false)
	var errs []error
	lost.ownBlobs(func(name string) bool {
		if !keep[name] {
			keep[name] = true
			if err := s.Blobs.Delete(ctx, name); err != nil && !errors.Is(err, store.ErrNotFound) {
				errs = append(errs, fmt.Errorf("discard %q: %w", name, err))
			}
		}
		return ctx.Err() == nil
	}, false)
	return errors.Join(errs...)
}
