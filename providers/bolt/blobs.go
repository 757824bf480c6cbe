package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

const (
	// maxInlineBytes is the size up to which a blob lives in the database.
	maxInlineBytes = 32 << 10
	// listPageBlobs is the number of blobs of one page of a listing.
	listPageBlobs = 1000
	// readAttempts bounds how often a read follows a blob that is overwritten
	// under it.
	readAttempts = 10
)

// Blobs implements store.BlobStore.
type Blobs struct {
	db     *bbolt.DB
	path   string
	commit *committer
	clock  clock.Source
	files  blobFiles
}

var _ store.BlobStore = (*Blobs)(nil)

// Put implements store.BlobStore.
func (b *Blobs) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	if err := store.CheckBlob(name, len(data), cond); err != nil {
		return "", err
	}
	// Before a file is written for nothing. What counts is the same check in
	// the transaction.
	err := view(ctx, b.db, b.path, func(tx *bbolt.Tx) error {
		_, err := checkPut(tx.Bucket(blobBucket), name, cond)
		return err
	})
	if err != nil {
		return "", err
	}
	entry := blobEntry{modified: b.clock.Now().Time(), size: int64(len(data)), sum: crc32.Checksum(data, castagnoli)}
	if len(data) <= maxInlineBytes {
		entry.data = data
	} else if entry.file, err = b.files.write(data); err != nil {
		return "", fmt.Errorf("blob %q: %w: %w", name, store.ErrUnavailable, err)
	}
	return b.publish(ctx, name, entry, cond)
}

// publish makes a blob exist whose file, if it has one, is durable.
func (b *Blobs) publish(ctx context.Context, name string, entry blobEntry, cond store.PutCondition) (store.ETag, error) {
	var old blobEntry
	err := b.commit.do(ctx, len(entry.data), func(tx *bbolt.Tx) (err error) {
		if old, err = checkPut(tx.Bucket(blobBucket), name, cond); err != nil {
			return err
		}
		if entry.version, err = tx.Bucket(blobBucket).NextSequence(); err != nil {
			return halfway(err)
		}
		return swap(tx, name, old, entry)
	})
	switch {
	case err == nil:
		b.files.remove(old.file)
		return etagOf(entry.version), nil
	case !errors.Is(err, store.ErrOutcomeUnknown):
		b.files.remove(entry.file)
	}
	return "", err
}

// swap changes the index entry of a blob. An entry of version 0 is none.
func swap(tx *bbolt.Tx, name string, old, fresh blobEntry) error {
	sum, err := readTally(tx, blobBucket)
	if err != nil {
		return halfway(err)
	}
	sum.replace(old.version, fresh.version)
	if err := sum.write(tx, blobBucket); err != nil {
		return halfway(err)
	}
	index, key := tx.Bucket(blobBucket), []byte(name)
	if fresh.version == 0 {
		err = index.Delete(key)
	} else {
		err = index.Put(key, fresh.encode(key))
	}
	if err != nil {
		return halfway(err)
	}
	return nil
}

// checkPut evaluates a condition and returns the entry that would be replaced.
func checkPut(index *bbolt.Bucket, name string, cond store.PutCondition) (blobEntry, error) {
	old, err := lookup(index, name)
	found := err == nil
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return blobEntry{}, err
	case cond.Mode == store.PutCreate && found:
		return blobEntry{}, blobError(name, store.ErrExists)
	case cond.Mode == store.PutIfMatch && (!found || etagOf(old.version) != cond.IfMatch):
		return blobEntry{}, blobError(name, store.ErrPrecondition)
	}
	return old, nil
}

// lookup returns the entry of a blob. It remains valid after the transaction.
func lookup(index *bbolt.Bucket, name string) (blobEntry, error) {
	v := index.Get([]byte(name))
	if v == nil {
		return blobEntry{}, blobError(name, store.ErrNotFound)
	}
	return decodeBlob([]byte(name), bytes.Clone(v))
}

