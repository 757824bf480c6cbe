// Package memory keeps tables and blobs in the memory of one process, with
// exact ETag semantics: every version of every row and blob has an ETag that
// was never used before. It is a real provider, the fastest there is, and the
// one on which simulations run: a Profile makes it as slow and as limited as a
// storage account. What it holds is lost with the process.
package memory

import (
	"sync/atomic"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// Options configure a Store. The zero value is a store without limits.
type Options struct {
	// Clock is the source of time and chance; nil is the machine's own. Only a
	// Profile and the modification times of blobs depend on it.
	Clock clock.Source
	// Profile imitates the latency and the limits of a storage account; nil
	// imitates nothing.
	Profile *Profile
}

// Store is one storage account: a table and a blob store that share its limits.
type Store struct {
	table Table
	blobs Blobs
}

// New returns an empty Store.
func New(o Options) *Store {
	if o.Clock == nil {
		o.Clock = clock.NewSystem()
	}
	s := &Store{}
	var shape *shaper
	if o.Profile != nil {
		shape = newShaper(*o.Profile, o.Clock)
	}
	etags := &etagSource{}
	s.table = Table{etags: etags, shape: shape, partitions: map[string]*partition{}}
	s.blobs = Blobs{etags: etags, shape: shape, clock: o.Clock}
	return s
}

// Table returns the table of the store.
func (s *Store) Table() store.Table { return &s.table }

// Blobs returns the blobs of the store.
func (s *Store) Blobs() store.BlobStore { return &s.blobs }

// etagBytes is the length of every ETag: a counter in hexadecimal.
const etagBytes = 16

// etagSource hands out ETags that never repeat.
type etagSource struct{ last atomic.Uint64 }

// take reserves n numbers and returns the first.
func (s *etagSource) take(n int) uint64 { return s.last.Add(uint64(n)) - uint64(n) + 1 }

// next returns one ETag.
func (s *etagSource) next() store.ETag {
	return store.ETag(appendETag(make([]byte, 0, etagBytes), s.take(1)))
}

func appendETag(b []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&15])
	}
	return b
}
