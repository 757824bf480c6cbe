package tree

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// maxTidied bounds the sessions that one tick looks at in a tree.
const maxTidied = 10 * store.MaxPageRows

// tidy forgets sessions that ended longer ago than the retention, and returns how
// many have not ended.
func (l loadRows) tidy(ctx context.Context, retention time.Duration) (open int, err error) {
	q := store.RangeQuery{From: sessionPrefix, To: sessionPrefix + "~"}
	for seen := 0; seen < maxTidied; {
		page, err := l.page(ctx, q)
		if err != nil {
			return open, err
		}
		var ops []store.Op
		for _, r := range page.Rows {
			s, err := l.decode(r)
			if err != nil {
				return open, err
			}
			if s.Status == BulkOpen {
				open++
			}
			if l.outlived(s, retention) && len(ops) < store.MaxTransactionOps {
				ops = append(ops, store.Delete(r.Key, r.ETag))
			}
		}
		if err := l.remove(ctx, ops); err != nil {
			return open, err
		}
		if !page.More || len(page.Rows) == 0 {
			return open, nil
		}
		seen += len(page.Rows)
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
	return open, nil
}

func (l loadRows) page(ctx context.Context, q store.RangeQuery) (page store.Page, err error) {
	err = l.reg.retry(ctx, func() (err error) {
		page, err = l.reg.table.Range(ctx, bulkPartition(l.treeID), q)
		return err
	})
	if err != nil {
		return page, fmt.Errorf("list bulk loads of %s: %w", bulkPartition(l.treeID), err)
	}
	return page, nil
}

func (l loadRows) decode(r store.Row) (*session, error) {
	operation, err := operationOf(r.Key)
	if err != nil {
		return nil, store.Corruptf("row %s of %s is not named for a bulk load", r.Key, bulkPartition(l.treeID))
	}
	return decodeSession(l.treeID, operation, r.Data)
}

func (l loadRows) outlived(s *session, retention time.Duration) bool {
	return s.Status != BulkOpen && l.reg.clock.Now().Milli()-s.Updated >= retention.Milliseconds()
}

func operationOf(key string) (string, error) {
	raw, err := hex.DecodeString(strings.TrimPrefix(key, sessionPrefix))
	return string(raw), err
}

// remove deletes rows; that others deleted or changed one meanwhile is left to
// the next time.
func (l loadRows) remove(ctx context.Context, ops []store.Op) error {
	if len(ops) == 0 {
		return nil
	}
	_, err := l.reg.table.Apply(ctx, bulkPartition(l.treeID), ops)
	if err != nil && !uncertain(err) && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete bulk loads of %s: %w", bulkPartition(l.treeID), err)
	}
	return nil
}

// forget deletes everything recorded of the bulk loads of a tree that is gone
// for good. It may be repeated; after an error it is to be.
func (l loadRows) forget(ctx context.Context) error {
	err := l.reg.retry(ctx, func() error { return store.DeletePartition(ctx, l.reg.table, bulkPartition(l.treeID)) })
	if err != nil {
		return fmt.Errorf("forget the bulk loads of a tree that is gone: %w", err)
	}
	return nil
}
