package shard

import (
	"context"

	"github.com/latticekv/lattice/core/run"
)

// ReadBack walks the entries once, in order of keys, reading so many leaves ahead
// and keeping none in the cache; else it is as Iter. Its reads end with ctx; the
// function ends them earlier, and is to be called in any case.
func (r *Staged) ReadBack(ctx context.Context, ahead int) (run.Iterator, func()) {
	return r.s.runs.ReadBack(ctx, r.run, ahead)
}
