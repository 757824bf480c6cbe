// Package record defines what the log and the leaves hold: entries, the
// records that change them, and the encoding of write-ahead rows.
package record

import "github.com/latticekv/lattice/core/clock"

// Ref points to a value too large for a row, kept in a blob of its own that
// was written before the record that names it.
type Ref struct {
	// Blob is the blob's name.
	Blob string
	// Size is the length of the value in bytes.
	Size int64
}

// Entry is the state of one key.
type Entry struct {
	Key string
	// Value is the value itself; empty when Ref is set or for a tombstone.
	Value []byte
	// Ref is set when the value lives in a blob.
	Ref *Ref
	// Version orders the entry among all writes of the key.
	Version clock.Version
	// Expiry is the Unix millisecond at which the entry ceases to exist; 0 is
	// never.
	Expiry int64
	// Type is the media type of the value; empty means
	// application/octet-stream.
	Type string
	// Tombstone says that the key was deleted.
	Tombstone bool
}

// Live reports whether the key exists at the given Unix millisecond.
func (e *Entry) Live(nowMilli int64) bool {
	return !e.Tombstone && (e.Expiry == 0 || nowMilli < e.Expiry)
}

// ValueSize returns the length of the value wherever it lives.
func (e *Entry) ValueSize() int64 {
	if e.Ref != nil {
		return e.Ref.Size
	}
	return int64(len(e.Value))
}

// Size estimates the bytes of user data of the entry: key and value.
func (e *Entry) Size() int64 { return int64(len(e.Key)) + e.ValueSize() }
