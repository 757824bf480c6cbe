package service

import (
	"context"

	"github.com/latticekv/lattice/core/store"
)

// meteredTable counts the calls of a table, and tells of them.
type meteredTable struct {
	next store.Table
	w    *storageWatch
}

// Get implements store.Table.
func (t meteredTable) Get(ctx context.Context, partition, key string) (store.Row, error) {
	ctx, c := t.w.begin(ctx, "table_get", partition)
	row, err := t.next.Get(ctx, partition, key)
	c.end(len(row.Data), err)
	return row, err
}

// Range implements store.Table.
func (t meteredTable) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	ctx, c := t.w.begin(ctx, "table_range", partition)
	page, err := t.next.Range(ctx, partition, q)
	bytes := 0
	for i := range page.Rows {
		bytes += len(page.Rows[i].Data)
	}
	c.end(bytes, err)
	return page, err
}

// Apply implements store.Table.
func (t meteredTable) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	bytes := 0
	for i := range ops {
		bytes += len(ops[i].Data)
	}
	ctx, c := t.w.begin(ctx, "table_apply", partition)
	etags, err := t.next.Apply(ctx, partition, ops)
	c.end(bytes, err)
	return etags, err
}

// meteredBlobs counts the calls of a blob store, likewise.
type meteredBlobs struct {
	next store.BlobStore
	w    *storageWatch
}

// Put implements store.BlobStore.
func (b meteredBlobs) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	ctx, c := b.w.begin(ctx, "blob_put", name)
	etag, err := b.next.Put(ctx, name, data, cond)
	c.end(len(data), err)
	return etag, err
}

// Get implements store.BlobStore.
func (b meteredBlobs) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	ctx, c := b.w.begin(ctx, "blob_get", name)
	data, etag, err := b.next.Get(ctx, name)
	c.end(len(data), err)
	return data, etag, err
}

// GetRange implements store.BlobStore.
func (b meteredBlobs) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	ctx, c := b.w.begin(ctx, "blob_range", name)
	data, etag, err := b.next.GetRange(ctx, name, offset, length)
	c.end(len(data), err)
	return data, etag, err
}

// List implements store.BlobStore.
func (b meteredBlobs) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	ctx, c := b.w.begin(ctx, "blob_list", prefix)
	page, err := b.next.List(ctx, prefix, marker)
	c.end(0, err)
	return page, err
}

// Delete implements store.BlobStore.
func (b meteredBlobs) Delete(ctx context.Context, name string) error {
	ctx, c := b.w.begin(ctx, "blob_delete", name)
	err := b.next.Delete(ctx, name)
	c.end(0, err)
	return err
}
