package record

import "github.com/latticekv/lattice/core/clock"

// Kind says what a record does. The values are stored; they never change.
type Kind uint8

// The record kinds.
const (
	// KindPut writes an entry with the version of its place in the row.
	KindPut Kind = 1
	// KindTombstone deletes a key, likewise.
	KindTombstone Kind = 2
	// KindMerge carries an entry or tombstone with its original version: a
	// migrated or mirrored one.
	KindMerge Kind = 3
	// KindPrepare stages an entry of an atomic batch, undecided.
	KindPrepare Kind = 4
	// KindCommit makes the prepares of a transaction real.
	KindCommit Kind = 5
	// KindAbort forgets the prepares of a transaction.
	KindAbort Kind = 6
	// KindGraft adopts bulk-loaded leaves.
	KindGraft Kind = 7
	// KindControl marks a change of the head alone: a lease, a checkpoint, a
	// seal. The head is the authority; the record tells the story.
	KindControl Kind = 8
)

// ID is a random 128-bit identity: of an append, or of a transaction.
type ID [16]byte

// IsZero reports whether the id is unset.
func (id ID) IsZero() bool { return id == ID{} }

// Record is one change.
type Record struct {
	Kind Kind
	// Entry is set for KindPut, KindTombstone, KindMerge and KindPrepare. The
	// version of a put or tombstone is implied by its place (see Row).
	Entry Entry
	// Tx is the transaction of a prepare, commit or abort.
	Tx ID
	// Note is the body of a graft or control record: opaque here.
	Note []byte
}

// Row is one write-ahead row: the records of an append, or a part of them
// (an append may span several rows of one transaction, all with its id).
//
// Record i of the row, if it is a put or tombstone, has the version
// {Base + i, Writer}.
type Row struct {
	// Seq is the place in the shard's log, counted from 1.
	Seq uint64
	// Append identifies the append.
	Append ID
	// Base is the hybrid time of the first record; the row uses up
	// len(Records) timestamps.
	Base clock.HLC
	// Writer is the instance that appended.
	Writer uint32
	// Records are the changes in order.
	Records []Record
}

// Version returns the version that record i has by its place.
func (r *Row) Version(i int) clock.Version {
	return clock.Version{Time: r.Base + clock.HLC(i), Writer: r.Writer}
}