// Get implements store.BlobStore. It checks the content against its checksum.
func (b *Blobs) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	if err := store.CheckBlobName(name); err != nil {
		return nil, "", err
	}
	return b.read(ctx, name, func(e blobEntry) ([]byte, error) { return b.files.load(name, e) })
}

// GetRange implements store.BlobStore.
func (b *Blobs) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	if err := store.CheckBlobRange(name, offset, length); err != nil {
		return nil, "", err
	}
	return b.read(ctx, name, func(e blobEntry) ([]byte, error) {
		if offset >= e.size {
			return nil, fmt.Errorf("range of blob %q begins at %d of %d bytes: %w", name, offset, e.size, store.ErrInvalid)
		}
		return b.files.loadRange(name, e, offset, min(length, e.size-offset))
	})
}

// read looks a blob up and loads it. A file that is gone was replaced since
// the look-up, if the index has moved on; otherwise it is lost.
func (b *Blobs) read(ctx context.Context, name string, load func(blobEntry) ([]byte, error)) ([]byte, store.ETag, error) {
	var last uint64
	for range readAttempts {
		var entry blobEntry
		err := view(ctx, b.db, b.path, func(tx *bbolt.Tx) (err error) {
			entry, err = lookup(tx.Bucket(blobBucket), name)
			return err
		})
		if err != nil {
			return nil, "", err
		}
		data, err := load(entry)
		switch {
		case err == nil:
			return data, etagOf(entry.version), nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, "", err
		case entry.version == last:
			return nil, "", store.Corruptf("blob %q: its file %x is missing", name, entry.file)
		}
		last = entry.version
	}
	return nil, "", fmt.Errorf("blob %q is overwritten faster than it can be read: %w", name, store.ErrUnavailable)
}

// List implements store.BlobStore. The marker is the first name of the page.
func (b *Blobs) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	if err := store.CheckBlobPrefix(prefix); err != nil {
		return store.BlobPage{}, err
	}
	var page store.BlobPage
	err := view(ctx, b.db, b.path, func(tx *bbolt.Tx) error {
		c := tx.Bucket(blobBucket).Cursor()
		for k, v := c.Seek([]byte(max(prefix, marker))); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
			if len(page.Blobs) == listPageBlobs {
				page.Next = string(k)
				return nil
			}
			entry, err := decodeBlob(k, v)
			if err != nil {
				return err
			}
			page.Blobs = append(page.Blobs, store.BlobInfo{Name: string(k), Size: entry.size, Modified: entry.modified})
		}
		return nil
	})
	if err != nil {
		return store.BlobPage{}, err
	}
	return page, nil
}

// Delete implements store.BlobStore.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	if err := store.CheckBlobName(name); err != nil {
		return err
	}
	if err := store.CheckContext(ctx); err != nil {
		return err
	}
	var old blobEntry
	err := b.commit.do(ctx, 0, func(tx *bbolt.Tx) (err error) {
		if old, err = lookup(tx.Bucket(blobBucket), name); err != nil {
			return err
		}
		return swap(tx, name, old, blobEntry{})
	})
	if err == nil {
		b.files.remove(old.file)
	}
	return err
}

// removeOrphans deletes the files that no entry of the index names: what a
// crash left between writing a file and naming it, or between forgetting a
// file and removing it.
func (b *Blobs) removeOrphans() error {
	orphans, err := b.files.names()
	if err != nil || len(orphans) == 0 {
		return err
	}
	err = guard(b.path, func() error {
		return b.db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket(blobBucket).ForEach(func(k, v []byte) error {
				entry, err := decodeBlob(k, v)
				if err == nil && entry.file != nil {
					delete(orphans, string(entry.file))
				}
				return err
			})
		})
	})
	if err != nil {
		return err
	}
	for file := range orphans {
		b.files.remove([]byte(file))
	}
	return nil
}

func blobError(name string, sentinel error) error {
	return fmt.Errorf("blob %q: %w", name, sentinel)
}
