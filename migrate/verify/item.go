package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// Digest is the first half of the SHA-256 of a value.
type Digest [16]byte

// DigestOf returns the digest of a value.
func DigestOf(value []byte) Digest {
	sum := sha256.Sum256(value)
	return Digest(sum[:16])
}

// Item is what is kept of an entry of the source.
type Item struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
	// Expiry is when the entry ceases to exist, zero for never.
	Expiry time.Time `json:"expiry,omitzero"`
	// Origin says where it is in the source, for people.
	Origin string `json:"origin,omitempty"`
	// Others is how many other records make the same key and hold something
	// else, Other where one is.
	Others int64  `json:"others,omitempty"`
	Other  string `json:"other,omitempty"`
}

// NewItem returns the item of an entry.
func NewItem(key string, value []byte, expiry time.Time, origin string) Item {
	return Item{Key: key, Size: int64(len(value)), Digest: DigestOf(value), Expiry: expiry, Origin: origin}
}

// packedSize is the length of what Pack returns.
const packedSize = 8 + len(Digest{})

// Pack returns size and digest, to be kept in place of the value.
func (it *Item) Pack() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, packedSize), uint64(it.Size))
	return append(b, it.Digest[:]...)
}

// Unpack sets size and digest from what Pack returned.
func (it *Item) Unpack(b []byte) error {
	if len(b) != packedSize {
		return fmt.Errorf("unpack digest: %d bytes, must be %d", len(b), packedSize)
	}
	it.Size = int64(binary.BigEndian.Uint64(b))
	it.Digest = Digest(b[8:])
	return nil
}

// Entries yields the entries of the source whose key is greater than after, in
// strictly ascending order of the keys; an empty after means all. An error ends
// the verification.
type Entries func(ctx context.Context, after string) iter.Seq2[Item, error]

// Keys yields keys greater than after in ascending order.
type Keys func(ctx context.Context, after string) iter.Seq2[string, error]
