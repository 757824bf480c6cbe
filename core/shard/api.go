// Package shard keeps one physical shard as a log with one guarded head.
//
// Every change is one table transaction on the shard's partition: insert the
// rows that follow the last sequence number, and replace the head if it still
// has the ETag that was read. Whoever loses that race reads what the winner
// wrote, evaluates again and retries; whoever loses the reply reads back and
// looks for the id of its append before it says anything.
package shard

import (
	"errors"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
)

var (
	// ErrStaleRouting: the shard does not own the key's slot (any more). The
	// caller refreshes its map and asks the owner.
	ErrStaleRouting = errors.New("stale routing")
	// ErrClosed: the tree of the shard is deleted.
	ErrClosed = errors.New("shard is closed")
	// ErrNoShard: the shard has no head: it was never created, or was purged.
	ErrNoShard = errors.New("shard does not exist")
	// ErrNotAtomic: the writes do not fit one append.
	ErrNotAtomic = errors.New("too much for one append")
)

// Op says what a Write does.
type Op uint8

const (
	// OpPut writes a value.
	OpPut Op = iota + 1
	// OpDelete removes the key. Nothing is logged if it is absent.
	OpDelete
	// OpGetOrSet writes a value only if the key is absent, and answers the
	// existing entry otherwise.
	OpGetOrSet
	// OpMerge brings an entry, or a tombstone, that was written elsewhere, with
	// its original Version. The greater version stays; merging twice changes
	// nothing. From then on the shard's clock is past that version, so that later
	// local writes win.
	OpMerge
	// OpPrepare logs a mutation of transaction Tx, a tombstone if so marked,
	// that no reader sees until the transaction commits. Its condition is judged
	// now. It survives checkpoints.
	OpPrepare
	// OpCommit makes what transaction Tx prepared here into entries of Version,
	// each unless a newer one stands. Without prepared mutations it changes
	// nothing, so it may be repeated.
	OpCommit
	// OpAbort forgets what transaction Tx prepared here.
	OpAbort
)

// Write is one change of one key, with an optional condition that is
// evaluated against the state on top of which the change is appended.
type Write struct {
	Op    Op
	Key   string
	Value []byte
	// Type is the media type; empty means application/octet-stream.
	Type string
	// Expiry is a Unix millisecond, 0 for never.
	Expiry int64
	// IfAbsent demands that the key does not exist.
	IfAbsent bool
	// IfVersion, unless zero, demands that the key exists in that version.
	IfVersion clock.Version
	// Blind waives Existed in the result, which saves the look-up of the
	// former state of an unconditional put.
	Blind bool
	// Version and Tombstone are those of a merged entry. Migration, unless
	// empty, is the migration that brings it: the write is StatusStale unless
	// the shard's head has that as incoming, whatever slots it owns.
	Version   clock.Version
	Tombstone bool
	Migration string
	// Tx is the transaction of a prepare, commit or abort.
	Tx record.ID
	// Slots, unless nil, are those for which the caller of a commit or an abort
	// takes the shard to be the owner. StatusStale says that it is not, of all of
	// them: the transaction has ended here, and the new owner has to be told too.
	Slots *keyspace.SlotSet

	// ref is where a large value was stored before the write was queued, and
	// stored when.
	ref    *record.Ref
	stored clock.Instant
	// hasty gives up at once where a lease of another instance bars the way.
	hasty bool
}

// Status is the outcome of a Write.
type Status uint8

const (
	// StatusApplied: the write is durable (or a delete found nothing to do).
	StatusApplied Status = iota + 1
	// StatusMismatch: the condition did not hold; nothing was written.
	StatusMismatch
	// StatusExisting: a get-or-set found the key; nothing was written.
	StatusExisting
	// StatusStale: the shard does not own the key's slot; nothing was written.
	// The caller routes this key again.
	StatusStale
	// StatusPending: a transaction that is not decided here has prepared a
	// mutation of the key; nothing was written. The caller finds out how that
	// transaction ended, or waits until it has, and says so with OpCommit or
	// OpAbort before it tries again.
	StatusPending
)

// WriteResult answers one Write.
type WriteResult struct {
	Status Status
	// Version is the new version when a put was applied; on a mismatch the
	// version now stored, zero if the key is absent.
	Version clock.Version
	// Existed says whether the key was live before. Unset for a blind put.
	Existed bool
	// Entry is the live entry that StatusExisting found, its Ref unresolved.
	Entry record.Entry
	// Tx is the transaction that StatusPending met.
	Tx record.ID
}

// ReadOptions say how current an answer must be.
type ReadOptions struct {
	// MaxAge accepts a view that was current at most so long ago. Zero demands
	// a linearizable answer.
	MaxAge time.Duration
}

// Bounds is a range of keys: From inclusive, To exclusive, empty meaning
// unbounded.
type Bounds struct{ From, To string }

// Contains reports whether key lies in the range.
func (b Bounds) Contains(key string) bool {
	return key >= b.From && (b.To == "" || key < b.To)
}
