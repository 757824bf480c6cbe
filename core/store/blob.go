package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// MaxBlobBytes is the largest blob the contract promises to take: the largest
// value served, and the frame around it.
const MaxBlobBytes = 72 << 20

// PutMode says under which condition a blob is written.
type PutMode uint8

const (
	// PutCreate writes only if the name is free, else ErrExists.
	PutCreate PutMode = iota + 1
	// PutIfMatch writes only over the version with the given ETag, else
	// ErrPrecondition; so too when the blob is missing.
	PutIfMatch
	// PutAlways writes unconditionally.
	PutAlways
)

// PutCondition guards a Put. The zero value is invalid, so that nobody
// overwrites by oversight.
type PutCondition struct {
	Mode    PutMode
	IfMatch ETag
}

// Create is the condition that the name is free.
var Create = PutCondition{Mode: PutCreate}

// Always is no condition.
var Always = PutCondition{Mode: PutAlways}

// IfMatch is the condition that the stored version has the ETag.
func IfMatch(etag ETag) PutCondition { return PutCondition{Mode: PutIfMatch, IfMatch: etag} }

// BlobInfo describes a blob in a listing.
type BlobInfo struct {
	Name string
	Size int64
	// Modified is the storage's own time of the last write. Its resolution may
	// be a second.
	Modified time.Time
}

// BlobPage is a part of a listing.
type BlobPage struct {
	// Blobs in ascending bytewise order of name; may be empty though more
	// follow.
	Blobs []BlobInfo
	// Next continues the listing; empty at its end.
	Next string
}

// BlobStore is a flat set of named immutable-by-habit byte strings. Names are
// paths over [0-9A-Za-z~._-] with '/' between non-empty segments, none of which
// ends in '.' (services and file systems resolve or trim such segments).
//
// Every method is safe for concurrent use and honours its context. An error
// satisfies errors.Is for exactly one sentinel of this package.
type BlobStore interface {
	// Put writes a whole blob under a condition and returns its new ETag. It is
	// durable, and visible to every later Get and List, when it returns nil.
	// Readers see the old blob or the new one, never a mixture.
	// ErrOutcomeUnknown as for Table.Apply; a provider may retry a Put on its
	// own, so a create may report ErrExists for the caller's own blob: callers
	// use fresh names, for which both mean success.
	Put(ctx context.Context, name string, data []byte, cond PutCondition) (ETag, error)

	// Get reads a whole blob. ErrNotFound if it does not exist.
	Get(ctx context.Context, name string) ([]byte, ETag, error)

	// GetRange reads length bytes from offset on, fewer if the blob ends
	// before. ErrInvalid if offset is negative, at the end or beyond it (so
	// always, for an empty blob), or length is not positive.
	GetRange(ctx context.Context, name string, offset, length int64) ([]byte, ETag, error)

	// List names the blobs that begin with prefix, a page at a time: the first
	// with an empty marker, then with the Next of the page before. Blobs that
	// exist throughout the listing are named exactly once.
	List(ctx context.Context, prefix, marker string) (BlobPage, error)

	// Delete removes a blob. ErrNotFound if it does not exist.
	Delete(ctx context.Context, name string) error
}

// CheckBlob validates the arguments of a Put against the contract.
func CheckBlob(name string, size int, cond PutCondition) error {
	if err := CheckBlobName(name); err != nil {
		return err
	}
	if size > MaxBlobBytes {
		return fmt.Errorf("blob %q of %d bytes, at most %d: %w", name, size, MaxBlobBytes, ErrTooLarge)
	}
	switch {
	case cond.Mode == PutCreate, cond.Mode == PutAlways:
		return nil
	case cond.Mode == PutIfMatch && cond.IfMatch != "":
		return nil
	}
	return fmt.Errorf("blob %q: put without a valid condition: %w", name, ErrInvalid)
}

// CheckBlobName refuses what may not be a blob name.
func CheckBlobName(name string) error {
	if len(name) > MaxKeyBytes {
		return fmt.Errorf("blob name of %d bytes, at most %d: %w", len(name), MaxKeyBytes, ErrInvalid)
	}
	for _, segment := range strings.Split(name, "/") {
		if err := CheckKey("blob name segment", segment); err != nil {
			return err
		}
		if strings.HasSuffix(segment, ".") {
			return fmt.Errorf("blob name %q has a segment that ends in a dot: %w", name, ErrInvalid)
		}
	}
	return nil
}
