package memory

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// listPageBlobs is the number of blobs of one page of a listing.
const listPageBlobs = 1000

// Blobs implements store.BlobStore.
type Blobs struct {
	etags *etagSource
	shape *shaper
	clock clock.Source

	mu    sync.RWMutex
	blobs btree.Map[string, blob]
}

var _ store.BlobStore = (*Blobs)(nil)

// blob is immutable.
type blob struct {
	etag     store.ETag
	data     []byte
	modified time.Time
}

// Put implements store.BlobStore.
func (b *Blobs) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	if err := store.CheckBlob(name, len(data), cond); err != nil {
		return "", err
	}
	if err := b.begin(ctx, kindBlobWrite); err != nil {
		return "", err
	}
	etag, err := b.put(name, data, cond)
	if lost := b.reply(ctx, kindBlobWrite); lost != nil {
		return "", lost
	}
	return etag, err
}

func (b *Blobs) put(name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	fresh := blob{data: bytes.Clone(data), modified: b.clock.Now().Time()}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, ok := b.blobs.Get(name)
	switch {
	case cond.Mode == store.PutCreate && ok:
		return "", blobError(name, store.ErrExists)
	case cond.Mode == store.PutIfMatch && (!ok || old.etag != cond.IfMatch):
		return "", blobError(name, store.ErrPrecondition)
	}
	fresh.etag = b.etags.next()
	b.blobs.Set(name, fresh)
	return fresh.etag, nil
}

// Get implements store.BlobStore.
func (b *Blobs) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	if err := store.CheckBlobName(name); err != nil {
		return nil, "", err
	}
	found, err := b.read(ctx, name)
	if err != nil {
		return nil, "", err
	}
	return append(make([]byte, 0, len(found.data)), found.data...), found.etag, nil
}

// GetRange implements store.BlobStore.
func (b *Blobs) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	if err := store.CheckBlobRange(name, offset, length); err != nil {
		return nil, "", err
	}
	found, err := b.read(ctx, name)
	if err != nil {
		return nil, "", err
	}
	size := int64(len(found.data))
	if offset >= size {
		return nil, "", fmt.Errorf("range of blob %q begins at %d of %d bytes: %w", name, offset, size, store.ErrInvalid)
	}
	return bytes.Clone(found.data[offset : offset+min(length, size-offset)]), found.etag, nil
}

func (b *Blobs) read(ctx context.Context, name string) (blob, error) {
	if err := b.begin(ctx, kindBlobRead); err != nil {
		return blob{}, err
	}
	b.mu.RLock()
	found, ok := b.blobs.Get(name)
	b.mu.RUnlock()
	if lost := b.reply(ctx, kindBlobRead); lost != nil {
		return blob{}, lost
	}
	if !ok {
		return blob{}, blobError(name, store.ErrNotFound)
	}
	return found, nil
}

// List implements store.BlobStore. The marker is the first name of the page.
func (b *Blobs) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	if err := store.CheckBlobPrefix(prefix); err != nil {
		return store.BlobPage{}, err
	}
	if err := b.begin(ctx, kindBlobList); err != nil {
		return store.BlobPage{}, err
	}
	page := b.list(prefix, max(prefix, marker))
	if lost := b.reply(ctx, kindBlobList); lost != nil {
		return store.BlobPage{}, lost
	}
	return page, nil
}

func (b *Blobs) list(prefix, from string) store.BlobPage {
	var page store.BlobPage
	b.mu.RLock()
	defer b.mu.RUnlock()
	b.blobs.Ascend(from, func(name string, found blob) bool {
		if !strings.HasPrefix(name, prefix) {
			return false
		}
		if len(page.Blobs) == listPageBlobs {
			page.Next = name
			return false
		}
		info := store.BlobInfo{Name: name, Size: int64(len(found.data)), Modified: found.modified}
		page.Blobs = append(page.Blobs, info)
		return true
	})
	return page
}

// Delete implements store.BlobStore.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	if err := store.CheckBlobName(name); err != nil {
		return err
	}
	if err := b.begin(ctx, kindBlobWrite); err != nil {
		return err
	}
	b.mu.Lock()
	_, ok := b.blobs.Delete(name)
	b.mu.Unlock()
	if lost := b.reply(ctx, kindBlobWrite); lost != nil {
		return lost
	}
	if !ok {
		return blobError(name, store.ErrNotFound)
	}
	return nil
}

func (b *Blobs) begin(ctx context.Context, k kind) error {
	if err := store.CheckContext(ctx); err != nil || b.shape == nil {
		return err
	}
	return b.shape.begin(ctx, k, "", 0)
}

func (b *Blobs) reply(ctx context.Context, k kind) error {
	if b.shape == nil {
		return nil
	}
	return b.shape.reply(ctx, k)
}

func blobError(name string, sentinel error) error {
	return fmt.Errorf("blob %q: %w", name, sentinel)
}
