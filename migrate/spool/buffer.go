package spool

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
)

// maxChunk is how much memory the buffer takes at a time, minChunk the least
// when its limit is small.
const (
	maxChunk = 1 << 20
	minChunk = 4 << 10
)

// slotBytes is what an entry costs in the index: the slot itself, and the old
// and the new array while the index grows.
const (
	slotBytes = 40
	slotSize  = 16
)

// buffer holds encoded entries in large blocks and an index of them, so that
// the collector has nothing to follow.
type buffer struct {
	limit int
	// chunk is the common size of blocks.
	chunk  int
	blocks [][]byte
	// spare are blocks to use again; all have the common size.
	spare [][]byte
	index []slot
	size  int
}

// slot is where an entry is. Prefix is the beginning of its key, so that most
// comparisons need not look further.
type slot struct {
	prefix uint64
	block  uint32
	offset uint32
}

// held counts what the buffer takes: blocks, spare blocks and index.
func (b *buffer) held() int {
	return b.size + len(b.spare)*b.chunk + max(slotBytes*len(b.index), slotSize*cap(b.index))
}

func newBuffer(limit int) buffer {
	return buffer{limit: limit, chunk: min(max(limit/16, minChunk), maxChunk)}
}

// full reports whether e no longer fits. An entry that fits nowhere is taken by
// an empty buffer.
func (b *buffer) full(e *Entry) bool {
	if len(b.index) == 0 {
		return false
	}
	grow := slotBytes
	if need := encodedBound(e); need > b.room() && len(b.spare) == 0 {
		grow += max(need, b.chunk)
	} else if need > b.chunk {
		grow += need
	}
	return b.held()+grow > b.limit
}

// room is what the last block has left.
func (b *buffer) room() int {
	if len(b.blocks) == 0 {
		return 0
	}
	last := b.blocks[len(b.blocks)-1]
	return cap(last) - len(last)
}

func (b *buffer) add(e *Entry) {
	if need := encodedBound(e); need > b.room() {
		b.grow(need)
	}
	n := len(b.blocks) - 1
	at := len(b.blocks[n])
	b.blocks[n] = e.encode(b.blocks[n])
	b.index = append(b.index, slot{prefix(e.Key), uint32(n), uint32(at)})
}

// grow begins a block with room for need bytes.
func (b *buffer) grow(need int) {
	if n := len(b.spare); n > 0 && need <= b.chunk {
		b.blocks = append(b.blocks, b.spare[n-1])
		b.spare = b.spare[:n-1]
		b.size += b.chunk
		return
	}
	size := max(need, b.chunk)
	b.blocks = append(b.blocks, make([]byte, 0, size))
	b.size += size
}

func prefix(key string) uint64 {
	var p [8]byte
	copy(p[:], key)
	return binary.BigEndian.Uint64(p[:])
}

func (b *buffer) record(s slot) []byte { return b.blocks[s.block][s.offset:] }

// sort brings the index in order of key, then of addition.
func (b *buffer) sort() {
	slices.SortFunc(b.index, func(x, y slot) int {
		if c := cmp.Compare(x.prefix, y.prefix); c != 0 {
			return c
		}
		if c := bytes.Compare(recordKey(b.record(x)), recordKey(b.record(y))); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(x.block, y.block), cmp.Compare(x.offset, y.offset))
	})
}

// entries yields the records in the order of the index.
func (b *buffer) entries() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, s := range b.index {
			rec := b.record(s)
			n, err := recordLen(rec)
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(rec[:n], nil) {
				return
			}
		}
	}
}

// reset empties the buffer and keeps its memory, within the limit.
func (b *buffer) reset() {
	for _, block := range b.blocks {
		if cap(block) == b.chunk {
			b.spare = append(b.spare, block[:0])
		}
	}
	clear(b.blocks)
	b.blocks, b.index, b.size = b.blocks[:0], b.index[:0], 0
}
