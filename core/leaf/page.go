// Package leaf keeps sorted pages of entries as immutable blobs, the filters
// that let a reader skip them, and a bounded cache of decoded pages.
//
// The payload of a leaf, inside its envelope (see package frame), is
//
//	count    uvarint: number of entries
//	base     8 bytes, little endian: hybrid time of the first entry
//	writers  uvarint count, then 4 bytes each, little endian
//	types    uvarint count, then length and bytes each
//	entries  in strictly ascending key order:
//	           key      length and bytes
//	           flags    1 byte, see the constants
//	           time     uvarint: zigzag of the difference to base
//	           writer   uvarint: index into writers
//	           expiry   uvarint, if flagged
//	           type     uvarint: index into types, if flagged
//	           value    length and bytes; or blob name and uvarint size; if flagged
//
// Keys are stored whole: the compression of the envelope finds shared prefixes
// as well as a prefix scheme would, and a whole key is compared, and handed
// out, without being put together first. Offsets are not stored: a decoder
// must check every entry once anyway and notes where each begins.
package leaf

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

const (
	// MaxPayload bounds the uncompressed payload of a leaf in bytes.
	MaxPayload = 16 << 20
	// DefaultTarget is the uncompressed size in bytes at which a page is full.
	DefaultTarget = 256 << 10
)

var format = frame.Format{Magic: "LTLF", Version: 1, MaxSize: MaxPayload}

const (
	hasExpiry = 1 << iota
	hasType
	hasValue
	hasRef
	isTombstone

	allFlags = 1<<iota - 1
)

// minEntry is the length of the shortest entry: an empty key, flags, time and
// writer.
const minEntry = 4

var (
	errOrder      = errors.New("keys are not in ascending order")
	errFlags      = errors.New("impossible flags")
	errDictionary = errors.New("dictionary has more words than there are entries")
	errWriter     = errors.New("writer is not in the dictionary")
	errType       = errors.New("type is not in the dictionary")
)

// Page is a decoded leaf. It never changes and is safe for concurrent use.
type Page struct {
	payload []byte
	base    clock.HLC
	writers []uint32
	types   []string
	offsets []uint32
}

// Decode reads a leaf, checking every entry. Anything wrong is store.ErrCorrupt
// naming the blob. The page may alias data.
func Decode(name string, data []byte) (*Page, error) {
	payload, err := format.Open(name, data)
	if err != nil {
		return nil, err
	}
	p := &Page{payload: payload}
	rd := frame.NewReader(payload)
	p.readHead(&rd)
	p.readEntries(&rd)
	if err := rd.Close(); err != nil {
		return nil, store.Corruptf("leaf %q: %v", name, err)
	}
	return p, nil
}

func (p *Page) readHead(rd *frame.Reader) {
	p.offsets = make([]uint32, rd.Count(minEntry))
	p.base = clock.HLC(rd.Uint64())
	p.writers = make([]uint32, p.dictionary(rd, 4))
	for i := range p.writers {
		p.writers[i] = rd.Uint32()
	}
	p.types = make([]string, p.dictionary(rd, 1))
	for i := range p.types {
		p.types[i] = rd.Text()
	}
}

// dictionary reads the length of a dictionary: at most a word for each entry.
func (p *Page) dictionary(rd *frame.Reader, width int) int {
	n := rd.Count(width)
	if n > len(p.offsets) {
		rd.Fail(errDictionary)
		return 0
	}
	return n
}

// readEntries notes where each entry begins and checks all that Entry and Get
// rely on.
func (p *Page) readEntries(rd *frame.Reader) {
	last := ""
	for i := range p.offsets {
		p.offsets[i] = uint32(len(p.payload) - rd.Len())
		var e record.Entry
		p.readEntry(rd, &e)
		if i > 0 && e.Key <= last {
			rd.Fail(errOrder)
		}
		if rd.Err() != nil {
			return
		}
		last = e.Key
	}
}

// readEntry reads one entry; errors are left in rd.
func (p *Page) readEntry(rd *frame.Reader, e *record.Entry) {
	*e = record.Entry{Key: rd.Text()}
	flags := rd.Byte()
	if kind := flags & (hasValue | hasRef | isTombstone); flags > allFlags || kind&(kind-1) != 0 {
		rd.Fail(errFlags)
		return
	}
	e.Tombstone = flags&isTombstone != 0
	e.Version.Time = p.base + clock.HLC(unzigzag(rd.Uvarint()))
	e.Version.Writer = pick(rd, p.writers, errWriter)
	if flags&hasExpiry != 0 {
		e.Expiry = rd.Int64()
	}
	if flags&hasType != 0 {
		e.Type = pick(rd, p.types, errType)
	}
	if flags&hasValue != 0 {
		e.Value = rd.Bytes()
	}
	if flags&hasRef != 0 {
		e.Ref = &record.Ref{Blob: rd.Text(), Size: rd.Int64()}
	}
}

// pick reads an index into a dictionary and returns what it stands for.
func pick[T any](rd *frame.Reader, dict []T, missing error) T {
	i := rd.Uvarint()
	if i >= uint64(len(dict)) {
		rd.Fail(missing)
		var zero T
		return zero
	}
	return dict[i]
}

// Len returns the number of entries.
func (p *Page) Len() int { return len(p.offsets) }

// pageOverhead estimates the bytes of a Page beside its slices.
const pageOverhead = 160

// Bytes estimates the memory that the page takes.
func (p *Page) Bytes() int {
	return pageOverhead + cap(p.payload) + 4*cap(p.offsets) + 4*cap(p.writers) + 16*cap(p.types)
}

// Key returns the key of entry i. It aliases the page.
func (p *Page) Key(i int) string {
	b := p.payload[p.offsets[i]:]
	n, start := int(b[0]), 1
	if n >= 0x80 {
		long, width := binary.Uvarint(b)
		n, start = int(long), width
	}
	return frame.Text(b[start : start+n])
}

// Entry sets e to entry i. Key and Value alias the page, keep it in memory as
// long as they are used, and must not be modified.
func (p *Page) Entry(i int, e *record.Entry) {
	rd := frame.NewReader(p.payload[p.offsets[i]:])
	p.readEntry(&rd, e)
}

// Seek returns the position of the first entry whose key is not less than key,
// and whether it has that very key. The position is Len if there is none.
func (p *Page) Seek(key string) (int, bool) {
	lo, hi := 0, len(p.offsets)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := strings.Compare(p.Key(mid), key); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// Get returns the entry of a key, which may be a tombstone. See Entry for what
// it aliases.
func (p *Page) Get(key string) (record.Entry, bool) {
	i, ok := p.Seek(key)
	if !ok {
		return record.Entry{}, false
	}
	var e record.Entry
	p.Entry(i, &e)
	return e, true
}

func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
