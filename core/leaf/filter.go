package leaf

import (
	"errors"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Filter tells which keys a leaf cannot hold: a Bloom filter (Bloom, "Space/time
// trade-offs in hash coding with allowable errors", 1970) whose probes are
// derived from one 64-bit hash by double hashing (Kirsch and Mitzenmacher,
// "Less hashing, same performance", 2006). It takes 10 bits a key and errs for
// about 1% of the keys that are absent; it never errs for one that is present.
//
// Its bytes are its stored form: the number of probes, then the bits. An empty
// Filter excludes nothing.
type Filter []byte

const (
	filterBits   = 10
	filterProbes = 7
	maxProbes    = 16
)

var errFilter = errors.New("malformed filter")

// Hash returns the hash of a key that a Filter is asked with: xxHash64.
func Hash(key string) uint64 { return xxhash.Sum64String(key) }

// NewFilter returns the filter of keys with the given hashes.
func NewFilter(hashes []uint64) Filter {
	f := make(Filter, 1+(len(hashes)*filterBits+7)/8+1)
	f[0] = filterProbes
	for _, h := range hashes {
		f.probe(h, func(i, mask uint64) bool {
			f[1+i] |= byte(mask)
			return true
		})
	}
	return f
}

// MayHold reports whether a key with that hash may be present.
func (f Filter) MayHold(hash uint64) bool {
	if len(f) < 2 {
		return true
	}
	all := true
	f.probe(hash, func(i, mask uint64) bool {
		all = f[1+i]&byte(mask) != 0
		return all
	})
	return all
}

// probe visits the bits of a hash as byte index and mask, until visit says no.
func (f Filter) probe(hash uint64, visit func(i, mask uint64) bool) {
	size := uint64(len(f)-1) * 8
	step := bits.RotateLeft64(hash, 32) | 1
	for range f[0] {
		bit, _ := bits.Mul64(hash, size) // maps the hash onto [0, size)
		if !visit(bit>>3, 1<<(bit&7)) {
			return
		}
		hash += step
	}
}

// CheckFilter refuses bytes that are no stored filter.
func CheckFilter(b []byte) error {
	if len(b) > 0 && (len(b) < 2 || b[0] == 0 || b[0] > maxProbes) {
		return errFilter
	}
	return nil
}
