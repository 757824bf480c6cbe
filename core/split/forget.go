package split

import (
	"context"
	"fmt"

	"github.com/latticekv/lattice/core/store"
)

// Forget deletes everything that is recorded about the splits of a tree that is
// gone for good. It may be repeated; after an error it is to be.
func (c *Coordinator) Forget(ctx context.Context, treeID string) error {
	for {
		page, err := c.Table.Range(ctx, partition(treeID), store.RangeQuery{Limit: store.MaxTransactionOps})
		if err != nil {
			return fmt.Errorf("list splits of a tree that is gone: %w", err)
		}
		ops := make([]store.Op, 0, len(page.Rows))
		for _, row := range page.Rows {
			ops = append(ops, store.Delete(row.Key, row.ETag))
		}
		if len(ops) == 0 {
			return nil
		}
		if _, err := c.Table.Apply(ctx, partition(treeID), ops); err != nil {
			return fmt.Errorf("delete splits of a tree that is gone: %w", err)
		}
	}
}
