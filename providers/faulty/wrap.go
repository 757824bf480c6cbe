package faulty

import (
	"context"
	"sync"

	"github.com/latticekv/lattice/core/store"
)

// Table returns the wrapped table.
func (in *Instance) Table() store.Table { return table{in} }

// Blobs returns the wrapped blob store.
func (in *Instance) Blobs() store.BlobStore { return blobs{in} }

// answer is the result of a call. It is a copy per call, because a held write
// may deliver one when nobody looks any more.
type answer[T any] struct {
	value T
	etag  store.ETag
}

// do runs a call that has a result. A call that is duplicated and held lands
// several times, at any time.
func do[T any](ctx context.Context, in *Instance, c *Call, perform func(context.Context) (answer[T], error)) (answer[T], error) {
	var mu sync.Mutex
	var got answer[T]
	err := in.call(ctx, c, func(ctx context.Context) error {
		a, err := perform(ctx)
		if err == nil {
			mu.Lock()
			got = a
			mu.Unlock()
		}
		return err
	})
	if err != nil {
		return answer[T]{}, err
	}
	mu.Lock()
	defer mu.Unlock()
	return got, nil
}

type table struct{ in *Instance }

func (t table) Get(ctx context.Context, partition, key string) (store.Row, error) {
	c := &Call{Kind: Get, Partition: partition, Key: key}
	got, err := do(ctx, t.in, c, func(ctx context.Context) (a answer[store.Row], err error) {
		a.value, err = t.in.table.Get(ctx, partition, key)
		return a, err
	})
	return got.value, err
}

func (t table) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	c := &Call{Kind: Range, Partition: partition, Key: q.From}
	got, err := do(ctx, t.in, c, func(ctx context.Context) (a answer[store.Page], err error) {
		a.value, err = t.in.table.Range(ctx, partition, q)
		return a, err
	})
	return got.value, err
}

func (t table) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	c := &Call{Kind: Apply, Partition: partition, Ops: ops}
	got, err := do(ctx, t.in, c, func(ctx context.Context) (a answer[[]store.ETag], err error) {
		a.value, err = t.in.table.Apply(ctx, partition, c.Ops)
		return a, err
	})
	return got.value, err
}

type blobs struct{ in *Instance }

func (b blobs) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	c := &Call{Kind: BlobPut, Key: name, Data: data}
	got, err := do(ctx, b.in, c, func(ctx context.Context) (a answer[struct{}], err error) {
		a.etag, err = b.in.blobs.Put(ctx, name, c.Data, cond)
		return a, err
	})
	return got.etag, err
}

func (b blobs) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	c := &Call{Kind: BlobGet, Key: name}
	got, err := do(ctx, b.in, c, func(ctx context.Context) (a answer[[]byte], err error) {
		a.value, a.etag, err = b.in.blobs.Get(ctx, name)
		return a, err
	})
	return got.value, got.etag, err
}

func (b blobs) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	c := &Call{Kind: BlobGetRange, Key: name}
	got, err := do(ctx, b.in, c, func(ctx context.Context) (a answer[[]byte], err error) {
		a.value, a.etag, err = b.in.blobs.GetRange(ctx, name, offset, length)
		return a, err
	})
	return got.value, got.etag, err
}

func (b blobs) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	c := &Call{Kind: BlobList, Key: prefix}
	got, err := do(ctx, b.in, c, func(ctx context.Context) (a answer[store.BlobPage], err error) {
		a.value, err = b.in.blobs.List(ctx, prefix, marker)
		return a, err
	})
	return got.value, err
}

func (b blobs) Delete(ctx context.Context, name string) error {
	c := &Call{Kind: BlobDelete, Key: name}
	return b.in.call(ctx, c, func(ctx context.Context) error { return b.in.blobs.Delete(ctx, name) })
}
