package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// listPage is how many blobs a page of a listing names at most.
const listPage = 1000

// Store is a container of an Azure storage account. It is safe for concurrent
// use and needs no closing.
type Store struct {
	container *container.Client
	place     *azhttp.Place
	timeout   time.Duration
	retry     azhttp.Retry
	// single is the largest blob written by one request, block the size of the
	// blocks of a larger one.
	single, block int
}

var _ store.BlobStore = (*Store)(nil)

// New opens a container. Unless the options say Lazy it asks the service whether
// the container exists, and creates it if not. ErrInvalid for options that cannot
// work; else the errors of a Get.
func New(ctx context.Context, o Options) (*Store, error) {
	service, err := o.resolve()
	if err != nil {
		return nil, fmt.Errorf("open container: %w", err)
	}
	client, err := containerClient(service, o)
	if err != nil {
		return nil, fmt.Errorf("open container: %w", err)
	}
	s := &Store{
		container: client, timeout: o.TryTimeout, retry: azhttp.Reads,
		single: singlePutBytes, block: blockBytes,
	}
	s.place = newPlace(s, o.Container)
	s.place.Fixed = o.Fixed
	if o.Lazy {
		return s, nil
	}
	if err := s.Reach(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Reach asks the service whether the container exists, and creates it if not,
// unless the options say Fixed. Its errors are those of a Get.
func (s *Store) Reach(ctx context.Context) error { return s.open(ctx) }

// Make creates the container unless it exists.
func (s *Store) Make(ctx context.Context) error { return s.place.Make(ctx) }

// maxEmptyPages bounds the pages without a blob that Unused passes over.
const maxEmptyPages = 1000

// Unused refuses with ErrCorrupt if the container holds a blob. One that does not
// exist is unused.
func (s *Store) Unused(ctx context.Context) error {
	marker := ""
	for range maxEmptyPages {
		page, err := s.List(ctx, "", marker)
		if err != nil {
			return err
		}
		if len(page.Blobs) > 0 {
			return store.Corruptf("container %s holds data", s.place.Name)
		}
		if marker = page.Next; marker == "" {
			return nil
		}
	}
	return fmt.Errorf("look into container %s: %d pages without a blob: %w", s.place.Name, maxEmptyPages, store.ErrUnavailable)
}

func containerClient(service azhttp.Endpoint, o Options) (*container.Client, error) {
	options := &container.ClientOptions{ClientOptions: azhttp.ClientOptions(o.Transport)}
	url := service.URL + "/" + o.Container
	switch {
	case service.Credential != nil:
		return wrapInvalid(container.NewClient(url, service.Credential, options))
	case service.SAS != "":
		return wrapInvalid(container.NewClientWithNoCredential(url+"?"+service.SAS, options))
	}
	key, err := container.NewSharedKeyCredential(service.Name, service.Key)
	if err != nil {
		// The cause would quote where in the key it stumbled.
		return nil, fmt.Errorf("account key is not base64: %w", store.ErrInvalid)
	}
	return wrapInvalid(container.NewClientWithSharedKeyCredential(url, key, options))
}

func wrapInvalid(c *container.Client, err error) (*container.Client, error) {
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return c, nil
}

// errTimedOut ends an exchange that took longer than its size allows.
var errTimedOut = fmt.Errorf("no whole answer in time: %w", context.DeadlineExceeded)

// patience is the time left to an exchange.
type patience struct {
	timer   *time.Timer
	timeout time.Duration
}

// carry starts the time anew, for a body of that many bytes.
func (p patience) carry(size int64) {
	p.timer.Reset(p.timeout + time.Duration(size>>20)*time.Second)
}

// kind says what a missing container means to a call, and what a lost answer.
type kind struct {
	// makes says that the call needs a container, and creates one that is missing.
	makes bool
	// effect says that a lost answer leaves the outcome unknown.
	effect bool
}

var (
	toRead   = kind{}
	toStage  = kind{makes: true}
	toWrite  = kind{makes: true, effect: true}
	toDelete = kind{effect: true}
)

// call makes one exchange, again while it is known to have had no effect, and
// translates its error. Where a container is missing that the call does not make,
// it is store.ErrNotFound.
func (s *Store) call(ctx context.Context, k kind, exchange func(context.Context, patience) error) error {
	return s.retry.Do(ctx, func(ctx context.Context) error {
		once := func() error { return s.once(ctx, k.effect, exchange) }
		if k.makes {
			return s.place.Write(ctx, once)
		}
		found, err := s.place.Read(ctx, once)
		if !found && err == nil {
			return fmt.Errorf("%w: there is no container %s yet", store.ErrNotFound, s.place.Name)
		}
		return err
	})
}

// once makes one exchange and translates its error.
func (s *Store) once(ctx context.Context, effect bool, exchange func(context.Context, patience) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(s.timeout, func() { cancel(errTimedOut) })
	defer timer.Stop()
	ctx, sent := azhttp.Watch(ctx)
	err := exchange(ctx, patience{timer, s.timeout})
	if err == nil || errors.Is(err, store.ErrTooLarge) {
		return err
	}
	if refused := azhttp.FromSDK(err); refused != nil {
		return azhttp.Fail(refused, effect)
	}
	return azhttp.Lost(ctx, err, effect, sent)
}

// Get implements store.BlobStore.
func (s *Store) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	if err := store.CheckContext(ctx); err != nil {
		return nil, "", err
	}
	if err := store.CheckBlobName(name); err != nil {
		return nil, "", err
	}
	data, etag, err := s.download(ctx, name, sdk.HTTPRange{}, store.MaxBlobBytes)
	if err != nil {
		return nil, "", fmt.Errorf("get blob %s: %w", name, err)
	}
	return data, etag, nil
}

// GetRange implements store.BlobStore.
func (s *Store) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	if err := store.CheckContext(ctx); err != nil {
		return nil, "", err
	}
	if err := store.CheckBlobRange(name, offset, length); err != nil {
		return nil, "", err
	}
	// No blob is longer, so a longer range asks for no more; and offset plus
	// length stays far from overflow.
	length = min(length, store.MaxBlobBytes)
	if offset > store.MaxBlobBytes {
		offset = store.MaxBlobBytes
	}
	data, etag, err := s.download(ctx, name, sdk.HTTPRange{Offset: offset, Count: length}, length)
	if err == nil && len(data) == 0 {
		// The emulator's answer to a range at the very end.
		err = fmt.Errorf("%w: the blob ends there", store.ErrInvalid)
	}
	if err != nil {
		return nil, "", fmt.Errorf("get %d bytes at %d of blob %s: %w", length, offset, name, err)
	}
	return data, etag, nil
}

