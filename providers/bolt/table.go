package bolt

import (
	"bytes"
	"context"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
)

// maxPageBytes ends a page of Range early, as a service does.
const maxPageBytes = 4 << 20

// Table implements store.Table.
type Table struct {
	db     *bbolt.DB
	path   string
	commit *committer
}

var _ store.Table = (*Table)(nil)

// Get implements store.Table.
func (t *Table) Get(ctx context.Context, partition, key string) (store.Row, error) {
	if err := store.CheckGet(partition, key); err != nil {
		return store.Row{}, err
	}
	row := store.Row{Key: key}
	err := view(ctx, t.db, t.path, func(tx *bbolt.Tx) error {
		k := rowKey(partition, key)
		v := tx.Bucket(rowBucket).Get(k)
		if v == nil {
			return fmt.Errorf("row %q of partition %q: %w", key, partition, store.ErrNotFound)
		}
		version, data, err := decodeRow(k, v)
		row.ETag, row.Data = etagOf(version), bytes.Clone(data)
		return err
	})
	if err != nil {
		return store.Row{}, err
	}
	return row, nil
}

// Range implements store.Table. A page is a snapshot; it ends early when its
// data exceed 4 MiB.
func (t *Table) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	if err := store.CheckRange(partition, q); err != nil {
		return store.Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = store.MaxPageRows
	}
	var page store.Page
	err := view(ctx, t.db, t.path, func(tx *bbolt.Tx) (err error) {
		page, err = readPage(tx.Bucket(rowBucket).Cursor(), partition, q)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

func readPage(c *bbolt.Cursor, partition string, q store.RangeQuery) (store.Page, error) {
	var page store.Page
	prefix, size := rowKey(partition, ""), 0
	for k, v := c.Seek(rowKey(partition, q.From)); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		key := string(k[len(prefix):])
		if q.To != "" && key >= q.To {
			break
		}
		if len(page.Rows) == q.Limit || size > 0 && size+len(v) > maxPageBytes {
			page.More = true
			break
		}
		version, data, err := decodeRow(k, v)
		if err != nil {
			return store.Page{}, err
		}
		size += len(v)
		page.Rows = append(page.Rows, store.Row{Key: key, ETag: etagOf(version), Data: bytes.Clone(data)})
	}
	return page, nil
}

// Apply implements store.Table. Concurrent calls share a sync of the disk.
func (t *Table) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	if err := store.CheckOps(partition, ops); err != nil {
		return nil, err
	}
	if err := store.CheckContext(ctx); err != nil {
		return nil, err
	}
	size := 0
	keys := make([][]byte, len(ops))
	for i, op := range ops {
		size += len(op.Data)
		keys[i] = rowKey(partition, op.Key)
	}
	var etags []store.ETag
	err := t.commit.do(ctx, size, func(tx *bbolt.Tx) (err error) {
		etags, err = applyOps(tx, keys, ops)
		return err
	})
	if err != nil {
		return nil, err
	}
	return etags, nil
}

// applyOps evaluates all conditions, and only then changes rows. No row
// appears twice, so operations do not influence each other's conditions.
func applyOps(tx *bbolt.Tx, keys [][]byte, ops []store.Op) ([]store.ETag, error) {
	rows := tx.Bucket(rowBucket)
	sum, err := readTally(tx, rowBucket)
	if err != nil {
		return nil, err
	}
	for i := range ops {
		old, err := checkCondition(rows, keys[i], &ops[i])
		if err != nil {
			return nil, &store.OpError{Index: i, Key: ops[i].Key, Err: err}
		}
		sum.replace(old, 0)
	}
	etags := make([]store.ETag, len(ops))
	for i := range ops {
		if etags[i], err = applyOp(rows, &sum, keys[i], &ops[i]); err != nil {
			return nil, halfway(err)
		}
	}
	if err := sum.write(tx, rowBucket); err != nil {
		return nil, halfway(err)
	}
	return etags, nil
}

// checkCondition returns the version of the row as it is, 0 if it is absent.
func checkCondition(rows *bbolt.Bucket, key []byte, op *store.Op) (uint64, error) {
	v := rows.Get(key)
	switch {
	case op.Kind == store.OpInsert && v != nil:
		return 0, store.ErrExists
	case op.Kind == store.OpInsert:
		return 0, nil
	case op.IfMatch == "" && v == nil:
		return 0, store.ErrNotFound
	case v == nil:
		return 0, store.ErrPrecondition
	}
	version, _, err := decodeRow(key, v)
	if err == nil && op.IfMatch != "" && etagOf(version) != op.IfMatch {
		return 0, store.ErrPrecondition
	}
	return version, err
}

func applyOp(rows *bbolt.Bucket, sum *tally, key []byte, op *store.Op) (store.ETag, error) {
	if op.Kind == store.OpDelete {
		return "", rows.Delete(key)
	}
	version, err := rows.NextSequence()
	if err != nil {
		return "", err
	}
	sum.replace(0, version)
	return etagOf(version), rows.Put(key, encodeRow(key, version, op.Data))
}
