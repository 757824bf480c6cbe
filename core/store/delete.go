package store

import (
	"context"
	"fmt"
)

// DeletePartition deletes every row of a partition to which nobody adds any more.
// It may be repeated; after an error it is to be.
func DeletePartition(ctx context.Context, t Table, partition string) error {
	for {
		page, err := t.Range(ctx, partition, RangeQuery{Limit: MaxTransactionOps})
		if err != nil {
			return fmt.Errorf("list rows of %s: %w", partition, err)
		}
		if len(page.Rows) == 0 {
			return nil
		}
		ops := make([]Op, 0, len(page.Rows))
		for _, row := range page.Rows {
			ops = append(ops, Delete(row.Key, row.ETag))
		}
		if _, err := t.Apply(ctx, partition, ops); err != nil {
			return fmt.Errorf("delete rows of %s: %w", partition, err)
		}
	}
}
