package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// Sum is a digest of a set that does not depend on the order in which its
// members are added: the sum of their hashes modulo 2^128.
type Sum struct{ hi, lo uint64 }

func (s *Sum) add(t Sum) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, t.lo, 0)
	s.hi, _ = bits.Add64(s.hi, t.hi, carry)
}

func (s *Sum) sub(t Sum) {
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, t.lo, 0)
	s.hi, _ = bits.Sub64(s.hi, t.hi, borrow)
}

// String returns the sum as 32 hexadecimal digits.
func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s.hi, s.lo) }

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(b []byte) error {
	var raw [16]byte
	if n, err := hex.Decode(raw[:], b[:min(len(b), 32)]); err != nil || n != 16 || len(b) != 32 {
		return fmt.Errorf("a sum is 32 hexadecimal digits")
	}
	*s = sumOf(raw[:])
	return nil
}

func sumOf(b []byte) Sum {
	return Sum{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// keySum is the member that stands for a key.
func keySum(key string) Sum {
	h := sha256.Sum256([]byte(key))
	return sumOf(h[:])
}

// entrySum is the member that stands for a key with its value.
func entrySum(key string, value Digest) Sum {
	b := make([]byte, 0, len(key)+len(value))
	b = append(append(b, value[:]...), key...)
	h := sha256.Sum256(b)
	return sumOf(h[:])
}
