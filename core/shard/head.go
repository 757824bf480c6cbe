package shard

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// Head is the one mutable row of a shard. Whoever replaces it, on condition of
// its ETag, has changed the shard; nothing else can.
//
// What changes with every append is a fixed binary part. What changes rarely is
// Meta, JSON after it, whose bytes are carried over unparsed from one head to
// the next.
type Head struct {
	// Seq is the number of the last row of the log; rows count from 1.
	Seq uint64
	// Clock is the last hybrid time given out, or seen.
	Clock clock.HLC
	// Append is the id of the last append.
	Append record.ID
	// Truncated is the row up to which rows may be gone. It never exceeds the
	// sequence number of the checkpoint.
	Truncated uint64
	// Lease is who may append, if anybody has claimed that.
	Lease Lease
	// Live and Bytes estimate the live entries and their user data. A blind
	// put counts as an insert.
	Live, Bytes int64
	// Reads and Writes count operations since the shard was created, as far as
	// instances have reported them.
	Reads, Writes uint64
	// Batch is the highest version of what the shard holds of transactions, or of
	// what migrations brought: a reader that sees it must see the rest of that
	// transaction elsewhere. Batches grows whenever there is more of that.
	Batch   clock.HLC
	Batches uint64

	meta *metaBytes
}

// Lease is a claim on the sole right to append until it expires. It is never
// deleted, so that its token only grows and fences.
type Lease struct {
	// Owner is the instance that holds it, 0 if it is free.
	Owner uint64
	// Token grows with every change of owner.
	Token uint64
	// Expiry is a Unix millisecond.
	Expiry int64
	// Handoff is the instance that asks for the shard, 0 if none does.
	Handoff uint64
	// Backoff is the Unix millisecond before which nobody takes the lease,
	// because instances were seen to contend for it.
	Backoff int64
}

// Meta is the rarely changing part of a head.
type Meta struct {
	// Checkpoint is where the state up to a row lies in blobs.
	Checkpoint Checkpoint `json:"checkpoint"`
	// Closed says that the tree is deleted: no read or write is served.
	Closed bool `json:"closed,omitempty"`
	// Epoch numbers the decision of the tree that Closed follows.
	Epoch uint64 `json:"epoch,omitempty"`
	// Moved are the slots that the shard gave away for good.
	Moved keyspace.SlotSet `json:"moved"`
	// Outgoing is the migration of which the shard is the source.
	Outgoing *Outgoing `json:"outgoing,omitempty"`
	// Incoming are the migrations of which it is a target.
	Incoming []Incoming `json:"incoming,omitempty"`
	// Ended are the latest migrations that are over, newest last: a frozen
	// coordinator must not open them again.
	Ended []string `json:"ended,omitempty"`
	// Pins are states that are kept for snapshots.
	Pins []Pin `json:"pins,omitempty"`
}

// Checkpoint points to a manifest.
type Checkpoint struct {
	// Manifest is the blob's name, empty before the first checkpoint.
	Manifest string `json:"manifest,omitempty"`
	// Seq is the last row that the manifest covers.
	Seq uint64 `json:"seq,omitempty"`
}

// metaBytes is a Meta with its encoded form. It is immutable.
type metaBytes struct {
	Meta
	raw []byte
	// refused are the slots that moved away or are sealed, nil if there are
	// none: that spares the hot path a hash.
	refused *keyspace.SlotSet
}

// index prepares what the hot path asks of a meta.
func (m *metaBytes) index() {
	refused := m.Moved
	if m.Outgoing != nil && m.Outgoing.Sealed {
		refused.Union(&m.Outgoing.Slots)
	}
	if !refused.Empty() {
		m.refused = &refused
	}
}

// refuses reports whether the shard does not serve the key.
func (m *metaBytes) refuses(key string) bool {
	return m.refused != nil && m.refused.Has(keyspace.Slot(key))
}

const (
	headFormat    = 2
	headFixedSize = 1 + 8*3 + 16 + 8*5 + 8*6 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Meta returns the rarely changing part. Callers do not modify what it refers
// to.
func (h *Head) Meta() *Meta { return &h.meta.Meta }

// setMeta replaces the rarely changing part.
func (h *Head) setMeta(m Meta) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	h.meta = &metaBytes{Meta: m, raw: raw}
	h.meta.index()
	return nil
}

// joins notes that the shard holds a part of a transaction, of a version.
func (h *Head) joins(v clock.Version) {
	h.Batch = max(h.Batch, v.Time)
	h.Batches++
}

// encode appends the stored form of the head.
func (h *Head) encode(b []byte) []byte {
	start := len(b)
	b = append(b, headFormat)
	b = binary.BigEndian.AppendUint64(b, h.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Clock))
	b = append(b, h.Append[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Truncated)
	b = binary.BigEndian.AppendUint64(b, h.Lease.Owner)
	b = binary.BigEndian.AppendUint64(b, h.Lease.Token)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Lease.Expiry))
	b = binary.BigEndian.AppendUint64(b, h.Lease.Handoff)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Lease.Backoff))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Live))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Bytes))
	b = binary.BigEndian.AppendUint64(b, h.Reads)
	b = binary.BigEndian.AppendUint64(b, h.Writes)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Batch))
	b = binary.BigEndian.AppendUint64(b, h.Batches)
	b = append(b, h.meta.raw...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// decodeHead reads a stored head. The bytes of the meta part are compared with
// those of last, if given, and its parsed form reused when they are the same.
func decodeHead(partition string, data []byte, last *Head) (Head, error) {
	if len(data) < headFixedSize {
		return Head{}, store.Corruptf("head of %s has %d bytes, at least %d expected", partition, len(data), headFixedSize)
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return Head{}, store.Corruptf("head of %s fails its checksum", partition)
	}
	if body[0] != headFormat {
		return Head{}, store.Corruptf("head of %s has format %d, this version reads %d", partition, body[0], headFormat)
	}
	var h Head
	rest := h.decodeFixed(body[1:])
	if last != nil && bytes.Equal(last.meta.raw, rest) {
		h.meta = last.meta
		return h, nil
	}
	m := &metaBytes{raw: rest}
	dec := json.NewDecoder(bytes.NewReader(rest))
	// An instance that does not know a field must not rewrite the head
	// without it.
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m.Meta); err != nil {
		return Head{}, store.Corruptf("head of %s: %v", partition, err)
	}
	m.index()
	h.meta = m
	return h, nil
}

// decodeFixed reads the binary part and returns what follows it.
func (h *Head) decodeFixed(b []byte) []byte {
	next := func() uint64 {
		v := binary.BigEndian.Uint64(b)
		b = b[8:]
		return v
	}
	h.Seq = next()
	h.Clock = clock.HLC(next())
	b = b[copy(h.Append[:], b):]
	h.Truncated = next()
	h.Lease.Owner = next()
	h.Lease.Token = next()
	h.Lease.Expiry = int64(next())
	h.Lease.Handoff = next()
	h.Lease.Backoff = int64(next())
	h.Live = int64(next())
	h.Bytes = int64(next())
	h.Reads = next()
	h.Writes = next()
	h.Batch = clock.HLC(next())
	h.Batches = next()
	return b
}
