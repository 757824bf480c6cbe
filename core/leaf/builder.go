package leaf

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// MaxEntry is the largest size in bytes, by EntrySize, of an entry in a leaf.
const MaxEntry = MaxPayload / 2

// EntrySize returns an upper bound of the bytes that an entry takes in a page.
func EntrySize(e *record.Entry) int {
	n := 1 + 8*binary.MaxVarintLen64 + len(e.Key) + len(e.Value) + len(e.Type)
	if e.Ref != nil {
		n += len(e.Ref.Blob)
	}
	return n
}

// Summary describes a finished page.
type Summary struct {
	// First and Last are the bounds of the keys, both inclusive.
	First, Last string
	// Entries counts all entries, Tombstones and Expiring those among them
	// that are tombstones or have an expiry.
	Entries, Tombstones, Expiring int
	// Raw is the uncompressed length of the payload in bytes.
	Raw int64
	// DropFrom and DropUntil are the Unix milliseconds at which the first and
	// the last of the tombstones and expiring entries ceased or cease to exist;
	// 0 if there are none.
	DropFrom, DropUntil int64
	// Large names the blobs of the large values that the entries refer to.
	Large []string
}

// owned returns the summary with strings of its own, which keep no page alive.
func (s Summary) owned() Summary {
	s.First, s.Last = strings.Clone(s.First), strings.Clone(s.Last)
	for i, name := range s.Large {
		s.Large[i] = strings.Clone(name)
	}
	return s
}

// Builder collects entries in key order and encodes them as one page. It can be
// used again after Finish. The zero value is ready for use.
type Builder struct {
	// Filtered makes the builder collect what Filter needs.
	Filtered bool

	sum     Summary
	base    clock.HLC
	body    []byte
	dict    int // bytes of the dictionaries, roughly
	writers map[uint32]int
	types   map[string]int
	hashes  []uint64
}

// Len returns the number of entries collected.
func (b *Builder) Len() int { return b.sum.Entries }

// Size returns the bytes collected, before compression.
func (b *Builder) Size() int { return len(b.body) + b.dict }

// Add collects a copy of the entry. Its key must be greater than the last one,
// else store.ErrInvalid; an entry larger than MaxEntry, or one that would make
// the page larger than MaxPayload, is store.ErrTooLarge.
func (b *Builder) Add(e *record.Entry) error {
	if b.Len() > 0 && e.Key <= b.sum.Last {
		return fmt.Errorf("key of entry %d is not above the one before: %w", b.Len(), store.ErrInvalid)
	}
	if n := EntrySize(e); n > MaxEntry || n+b.Size() > MaxPayload-MaxEntry/2 {
		return fmt.Errorf("entry of %d bytes in a leaf of %d: %w", n, b.Size(), store.ErrTooLarge)
	}
	if b.Len() == 0 {
		b.start(e)
	}
	b.count(e)
	b.encode(e)
	if b.Filtered {
		b.hashes = append(b.hashes, Hash(e.Key))
	}
	return nil
}

func (b *Builder) start(e *record.Entry) {
	b.base = e.Version.Time
	b.sum.First = e.Key
	b.writers, b.types = map[uint32]int{}, map[string]int{}
}

func (b *Builder) count(e *record.Entry) {
	b.sum.Last = e.Key
	b.sum.Entries++
	if e.Tombstone {
		b.sum.Tombstones++
		b.drop(e.Version.Time.Milli())
	} else if e.Expiry != 0 {
		b.sum.Expiring++
		b.drop(e.Expiry)
	}
	if e.Ref != nil && !e.Tombstone {
		b.sum.Large = append(b.sum.Large, e.Ref.Blob)
	}
}

// drop notes the moment at which an entry ceases to exist.
func (b *Builder) drop(milli int64) {
	milli = max(milli, 1) // 0 means never
	if b.sum.DropFrom == 0 || milli < b.sum.DropFrom {
		b.sum.DropFrom = milli
	}
	b.sum.DropUntil = max(b.sum.DropUntil, milli)
}

func (b *Builder) encode(e *record.Entry) {
	dst, flags := frame.AppendBytes(b.body, e.Key), entryFlags(e)
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, zigzag(int64(e.Version.Time-b.base)))
	dst = binary.AppendUvarint(dst, index(b, b.writers, e.Version.Writer, 4))
	if flags&hasExpiry != 0 {
		dst = binary.AppendUvarint(dst, uint64(e.Expiry))
	}
	if flags&hasType != 0 {
		dst = binary.AppendUvarint(dst, index(b, b.types, e.Type, binary.MaxVarintLen64+len(e.Type)))
	}
	if flags&hasValue != 0 {
		dst = frame.AppendBytes(dst, e.Value)
	}
	if flags&hasRef != 0 {
		dst = frame.AppendBytes(dst, e.Ref.Blob)
		dst = binary.AppendUvarint(dst, uint64(e.Ref.Size))
	}
	b.body = dst
}

func entryFlags(e *record.Entry) byte {
	var f byte
	if e.Expiry != 0 {
		f |= hasExpiry
	}
	if e.Type != "" {
		f |= hasType
	}
	switch {
	case e.Tombstone:
		f |= isTombstone
	case e.Ref != nil:
		f |= hasRef
	case len(e.Value) > 0:
		f |= hasValue
	}
	return f
}

// index returns the place of v in a dictionary, giving it the next one, for a
// number of bytes, if it has none.
func index[T comparable](b *Builder, dict map[T]int, v T, size int) uint64 {
	i, ok := dict[v]
	if !ok {
		i = len(dict)
		dict[v] = i
		b.dict += size
	}
	return uint64(i)
}

// ordered returns the words of a dictionary in their places.
func ordered[T comparable](dict map[T]int) []T {
	words := make([]T, len(dict))
	for w, i := range dict {
		words[i] = w
	}
	return words
}

// Filter returns the filter of the keys collected, nil unless Filtered.
func (b *Builder) Filter() Filter {
	if !b.Filtered {
		return nil
	}
	return NewFilter(b.hashes)
}

// Finish returns the blob of the page and what it holds, and empties the
// builder. An empty builder yields an empty page.
func (b *Builder) Finish() ([]byte, Summary) {
	head := binary.AppendUvarint(nil, uint64(b.Len()))
	head = binary.LittleEndian.AppendUint64(head, uint64(b.base))
	head = binary.AppendUvarint(head, uint64(len(b.writers)))
	for _, w := range ordered(b.writers) {
		head = binary.LittleEndian.AppendUint32(head, w)
	}
	head = binary.AppendUvarint(head, uint64(len(b.types)))
	for _, t := range ordered(b.types) {
		head = frame.AppendBytes(head, t)
	}
	payload := slices.Concat(head, b.body)
	sum := b.sum.owned()
	sum.Raw = int64(len(payload))
	*b = Builder{Filtered: b.Filtered, body: b.body[:0], hashes: b.hashes[:0]}
	return format.Seal(payload), sum
}
