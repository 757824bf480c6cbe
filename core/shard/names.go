package shard

import (
	"fmt"
	"sync/atomic"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
)

// nameSource makes names and ids that never repeat: instance, counter, chance.
type nameSource struct {
	clock    clock.Source
	instance uint64
	counter  atomic.Uint64
}

// blob returns a fresh name for a blob of a kind. The kind stands first, so
// that a listing groups them.
func (n *nameSource) blob(kind string) string {
	return fmt.Sprintf("%s-%016x%08x%08x", kind, n.instance, n.counter.Add(1), uint32(n.clock.Uint64()))
}

// id returns a fresh append id.
func (n *nameSource) id() record.ID {
	var id record.ID
	a, b := n.instance^n.clock.Uint64(), n.clock.Uint64()^n.counter.Add(1)
	for i := range 8 {
		id[i], id[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return id
}
