package metered

import (
	"context"
	"errors"

	"github.com/latticekv/lattice/core/store"
)

type blobMeter struct{ s *Store }

func (b blobMeter) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	b.s.n.blobPuts.Add(1)
	b.s.n.blobBytesWritten.Add(int64(len(data)))
	etag, err := b.s.blobs.Put(ctx, name, data, cond)
	return etag, b.s.outcome(err)
}

func (b blobMeter) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	b.s.n.blobGets.Add(1)
	data, etag, err := b.s.blobs.Get(ctx, name)
	b.s.n.blobBytesRead.Add(int64(len(data)))
	return data, etag, b.s.outcome(err)
}

func (b blobMeter) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	b.s.n.blobRanges.Add(1)
	data, etag, err := b.s.blobs.GetRange(ctx, name, offset, length)
	b.s.n.blobBytesRead.Add(int64(len(data)))
	return data, etag, b.s.outcome(err)
}

func (b blobMeter) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	b.s.n.blobLists.Add(1)
	page, err := b.s.blobs.List(ctx, prefix, marker)
	return page, b.s.outcome(err)
}

func (b blobMeter) Delete(ctx context.Context, name string) error {
	b.s.n.blobDeletes.Add(1)
	return b.s.outcome(b.s.blobs.Delete(ctx, name))
}

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
