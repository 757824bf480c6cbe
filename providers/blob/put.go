package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

const (
	// singlePutBytes is the largest blob written by one request.
	singlePutBytes = 8 << 20
	// blockBytes is the size of the blocks of a larger one. The service takes
	// 50,000 blocks a blob.
	blockBytes = 4 << 20
	// blockWriters is how many blocks of a blob travel at once.
	blockWriters = 4
	// stagings bounds how often the blocks are sent anew after another writer of
	// the same name has made the service drop them.
	stagings = 3
)

// errBlocksGone says that the blocks to commit are no longer there: whoever
// commits a blob discards the blocks that others have staged for it.
var errBlocksGone = errors.New("staged blocks were discarded")

// Put implements store.BlobStore.
func (s *Store) Put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	if err := store.CheckContext(ctx); err != nil {
		return "", err
	}
	if err := store.CheckBlob(name, len(data), cond); err != nil {
		return "", err
	}
	etag, err := s.put(ctx, name, data, cond)
	if err != nil {
		return "", fmt.Errorf("put blob %s: %w", name, lostRace(err, cond))
	}
	return etag, nil
}

func (s *Store) put(ctx context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	if cond.Mode == store.PutIfMatch && !plausible(cond.IfMatch) {
		return "", fmt.Errorf("%w: not an ETag of this store", store.ErrPrecondition)
	}
	client := s.container.NewBlockBlobClient(name)
	if len(data) <= s.single {
		return s.upload(ctx, client, data, cond)
	}
	for range stagings {
		etag, err := s.uploadBlocks(ctx, client, data, cond)
		if !errors.Is(err, errBlocksGone) {
			return etag, err
		}
	}
	return "", fmt.Errorf("%w: %w", store.ErrUnavailable, errBlocksGone)
}

// plausible reports whether the service can have issued the ETag and a header can
// carry it.
func plausible(etag store.ETag) bool {
	if len(etag) < 3 || len(etag) > 256 || etag[0] != '"' || etag[len(etag)-1] != '"' {
		return false
	}
	for _, c := range []byte(etag[1 : len(etag)-1]) {
		if c <= ' ' || c >= 0x7f || c == '"' {
			return false
		}
	}
	return true
}

// lostRace maps what the service says of a failed condition to what the contract
// says. The service answers 409 or 412 to a create, and 404 to a match of a
// missing blob; sources differ on which, so all mean the same.
func lostRace(err error, cond store.PutCondition) error {
	if !store.LostRace(err) && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	var refused *azhttp.StatusError
	if !errors.As(err, &refused) {
		return err
	}
	switch cond.Mode {
	case store.PutCreate:
		return azhttp.As(store.ErrExists, refused)
	case store.PutIfMatch:
		return azhttp.As(store.ErrPrecondition, refused)
	}
	// Something holds the blob, such as a lease that is none of ours.
	return azhttp.As(store.ErrUnavailable, refused)
}

func conditions(cond store.PutCondition) *sdk.AccessConditions {
	switch cond.Mode {
	case store.PutCreate:
		return &sdk.AccessConditions{ModifiedAccessConditions: &sdk.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}
	case store.PutIfMatch:
		return &sdk.AccessConditions{ModifiedAccessConditions: &sdk.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(cond.IfMatch))}}
	}
	return nil
}

// upload writes a blob by one request.
func (s *Store) upload(ctx context.Context, client *blockblob.Client, data []byte, cond store.PutCondition) (store.ETag, error) {
	var etag store.ETag
	err := s.call(ctx, toWrite, func(ctx context.Context, p patience) error {
		p.carry(int64(len(data)))
		answer, err := client.Upload(ctx, streaming.NopCloser(bytes.NewReader(data)),
			&blockblob.UploadOptions{AccessConditions: conditions(cond)})
		if err != nil {
			return err
		}
		etag, err = written(answer.ETag)
		return err
	})
	return etag, err
}

func written(etag *azcore.ETag) (store.ETag, error) {
	if etag == nil || *etag == "" {
		return "", errors.New("answer without an ETag")
	}
	return store.ETag(*etag), nil
}

// uploadBlocks writes a blob by blocks and their commit, which carries the
// condition. Blocks that never get committed vanish after a week.
func (s *Store) uploadBlocks(ctx context.Context, client *blockblob.Client, data []byte, cond store.PutCondition) (store.ETag, error) {
	ids := blockIDs((len(data) + s.block - 1) / s.block)
	if err := s.stage(ctx, client, data, ids); err != nil {
		return "", err
	}
	var etag store.ETag
	err := s.call(ctx, toWrite, func(ctx context.Context, _ patience) error {
		answer, err := client.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{AccessConditions: conditions(cond)})
		if err != nil {
			return err
		}
		etag, err = written(answer.ETag)
		return err
	})
	var refused *azhttp.StatusError
	if errors.As(err, &refused) && refused.Code == "InvalidBlockList" {
		return "", errBlocksGone
	}
	return etag, err
}

// blockIDs returns n block names that nobody else uses, all of one length, as the
// service demands.
func blockIDs(n int) []string {
	var raw [16]byte
	rand.Read(raw[:12])
	ids := make([]string, n)
	for i := range ids {
		binary.BigEndian.PutUint32(raw[12:], uint32(i))
		ids[i] = base64.StdEncoding.EncodeToString(raw[:])
	}
	return ids
}

// stage sends all blocks, a few at a time, and stops at the first that fails.
// Nothing of it is visible, so a lost answer is no unknown outcome.
func (s *Store) stage(ctx context.Context, client *blockblob.Client, data []byte, ids []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blockWriters)
	for i, id := range ids {
		group.Go(func() error {
			if err := s.stageBlock(ctx, client, id, data[i*s.block:min(len(data), (i+1)*s.block)]); err != nil {
				return fmt.Errorf("stage block %d: %w", i, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (s *Store) stageBlock(ctx context.Context, client *blockblob.Client, id string, data []byte) error {
	if err := store.CheckContext(ctx); err != nil {
		return err
	}
	return s.call(ctx, toStage, func(ctx context.Context, p patience) error {
		p.carry(int64(len(data)))
		_, err := client.StageBlock(ctx, id, streaming.NopCloser(bytes.NewReader(data)), nil)
		return err
	})
}
