package split

import (
	"context"
	"fmt"

	"github.com/latticekv/lattice/core/store"
)

// Forget deletes everything that is recorded about the splits of a tree that is
// gone for good. It may be repeated; after an error it is to be.
func (c *Coordinator) Forget(ctx context.Context, treeID string) error {
	if err := store.DeletePartition(ctx, c.Table, partition(treeID)); err != nil {
		return fmt.Errorf("forget the splits of a tree that is gone: %w", err)
	}
	return nil
}
