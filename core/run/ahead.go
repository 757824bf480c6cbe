package run

import (
	"context"
	"maps"
	"sync"

	"github.com/latticekv/lattice/core/leaf"
)

// ahead reads the leaves that follow in a run while the present one is worked
// on. A merge uses it for its largest input, most of which it reads.
type ahead struct {
	read   reader
	leaves []Leaf
	depth  int

	reads   sync.WaitGroup
	pending map[int]*fetch
}

// fetch is the reading of one leaf.
type fetch struct {
	done chan struct{} // closed when page and err are set
	page *leaf.Page
	err  error
}

// page returns leaf i, and begins to read the next ones.
func (a *ahead) page(ctx context.Context, i int) (*leaf.Page, error) {
	maps.DeleteFunc(a.pending, func(at int, _ *fetch) bool { return at < i })
	for at := i; at <= i+a.depth && at < len(a.leaves); at++ {
		if a.pending[at] == nil {
			a.pending[at] = a.begin(ctx, at)
		}
	}
	f := a.pending[i]
	<-f.done // reads end with their context
	return f.page, f.err
}

func (a *ahead) begin(ctx context.Context, at int) *fetch {
	f := &fetch{done: make(chan struct{})}
	a.reads.Go(func() {
		defer close(f.done)
		f.page, f.err = a.read(ctx, &a.leaves[at])
	})
	return f
}

// wait returns when no read goes on; the caller ends their context before.
func (a *ahead) wait() { a.reads.Wait() }
