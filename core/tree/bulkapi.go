package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// A bulk load seeds a tree with many entries at once. There are three ways:
//
//   - BulkLoad takes entries in any order, sorts them, and wants an empty tree.
//   - BulkStream takes entries in ascending order, of any number, at constant
//     memory, and goes on top of what the tree holds.
//   - A session (BeginBulkLoad, AppendBulkLoad, CommitBulkLoad) takes ascending
//     chunks that are acknowledged one by one and can be sent again.
//
// Entries carry the version of the moment at which their chunk was first
// accepted; where an ordinary write of the key is newer, it stays. A load is
// idempotent and not transactional: what fails half-way is resumed, not undone.

var (
	// ErrTreeNotEmpty: the tree holds live keys or tombstones, and a load was
	// asked for that wants none.
	ErrTreeNotEmpty = errors.New("tree is not empty")
	// ErrOperationNotFound: no bulk load of that id is known.
	ErrOperationNotFound = errors.New("operation not found")
	// ErrOperationInProgress: another bulk load of the tree is open.
	ErrOperationInProgress = errors.New("another operation is in progress")
	// ErrOperationMismatch: the chunk was begun with other contents, or the
	// session has ended in another way.
	ErrOperationMismatch = errors.New("operation does not match")
)

// BusyError: another bulk load of the tree is under way. It is
// ErrOperationInProgress.
type BusyError struct {
	// OperationID is that of a session that is open, empty for a load in one
	// request.
	OperationID string
	// Until is when a load in one request is given up, unless it gives a sign of
	// life before; RetryAfter is when to look again. Zero for a session, which may
	// stay open for long.
	Until      time.Time
	RetryAfter time.Duration
}

// Error implements error.
func (e *BusyError) Error() string {
	if e.OperationID != "" {
		return fmt.Sprintf("the bulk load session %s is open; commit or abort it", e.OperationID)
	}
	return "a one-shot or streamed load is under way, which ends by itself or, if it gives no more sign of life, is given up at " +
		e.Until.UTC().Format(time.TimeOnly) + " UTC"
}

// Unwrap returns ErrOperationInProgress.
func (e *BusyError) Unwrap() error { return ErrOperationInProgress }

// OrderError: entries are not strictly ascending, or a key comes twice.
type OrderError struct {
	Tree string
	// Chunk is the index of the chunk, -1 outside of a session.
	Chunk int64
	// Index is the place of the entry in the request, from 0; -1 where a load of
	// entries in any order cannot tell it.
	Index int64
	// Key is the key at fault, Previous the one before it: the same for a key
	// that comes twice.
	Key, Previous string
}

// Error implements error.
func (e *OrderError) Error() string {
	if e.Key == e.Previous {
		return fmt.Sprintf("key %q comes twice", cut(e.Key))
	}
	return fmt.Sprintf("key %q follows %q and sorts before it", cut(e.Key), cut(e.Previous))
}

// BulkMismatchError says why a chunk or the end of a session does not fit the
// session. It is ErrOperationMismatch.
type BulkMismatchError struct {
	OperationID string
	// Status is that of the session.
	Status BulkStatus
	// Chunk is the chunk that was begun with other contents or, if it is
	// Unacknowledged, that must be sent again before a commit; -1 if the session
	// has ended another way.
	Chunk          int64
	Unacknowledged bool
}

// Error implements error.
func (e *BulkMismatchError) Error() string {
	switch {
	case e.Unacknowledged:
		return fmt.Sprintf("chunk %d of bulk load %s was begun and is not acknowledged; send it again before the commit", e.Chunk, e.OperationID)
	case e.Chunk >= 0:
		return fmt.Sprintf("chunk %d of bulk load %s was begun with other contents: keys, values and media types must be the same", e.Chunk, e.OperationID)
	}
	return fmt.Sprintf("bulk load %s is %s", e.OperationID, e.Status)
}

// Unwrap returns ErrOperationMismatch.
func (e *BulkMismatchError) Unwrap() error { return ErrOperationMismatch }

