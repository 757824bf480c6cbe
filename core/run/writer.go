package run

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// writer turns entries in key order into leaves and writes them, several at
// once. Its leaves are durable when wait has returned nil.
type writer struct {
	store   *Store
	ctx     context.Context // of the blob writes; dies with the first failure
	puts    *errgroup.Group
	builder leaf.Builder
	target  int
	leaves  []Leaf
}

func (s *Store) newWriter(ctx context.Context, filtered bool) *writer {
	puts, ctx := errgroup.WithContext(ctx)
	puts.SetLimit(s.Options.parallelPuts())
	return &writer{
		store: s, ctx: ctx, puts: puts, target: s.Options.leafTarget(),
		builder: leaf.Builder{Filtered: filtered},
	}
}

// add adds an entry, beginning a new leaf if the last one is full.
func (w *writer) add(e *record.Entry) error {
	if w.builder.Len() > 0 && w.builder.Size()+leaf.EntrySize(e) > w.target {
		w.cut()
	}
	if n := len(w.leaves); n > 0 && w.builder.Len() == 0 && e.Key <= w.leaves[n-1].Last {
		return fmt.Errorf("first key of leaf %d is not above the leaf before: %w", n, store.ErrInvalid)
	}
	return w.builder.Add(e)
}

// addPage adds all entries of a page to the present leaf.
func (w *writer) addPage(p *leaf.Page) error {
	var e record.Entry
	for i := range p.Len() {
		p.Entry(i, &e)
		if err := w.builder.Add(&e); err != nil {
			return err
		}
	}
	return nil
}

// cut ends the present leaf, if it has entries, and begins to write it.
func (w *writer) cut() {
	if w.builder.Len() == 0 {
		return
	}
	filter := w.builder.Filter()
	blob, sum := w.builder.Finish()
	l := Leaf{Blob: w.store.newName(KindLeaf), Size: int64(len(blob)), Summary: sum, Filter: filter}
	w.leaves = append(w.leaves, l)
	w.puts.Go(func() error { return w.store.put(w.ctx, l.Blob, blob) })
}

// carry takes over a leaf that exists.
func (w *writer) carry(l Leaf) {
	w.cut()
	if !w.builder.Filtered {
		l.Filter = nil
	}
	w.leaves = append(w.leaves, l)
}

// wait ends the last leaf and returns all of them once they are durable.
func (w *writer) wait() ([]Leaf, error) {
	w.cut()
	return w.leaves, w.puts.Wait()
}

// abandon waits for the writes begun and returns what went wrong first: a write
// that failed has cancelled whatever else the caller met.
func (w *writer) abandon(err error) error {
	if werr := w.puts.Wait(); werr != nil {
		return werr
	}
	return err
}
