package service

import (
	"context"

	"github.com/latticekv/lattice/core/store"
)

// meteredTable counts the calls of a table.
type meteredTable struct {
	next store.Table
	m    *storageMetrics
}

// Get implements store.Table.
func (t meteredTable) Get(ctx context.Context, partition, key string) (store.Row, error) {
	end := t.m.begin("table_get")
	row, err := t.next.Get(ctx, partition, key)
	end(len(row.Data), err)
	return row, err
}

// Range implements store.Table.
func (t meteredTable) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	end := t.m.begin("table_range")
	page, err := t.next.Range(ctx, partition, q)
	bytes := 0
	for i := range page.Rows {
		bytes += len(page.Rows[i].Data)
	}
	end(bytes, err)
	return page, err
}

// Apply implements store.Table.
func (t meteredTable) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	bytes := 0
	for i := range ops {
		bytes += len(ops[i].Data)
	}
	end := t.m.begin("table_apply")
	etags, err := t.next.Apply(ctx, partition, ops)
	end(bytes, err)
	return etags, err
}

// meteredBlobs counts the calls of a blob store.
type meteredBlobs struct {
	next store.BlobStore
	m    *storageMetrics
}

// Put implements store.BlobStore.
func (b meteredBlobs) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	end := b.m.begin("blob_put")
	etag, err := b.next.Put(ctx, name, data, cond)
	end(len(data), err)
	return etag, err
}

// Get implements store.BlobStore.
func (b meteredBlobs) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	end := b.m.begin("blob_get")
	data, etag, err := b.next.Get(ctx, name)
	end(len(data), err)
	return data, etag, err
}

// GetRange implements store.BlobStore.
func (b meteredBlobs) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	end := b.m.begin("blob_range")
	data, etag, err := b.next.GetRange(ctx, name, offset, length)
	end(len(data), err)
	return data, etag, err
}

// List implements store.BlobStore.
func (b meteredBlobs) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	end := b.m.begin("blob_list")
	page, err := b.next.List(ctx, prefix, marker)
	end(0, err)
	return page, err
}

// Delete implements store.BlobStore.
func (b meteredBlobs) Delete(ctx context.Context, name string) error {
	end := b.m.begin("blob_delete")
	err := b.next.Delete(ctx, name)
	end(0, err)
	return err
}
