package split_test

import (
	"context"
	"slices"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

// rowCounter counts the rows that queries return.
type rowCounter struct {
	store.Table
	rows int
}

func (c *rowCounter) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	p, err := c.Table.Range(ctx, partition, q)
	c.rows += len(p.Rows)
	return p, err
}

// Requests that meet sealed slots ask for the splits in flight, on every
// instance at once. Were the history part of that, a few dozen instances would
// keep a partition so busy that the coordinator could not go on.
func TestSplitsInFlightAreFoundWithoutTheHistory(t *testing.T) {
	mem := memory.New(memory.Options{})
	table := &rowCounter{Table: mem.Table()}
	n := newNode(t, clock.NewSystem(), table, mem.Blobs(), nil)
	if err := n.found(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := n.c.Begin(t.Context(), n, 0, "test"); err != nil {
			t.Fatal(err)
		}
		recoverSplit(t, n)
	}
	for _, source := range []keyspace.ShardID{0, 3} {
		if _, err := n.c.Begin(t.Context(), n, source, "test"); err != nil {
			t.Fatal(err)
		}
	}
	table.rows = 0
	active, err := n.c.InFlight(t.Context(), treeID)
	if err != nil || table.rows != 2 {
		t.Errorf("%d rows were read, %v", table.rows, err)
	}
	listed, done, err := n.c.List(t.Context(), treeID)
	same := slices.EqualFunc(active, listed, func(a, b *split.State) bool { return a.ID == b.ID })
	if err != nil || len(done) != 5 || len(active) != 2 || !same {
		t.Errorf("%d in flight and %d listed, %d over, %v", len(active), len(listed), len(done), err)
	}
}