// SequenceError: a chunk is not the one expected: superseded, or too far ahead.
type SequenceError struct {
	// Index is the chunk that was sent, Expected the one that must come next.
	Index, Expected int64
}

// Error implements error.
func (e *SequenceError) Error() string {
	return fmt.Sprintf("chunk %d is out of sequence, chunk %d is expected", e.Index, e.Expected)
}

// BulkEntry is one entry of a bulk load.
type BulkEntry struct {
	Key   string
	Value []byte
	// Type is the media type of the value; empty is application/octet-stream.
	Type string
	// Expiry is when the entry ceases to exist, zero for never. One in the past
	// is accepted and counted, and never seen.
	Expiry time.Time
}

// BulkSource yields the entries of a request.
type BulkSource interface {
	// Next sets e to the next entry, or returns io.EOF. Key and value belong to
	// the load until it returns from its next call. Any other error ends the
	// load and is returned as it is.
	Next(ctx context.Context, e *BulkEntry) error
}

// BulkOptions qualify a bulk load.
type BulkOptions struct {
	// EnforceLimits refuses keys over MaxKeyLength and values over
	// MaxValueSizeBytes (*LimitError, nothing of the request is applied, except
	// what a stream has loaded by then) and loads beyond the admission caps
	// (*QuotaError), in the same way: entries are added to what the tree holds by
	// the estimates of now, each as a new key. A chunk that is sent again is not
	// compared again. Otherwise they are counted.
	EnforceLimits bool
}

// BulkResult answers a one-shot or streamed load. After an error it says how far
// the load came.
type BulkResult struct {
	// Accepted is the number of entries loaded.
	Accepted int64
	// OverLimit is how many of them exceed MaxKeyLength or MaxValueSizeBytes, so
	// that an ordinary write of them would be refused; FirstOverLimit is the
	// first one's.
	OverLimit      int64
	FirstOverLimit *LimitError
	// TotalLiveKeys is the number of live keys of the tree, counted afterwards.
	TotalLiveKeys int64
}

// BulkState describes a bulk load session.
type BulkState struct {
	OperationID string
	Status      BulkStatus
	// NextChunk is the index expected next; all before are durable.
	NextChunk int64
	// Accepted and OverLimit count the entries of the chunks before NextChunk.
	Accepted, OverLimit int64
	// LastKey is the greatest key of these chunks, empty if there are none.
	LastKey string
	// Pending says that chunk NextChunk was begun and is not acknowledged.
	Pending          bool
	Started, Updated time.Time
	// TotalLiveKeys is set by CommitBulkLoad.
	TotalLiveKeys int64
}

// BulkStatus is the state of a session.
type BulkStatus string

// The states of a session.
const (
	BulkOpen      BulkStatus = "open"
	BulkCommitted BulkStatus = "committed"
	BulkAborted   BulkStatus = "aborted"
)

// BulkAck acknowledges a chunk: all of it is durable.
type BulkAck struct {
	Chunk, NextChunk int64
	// Accepted is the number of entries of the chunk.
	Accepted       int64
	OverLimit      int64
	FirstOverLimit *LimitError
}

// QuotaError: an admission cap of the tree is reached.
type QuotaError struct {
	// Option is "MaxLiveKeys" or "MaxEstimatedBytes".
	Option string
	// Limit is the cap, Current what the tree was last seen to hold.
	Limit, Current int64
	// Adding is what a bulk load would add, at most; 0 from an ordinary write.
	Adding int64
	// SampledAt is when that was.
	SampledAt clock.Instant
}

// Error implements error.
func (e *QuotaError) Error() string {
	if e.Adding > 0 {
		return fmt.Sprintf("the tree holds %d, the load would add %d, and %s is %d", e.Current, e.Adding, e.Option, e.Limit)
	}
	return fmt.Sprintf("the tree holds %d and %s is %d", e.Current, e.Option, e.Limit)
}
