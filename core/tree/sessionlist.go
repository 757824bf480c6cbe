package tree

import (
	"context"
	"slices"

	"github.com/latticekv/lattice/core/store"
)

const (
	// MaxListedLoads bounds what ListBulkLoads returns.
	MaxListedLoads = 1000
	// maxLooked bounds the rows that it reads.
	maxLooked = 10 * store.MaxPageRows
)

// ListBulkLoads describes the bulk load sessions of the tree that are known, the
// one changed last first, at most limit of them, which is 1 to MaxListedLoads.
// Sessions that ended are forgotten after a time. Of a tree with more than
// maxLooked sessions it sees the first ones by the bytes of their ids.
func (t *Tree) ListBulkLoads(ctx context.Context, limit int) ([]BulkState, error) {
	if limit < 1 || limit > MaxListedLoads {
		return nil, &ArgumentError{Field: "limit", Reason: "must be 1 to 1000"}
	}
	m, err := t.refresh(ctx)
	if err != nil {
		return nil, err
	}
	all, err := t.db.loads(m.ID).list(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(x, y BulkState) int { return y.Updated.Compare(x.Updated) })
	return all[:min(limit, len(all))], nil
}

func (l loadRows) list(ctx context.Context) ([]BulkState, error) {
	var all []BulkState
	q := store.RangeQuery{From: sessionPrefix, To: sessionPrefix + "~"}
	for len(all) < maxLooked {
		page, err := l.page(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Rows {
			operation, err := operationOf(r.Key)
			if err != nil {
				return nil, store.Corruptf("row %s of %s is not named for a bulk load", r.Key, bulkPartition(l.treeID))
			}
			s, err := decodeSession(l.treeID, operation, r.Data)
			if err != nil {
				return nil, err
			}
			all = append(all, s.state())
		}
		if !page.More || len(page.Rows) == 0 {
			break
		}
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
	return all, nil
}