// download reads a range, the zero one being the whole blob, of at most limit
// bytes.
func (s *Store) download(ctx context.Context, name string, r sdk.HTTPRange, limit int64) ([]byte, store.ETag, error) {
	var data []byte
	var etag store.ETag
	err := s.call(ctx, toRead, func(ctx context.Context, p patience) error {
		answer, err := s.container.NewBlobClient(name).DownloadStream(ctx, &sdk.DownloadStreamOptions{Range: r})
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if r.Offset > 0 && !startsAt(answer.ContentRange, r.Offset) {
			return errors.New("answer is not of the range asked for")
		}
		size, err := declared(answer.ContentLength, limit)
		if err != nil {
			return err
		}
		p.carry(size)
		etag, data = tag(answer.ETag), make([]byte, size)
		if _, err := io.ReadFull(answer.Body, data); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		return nil
	})
	return data, etag, err
}

// startsAt reports whether a Content-Range header names the offset: something
// between may have dropped the header that asked for a range.
func startsAt(contentRange *string, offset int64) bool {
	return contentRange != nil && strings.HasPrefix(*contentRange, fmt.Sprintf("bytes %d-", offset))
}

// declared checks the length of an answer before memory is allocated for it.
func declared(length *int64, limit int64) (int64, error) {
	switch {
	case length == nil || *length < 0:
		return 0, errors.New("answer without a length")
	case *length > limit:
		return 0, fmt.Errorf("answer of %d bytes, at most %d: %w", *length, limit, store.ErrTooLarge)
	}
	return *length, nil
}

func tag(etag *azcore.ETag) store.ETag {
	if etag == nil {
		return ""
	}
	return store.ETag(*etag)
}

// List implements store.BlobStore.
func (s *Store) List(ctx context.Context, prefix, marker string) (store.BlobPage, error) {
	if err := store.CheckContext(ctx); err != nil {
		return store.BlobPage{}, err
	}
	if err := store.CheckBlobPrefix(prefix); err != nil {
		return store.BlobPage{}, err
	}
	options := &container.ListBlobsFlatOptions{MaxResults: to.Ptr[int32](listPage), Prefix: &prefix}
	if marker != "" {
		options.Marker = &marker
	}
	var page store.BlobPage
	err := s.call(ctx, toRead, func(ctx context.Context, _ patience) error {
		answer, err := s.container.NewListBlobsFlatPager(options).NextPage(ctx)
		if err != nil {
			return err
		}
		page, err = blobPage(answer)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.BlobPage{}, nil // no container, no blobs
	}
	if err != nil {
		return store.BlobPage{}, fmt.Errorf("list blobs under %q: %w", prefix, err)
	}
	return page, nil
}

func blobPage(answer container.ListBlobsFlatResponse) (store.BlobPage, error) {
	if answer.Segment == nil {
		return store.BlobPage{}, errors.New("listing without a segment")
	}
	page := store.BlobPage{Blobs: make([]store.BlobInfo, 0, len(answer.Segment.BlobItems))}
	for _, item := range answer.Segment.BlobItems {
		p := item.Properties
		if item.Name == nil || p == nil || p.ContentLength == nil || p.LastModified == nil {
			return store.BlobPage{}, errors.New("listing with an incomplete item")
		}
		page.Blobs = append(page.Blobs, store.BlobInfo{Name: *item.Name, Size: *p.ContentLength, Modified: *p.LastModified})
	}
	if answer.NextMarker != nil {
		page.Next = *answer.NextMarker
	}
	return page, nil
}

// Delete implements store.BlobStore.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := store.CheckContext(ctx); err != nil {
		return err
	}
	if err := store.CheckBlobName(name); err != nil {
		return err
	}
	err := s.call(ctx, toDelete, func(ctx context.Context, _ patience) error {
		_, err := s.container.NewBlobClient(name).Delete(ctx, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete blob %s: %w", name, err)
	}
	return nil
}
