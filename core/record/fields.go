package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
)

// A record is its kind, a byte of flags, and the fields that the flags name, in
// this order.
const (
	hasKey       = 1 << iota // key: length and bytes
	hasVersion               // version: 12 bytes
	hasExpiry                // expiry: uvarint
	hasType                  // media type: length and bytes
	hasValue                 // value: length and bytes
	hasRef                   // blob name: length and bytes; size: uvarint
	isTombstone              // no field
	hasTxAndNote             // transaction: 16 bytes; note: length and bytes
)

// minRecord is the length of the shortest record: kind and flags.
const minRecord = 2

var (
	errRawSize = fmt.Errorf("more than %d bytes of records declared", MaxRowRaw)
	errKind    = errors.New("unknown record kind")
	errFlags   = errors.New("fields do not fit the record kind")
)

// holdsEntry reports whether records of the kind carry an entry.
func (k Kind) holdsEntry() bool { return k >= KindPut && k <= KindPrepare }

// RecordSize returns an upper bound of the bytes that the record takes in a
// row, before compression.
func RecordSize(r *Record) int {
	e := &r.Entry
	n := minRecord + len(ID{}) + clock.VersionBytes + 6*binary.MaxVarintLen64
	n += len(e.Key) + len(e.Value) + len(e.Type) + len(r.Note)
	if e.Ref != nil {
		n += len(e.Ref.Blob)
	}
	return n
}

// recordFlags says which fields the record has. The kind decides whether it is
// a tombstone, and the place of a put or tombstone gives its version.
func recordFlags(r *Record) byte {
	var f byte
	if !r.Tx.IsZero() || len(r.Note) > 0 {
		f |= hasTxAndNote
	}
	switch r.Kind {
	case KindPut:
		return f | entryFlags(&r.Entry, false)
	case KindTombstone:
		return f | entryFlags(&r.Entry, true)
	case KindMerge, KindPrepare:
		f |= entryFlags(&r.Entry, r.Entry.Tombstone)
		if !r.Entry.Version.IsZero() {
			f |= hasVersion
		}
	}
	return f
}

func entryFlags(e *Entry, tombstone bool) byte {
	f := byte(hasKey)
	if e.Expiry != 0 {
		f |= hasExpiry
	}
	if e.Type != "" {
		f |= hasType
	}
	switch {
	case tombstone:
		f |= isTombstone
	case e.Ref != nil:
		f |= hasRef
	case len(e.Value) > 0:
		f |= hasValue
	}
	return f
}

func appendRecord(dst []byte, r *Record) []byte {
	f, e := recordFlags(r), &r.Entry
	dst = append(dst, byte(r.Kind), f)
	if f&hasKey != 0 {
		dst = frame.AppendBytes(dst, e.Key)
	}
	if f&hasVersion != 0 {
		dst = e.Version.Append(dst)
	}
	if f&hasExpiry != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Expiry))
	}
	if f&hasType != 0 {
		dst = frame.AppendBytes(dst, e.Type)
	}
	if f&hasValue != 0 {
		dst = frame.AppendBytes(dst, e.Value)
	}
	if f&hasRef != 0 {
		dst = frame.AppendBytes(dst, e.Ref.Blob)
		dst = binary.AppendUvarint(dst, uint64(e.Ref.Size))
	}
	if f&hasTxAndNote != 0 {
		dst = append(dst, r.Tx[:]...)
		dst = frame.AppendBytes(dst, r.Note)
	}
	return dst
}

// readRecord reads one record; errors are left in rd.
func readRecord(rd *frame.Reader, r *Record) {
	r.Kind = Kind(rd.Byte())
	f := rd.Byte()
	if rd.Err() == nil {
		checkKind(rd, r.Kind, f)
	}
	e := &r.Entry
	e.Tombstone = f&isTombstone != 0
	if f&hasKey != 0 {
		e.Key = rd.Text()
	}
	if f&hasVersion != 0 {
		e.Version = readVersion(rd)
	}
	if f&hasExpiry != 0 {
		e.Expiry = rd.Int64()
	}
	if f&hasType != 0 {
		e.Type = rd.Text()
	}
	if f&hasValue != 0 {
		e.Value = rd.Bytes()
	}
	if f&hasRef != 0 {
		e.Ref = &Ref{Blob: rd.Text(), Size: rd.Int64()}
	}
	if f&hasTxAndNote != 0 {
		copy(r.Tx[:], rd.Next(len(r.Tx)))
		r.Note = rd.Bytes()
	}
}

func readVersion(rd *frame.Reader) clock.Version {
	b := rd.Next(clock.VersionBytes)
	if b == nil {
		return clock.Version{}
	}
	return clock.Version{
		Time:   clock.HLC(binary.BigEndian.Uint64(b)),
		Writer: binary.BigEndian.Uint32(b[8:]),
	}
}

// checkKind refuses what the encoder never writes.
func checkKind(rd *frame.Reader, k Kind, f byte) {
	const value = hasValue | hasRef | isTombstone
	excess := byte(0)
	switch k {
	case KindPut:
		excess = hasVersion | isTombstone
	case KindTombstone:
		excess = hasVersion | hasValue | hasRef
	case KindMerge, KindPrepare:
	case KindCommit, KindAbort, KindGraft, KindControl:
		excess = ^byte(hasTxAndNote)
	default:
		rd.Fail(errKind)
	}
	v := f & value
	if f&excess != 0 || v&(v-1) != 0 || k.holdsEntry() != (f&hasKey != 0) ||
		k == KindTombstone && f&isTombstone == 0 {
		rd.Fail(errFlags)
	}
}
