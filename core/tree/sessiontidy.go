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

// tidy forgets sessions that ended longer ago than the retention.
func (l loadRows) tidy(ctx context.Context, retention time.Duration) error {
	q := store.RangeQuery{From: sessionPrefix, To: sessionPrefix + "~"}
	for seen := 0; seen < maxTidied; {
		page, err := l.page(ctx, q)
		if err != nil {
			return err
		}
		var ops []store.Op
		for _, r := range page.Rows {
			old, err := l.outlived(r, retention)
			if err != nil {
				return err
			}
			if old && len(ops) < store.MaxTransactionOps {
				ops = append(ops, store.Delete(r.Key, r.ETag))
			}
		}
		if err := l.remove(ctx, ops); err != nil {
			return err
		}
		if !page.More || len(page.Rows) == 0 {
			return nil
		}
		seen += len(page.Rows)
		q.From = store.NextKey(page.Rows[len(page.Rows)-1].Key)
	}
	return nil
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

func (l loadRows) outlived(r store.Row, retention time.Duration) (bool, error) {
	operation, err := operationOf(r.Key)
	if err != nil {
		return false, store.Corruptf("row %s of %s is not named for a bulk load", r.Key, bulkPartition(l.treeID))
	}
	s, err := decodeSession(l.treeID, operation, r.Data)
	if err != nil {
		return false, err
	}
	return s.Status != BulkOpen && l.reg.clock.Now().Milli()-s.Updated >= retention.Milliseconds(), nil
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
