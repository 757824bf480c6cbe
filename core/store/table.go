// Package store is the storage contract: the two narrow interfaces through
// which core sees the world, a Table and a BlobStore, and the short list of
// errors that both speak. The comments here are the specification; package
// storetest turns them into a suite that every provider passes.
package store

import (
	"context"
	"fmt"
)

// Limits of one table transaction. They are part of the contract, the same for
// every provider, so that what works on a laptop works on the service: Azure
// Table rows hold at most 1 MiB (Azurite counts the JSON form, hence the
// margin), a transaction 100 operations and 4 MiB of body.
const (
	// MaxRowBytes is the largest Data of one row.
	MaxRowBytes = 704 << 10
	// MaxTransactionOps is the largest number of operations of one Apply.
	MaxTransactionOps = 100
	// MaxTransactionBytes bounds the sum of the Data of one Apply.
	MaxTransactionBytes = 2560 << 10
	// MaxPageRows is the largest number of rows of one page of Range.
	MaxPageRows = 1000
	// MaxKeyBytes bounds a partition name or a row key.
	MaxKeyBytes = 512
)

// ETag identifies one version of a row or blob. It is opaque: compared only as
// a string, handed back verbatim, never parsed. No two versions of one row
// that ever existed are relied on to differ; the shard log also guards with
// inserts.
type ETag string

// Row is one stored row.
type Row struct {
	// Key is the row key, unique in its partition.
	Key string
	// ETag is the version that was read.
	ETag ETag
	// Data is the payload. The caller owns the slice; providers never keep or
	// reuse it.
	Data []byte
}

// OpKind says what an Op does.
type OpKind uint8

const (
	// OpInsert creates the row; ErrExists if the key is present.
	OpInsert OpKind = iota + 1
	// OpReplace overwrites the row; ErrPrecondition if it does not exist or if
	// its ETag is not IfMatch. IfMatch must not be empty.
	OpReplace
	// OpDelete removes the row; ErrPrecondition if IfMatch is set and differs,
	// ErrNotFound if the row does not exist and IfMatch is empty (with IfMatch
	// set a missing row is ErrPrecondition).
	OpDelete
)

// Op is one operation of a transaction.
type Op struct {
	Kind    OpKind
	Key     string
	Data    []byte
	IfMatch ETag
}

// Insert returns an Op that creates a row.
func Insert(key string, data []byte) Op { return Op{Kind: OpInsert, Key: key, Data: data} }

// Replace returns an Op that overwrites the row that has the given ETag.
func Replace(key string, data []byte, ifMatch ETag) Op {
	return Op{Kind: OpReplace, Key: key, Data: data, IfMatch: ifMatch}
}

// Delete returns an Op that removes a row, whatever its ETag when ifMatch is
// empty.
func Delete(key string, ifMatch ETag) Op { return Op{Kind: OpDelete, Key: key, IfMatch: ifMatch} }

// RangeQuery selects rows of one partition in ascending bytewise key order.
type RangeQuery struct {
	// From is the first key, inclusive. Empty means from the beginning.
	From string
	// To is the end, exclusive. Empty means to the end of the partition.
	To string
	// Limit bounds the rows of the page: 1 to MaxPageRows; 0 is MaxPageRows.
	Limit int
}

// Page is a part of the answer to a RangeQuery.
type Page struct {
	// Rows in ascending key order. It is empty only if there is no further row
	// in the range: a provider whose service answers with an empty page and a
	// continuation asks on, a bounded number of times.
	Rows []Row
	// More says that rows may follow. The caller continues with From set just
	// past the last key (see NextKey). A page may end before its limit, with
	// More set, when its rows are large.
	More bool
}

// NextKey returns the smallest key greater than key among the keys that the
// project uses (no key extends another by a character below '!').
func NextKey(key string) string { return key + "!" }

