// Package bulk holds the pure pieces of a bulk load: a buffer of entries that
// costs the garbage collector nothing, their division by shard, sorting, the
// merge of sorted runs, and a digest.
package bulk

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
)

const (
	// blockBytes is the size of the blocks that entries are packed into; an entry
	// of more than ownBlock bytes has one of its own.
	blockBytes = 1 << 20
	ownBlock   = blockBytes / 8
	// headBytes is what stands before an entry's key: expiry, index, lengths of
	// value and key, type.
	headBytes = 24
	// maxTypes bounds the different media types of a buffer.
	maxTypes = 1 << 15
)

// MaxKey is the longest key that a buffer takes, in bytes.
const MaxKey = math.MaxUint16

// EntryOverhead is the memory that an entry takes beside its key and value.
const EntryOverhead = headBytes + 2*int(unsafe.Sizeof(ref{}))

// Buffer collects copies of entries in large blocks without pointers. It is used
// by one goroutine while it is filled; its parts may be read by several.
type Buffer struct {
	limit int64
	used  int64
	bytes int64

	blocks [][]byte
	open   int // the block at hand for small entries
	spare  [][]byte
	refs   []ref
	other  []ref // the room in which Parts arranges refs

	types   []string
	typeOf  map[string]uint16
	ordered bool // every key is above the one before
}

// ref points to an entry: slot in the upper 12 bits, then 20 bits of the block,
// 32 of the offset in it. The prefix is set for sorting.
type ref struct{ prefix, at uint64 }

func (r ref) slot() uint16 { return uint16(r.at >> 52) }

// NewBuffer returns an empty buffer that takes about limit bytes of memory; one
// entry always fits.
func NewBuffer(limit int64) *Buffer {
	return &Buffer{limit: limit, typeOf: map[string]uint16{}, ordered: true}
}

// Fits reports whether an entry with a key and value of such lengths can be
// added without going over the limit.
func (b *Buffer) Fits(key, value int) bool {
	return len(b.refs) == 0 || b.used+int64(key+value+EntryOverhead) <= b.limit && len(b.types) < maxTypes
}

// Len returns the number of entries.
func (b *Buffer) Len() int { return len(b.refs) }

// Bytes returns the length of all keys and values.
func (b *Buffer) Bytes() int64 { return b.bytes }

// Last returns the key that was added last, empty if there is none. It lies in
// the buffer and is valid until Reset.
func (b *Buffer) Last() string {
	if len(b.refs) == 0 {
		return ""
	}
	return frame.Text(b.key(b.refs[len(b.refs)-1]))
}

// First returns the key that was added first, likewise.
func (b *Buffer) First() string {
	if len(b.refs) == 0 {
		return ""
	}
	return frame.Text(b.key(b.refs[0]))
}

// Reset empties the buffer and keeps its memory, of which nobody may hold a part
// any more.
func (b *Buffer) Reset() {
	for _, block := range b.blocks {
		if cap(block) == blockBytes {
			b.spare = append(b.spare, block[:0])
		}
	}
	clear(b.blocks)
	clear(b.typeOf)
	b.blocks, b.refs, b.types = b.blocks[:0], b.refs[:0], b.types[:0]
	b.used, b.bytes, b.open, b.ordered = 0, 0, 0, true
}

// Add adds a copy of key, value, type and expiry of an entry, and notes its
// index in the request. The key must not be longer than MaxKey.
func (b *Buffer) Add(e *record.Entry, index int64) {
	size := headBytes + len(e.Key) + len(e.Value)
	n, block := b.room(size)
	at := len(*block)
	dst := binary.LittleEndian.AppendUint64(*block, uint64(e.Expiry))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(index))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Value)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(e.Key)))
	dst = binary.LittleEndian.AppendUint16(dst, b.typeIndex(e.Type))
	dst = append(dst, e.Key...)
	*block = append(dst, e.Value...)
	if b.ordered && len(b.refs) > 0 {
		b.ordered = b.Last() < e.Key
	}
	b.refs = append(b.refs, ref{at: uint64(keyspace.Slot(e.Key))<<52 | uint64(n)<<32 | uint64(at)})
	b.used += int64(size + EntryOverhead - headBytes)
	b.bytes += int64(len(e.Key) + len(e.Value))
}

