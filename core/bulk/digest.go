package bulk

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/latticekv/lattice/core/record"
)

// DigestLength is the length of a digest in its text form.
const DigestLength = 2 * sha256.Size

// Digest identifies a sequence of entries: keys, values, media types, and
// whether each expires. It leaves out when: a time to live that is sent again
// ends later.
type Digest struct {
	sum hash.Hash
	buf []byte
}

// NewDigest returns the digest of nothing.
func NewDigest() *Digest { return &Digest{sum: sha256.New()} }

// Add adds an entry.
func (d *Digest) Add(e *record.Entry) {
	expires := byte(0)
	if e.Expiry != 0 {
		expires = 1
	}
	d.buf = append(d.buf[:0], expires)
	d.buf = binary.AppendUvarint(d.buf, uint64(len(e.Key)))
	d.buf = binary.AppendUvarint(d.buf, uint64(len(e.Type)))
	d.buf = binary.AppendUvarint(d.buf, uint64(len(e.Value)))
	d.buf = append(d.buf, e.Key...)
	d.buf = append(d.buf, e.Type...)
	if len(e.Value) <= smallValue {
		d.buf = append(d.buf, e.Value...)
		d.sum.Write(d.buf)
		return
	}
	d.sum.Write(d.buf)
	d.sum.Write(e.Value)
}

// smallValue is the largest value that is copied beside its key.
const smallValue = 4 << 10

// String returns the digest in hexadecimal form.
func (d *Digest) String() string { return hex.EncodeToString(d.sum.Sum(nil)) }