// Table is a set of partitions, each a sorted map from row key to row. One
// partition is the unit of atomicity.
//
// Keys and partition names are short strings over [0-9A-Za-z~._-]: names that
// the project makes. No user text ever stands in one. Providers refuse others,
// and the empty string, with ErrInvalid, as they do a transaction that breaks
// the limits (ErrTooLarge), names a row twice, or replaces without an ETag.
//
// Every method is safe for concurrent use and honours its context: one that
// ended before the call is ErrUnavailable (see CheckContext). An error satisfies
// errors.Is for exactly one sentinel of this package.
type Table interface {
	// Get reads one row. ErrNotFound if it does not exist.
	Get(ctx context.Context, partition, key string) (Row, error)

	// Range reads one page of a range. A missing partition is an empty one.
	// Rows committed before the call began are seen. A page is not promised to
	// be a snapshot: a transaction that commits meanwhile may be seen in part.
	Range(ctx context.Context, partition string, q RangeQuery) (Page, error)

	// Apply performs all ops on one partition atomically, or none of them, and
	// returns the new ETag of each (empty for a delete), in the order of ops.
	// When it returns nil the effect is durable.
	//
	// A condition that fails is a *OpError that names the operation and wraps
	// ErrExists, ErrPrecondition or ErrNotFound; nothing was applied then,
	// unless an earlier attempt of the same call was (the caller that must know
	// looks for its own mark). ErrOutcomeUnknown says that the reply was lost:
	// the transaction may have been applied, or may still be applied later.
	// ErrThrottled and ErrUnavailable promise that nothing was applied.
	// Providers never retry an Apply on their own.
	Apply(ctx context.Context, partition string, ops []Op) ([]ETag, error)
}

// OpError reports which operation of a transaction failed.
type OpError struct {
	// Index is the place in the ops given to Apply, or -1 if the service did
	// not say.
	Index int
	// Key is the row key of that operation.
	Key string
	// Err wraps one of the sentinels.
	Err error
}

// Error implements error.
func (e *OpError) Error() string {
	return fmt.Sprintf("operation %d on row %q: %v", e.Index, e.Key, e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// CheckOps validates a transaction against the contract: limits, no duplicate
// rows, no conditional operation without its ETag. Providers call it first.
func CheckOps(partition string, ops []Op) error {
	if err := CheckKey("partition", partition); err != nil {
		return err
	}
	if len(ops) == 0 || len(ops) > MaxTransactionOps {
		return fmt.Errorf("transaction of %d operations, 1 to %d allowed: %w", len(ops), MaxTransactionOps, ErrTooLarge)
	}
	total := 0
	for i, op := range ops {
		if err := CheckKey("row key", op.Key); err != nil {
			return err
		}
		if err := checkOp(op); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		for _, earlier := range ops[:i] {
			if earlier.Key == op.Key {
				return fmt.Errorf("row %q appears twice in one transaction: %w", op.Key, ErrInvalid)
			}
		}
		total += len(op.Data)
	}
	if total > MaxTransactionBytes {
		return fmt.Errorf("transaction of %d bytes, at most %d: %w", total, MaxTransactionBytes, ErrTooLarge)
	}
	return nil
}

func checkOp(op Op) error {
	switch op.Kind {
	case OpInsert:
	case OpReplace:
		if op.IfMatch == "" {
			return fmt.Errorf("replace of row %q without an ETag: %w", op.Key, ErrInvalid)
		}
	case OpDelete:
	default:
		return fmt.Errorf("unknown operation kind %d: %w", op.Kind, ErrInvalid)
	}
	if len(op.Data) > MaxRowBytes {
		return fmt.Errorf("row %q of %d bytes, at most %d: %w", op.Key, len(op.Data), MaxRowBytes, ErrTooLarge)
	}
	return nil
}

// CheckKey refuses what may not stand in a partition name or row key.
func CheckKey(what, key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return fmt.Errorf("%s of %d bytes, 1 to %d allowed: %w", what, len(key), MaxKeyBytes, ErrInvalid)
	}
	for i := 0; i < len(key); i++ {
		if !keyByte(key[i]) {
			return fmt.Errorf("%s %q holds byte %#02x: %w", what, key, key[i], ErrInvalid)
		}
	}
	return nil
}

func keyByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' ||
		c == '~' || c == '.' || c == '_' || c == '-'
}