// room returns a block with so much room left, and its place.
func (b *Buffer) room(size int) (int, *[]byte) {
	if size > ownBlock {
		b.blocks = append(b.blocks, make([]byte, 0, size))
		return len(b.blocks) - 1, &b.blocks[len(b.blocks)-1]
	}
	if b.open < len(b.blocks) && blockBytes-len(b.blocks[b.open]) >= size && cap(b.blocks[b.open]) == blockBytes {
		return b.open, &b.blocks[b.open]
	}
	b.open = len(b.blocks)
	if n := len(b.spare); n > 0 {
		b.blocks, b.spare = append(b.blocks, b.spare[n-1]), b.spare[:n-1]
	} else {
		b.blocks = append(b.blocks, make([]byte, 0, blockBytes))
	}
	return b.open, &b.blocks[b.open]
}

func (b *Buffer) typeIndex(name string) uint16 {
	if i, ok := b.typeOf[name]; ok {
		return i
	}
	i := uint16(len(b.types))
	name = string(append([]byte(nil), name...))
	b.types = append(b.types, name)
	b.typeOf[name] = i
	b.used += int64(len(name)) + 64
	return i
}

// at returns what is stored of an entry: head, key and value.
func (b *Buffer) at(r ref) []byte { return b.blocks[r.at>>32&(1<<20-1)][uint32(r.at):] }

func (b *Buffer) key(r ref) []byte {
	stored := b.at(r)
	n := int(binary.LittleEndian.Uint16(stored[20:]))
	return stored[headBytes : headBytes+n : headBytes+n]
}

func (b *Buffer) index(r ref) int64 { return int64(binary.LittleEndian.Uint64(b.at(r)[8:])) }

func (b *Buffer) size(r ref) int {
	stored := b.at(r)
	return int(binary.LittleEndian.Uint32(stored[16:])) + int(binary.LittleEndian.Uint16(stored[20:]))
}

// entry sets e to an entry, which lies in the buffer.
func (b *Buffer) entry(r ref, e *record.Entry) {
	stored := b.at(r)
	n := headBytes + int(binary.LittleEndian.Uint16(stored[20:]))
	end := n + int(binary.LittleEndian.Uint32(stored[16:]))
	*e = record.Entry{
		Key: frame.Text(stored[headBytes:n]), Value: stored[n:end:end],
		Expiry: int64(binary.LittleEndian.Uint64(stored)),
		Type:   b.types[binary.LittleEndian.Uint16(stored[22:])],
	}
}

// compare orders entries by what follows the first skip bytes of their keys,
// which they have in common.
func (b *Buffer) compare(x, y ref, skip int) int {
	switch {
	case x.prefix < y.prefix:
		return -1
	case x.prefix > y.prefix:
		return 1
	}
	return bytes.Compare(b.key(x)[skip:], b.key(y)[skip:])
}

// Parts divides the entries by the shard that owns their slot, in the order of
// shards; within a part they stand in the order in which they were added. Parts
// of an earlier call are void.
func (b *Buffer) Parts(owner func(slot uint16) keyspace.ShardID) []Part {
	b.other = slices.Grow(b.other[:0], len(b.refs))[:len(b.refs)]
	return b.divide(b.refs, b.other, owner)
}

// divide arranges refs in room, which is as long.
func (b *Buffer) divide(refs, room []ref, owner func(slot uint16) keyspace.ShardID) []Part {
	var owners [keyspace.Slots]keyspace.ShardID
	for slot := range owners {
		owners[slot] = owner(uint16(slot))
	}
	counts := map[keyspace.ShardID]int{}
	var slots [keyspace.Slots]int
	for _, r := range refs {
		slots[r.slot()]++
	}
	for slot, n := range slots {
		if n > 0 {
			counts[owners[slot]] += n
		}
	}
	ids := make([]keyspace.ShardID, 0, len(counts))
	for id := range counts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	parts, next, place := make([]Part, len(ids)), 0, map[keyspace.ShardID]int{}
	for i, id := range ids {
		parts[i] = Part{Shard: id, b: b, refs: room[next : next : next+counts[id]]}
		place[id] = i
		next += counts[id]
	}
	var at [keyspace.Slots]int
	for slot, n := range slots {
		if n > 0 {
			at[slot] = place[owners[slot]]
			parts[at[slot]].Slots.Add(uint16(slot))
		}
	}
	for _, r := range refs {
		p := &parts[at[r.slot()]]
		p.refs = append(p.refs, r)
	}
	return parts
}
