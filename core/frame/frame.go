// Package frame is the envelope around stored bytes: a magic number, a version,
// a checksum, and zstd compression where it helps; and the bounded reading of
// what is inside. Write-ahead rows, leaves, manifests and large values all use
// it, so that each kind of damage is found in one place.
package frame

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/latticekv/lattice/core/store"
)

// Overhead is the length of the envelope of a Format.
const Overhead = 14

// flagZstd says that the payload is one zstd frame.
const flagZstd = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of the parts, one after the other.
func Checksum(parts ...[]byte) uint32 {
	sum := uint32(0)
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// Format describes one kind of stored blob. An envelope is
//
//	magic    4 bytes
//	version  1 byte
//	flags    1 byte: 1 = the payload is compressed with zstd
//	size     4 bytes, little endian: the length of the payload, uncompressed
//	crc      4 bytes, little endian: CRC-32C of all other bytes
//	payload
type Format struct {
	// Magic is 4 characters that no other format has.
	Magic string
	// Version is the version written, and the only one read.
	Version byte
	// MaxSize bounds the uncompressed payload in bytes. A larger declared size
	// is refused before anything is allocated.
	MaxSize int
}

// Seal returns the payload in its envelope, compressed if that is smaller. The
// payload must not exceed MaxSize: Open would refuse it.
func (f Format) Seal(payload []byte) []byte {
	out := make([]byte, Overhead, Overhead+len(payload))
	copy(out, f.Magic)
	out[4] = f.Version
	binary.LittleEndian.PutUint32(out[6:], uint32(len(payload)))
	out, packed := Compress(out, payload)
	if packed {
		out[5] = flagZstd
	}
	binary.LittleEndian.PutUint32(out[10:], Checksum(out[:10], out[Overhead:]))
	return out
}

// Open checks the envelope and returns the payload, which aliases data unless
// it was compressed. Anything wrong is store.ErrCorrupt naming the blob.
func (f Format) Open(name string, data []byte) ([]byte, error) {
	size, err := f.check(name, data)
	if err != nil {
		return nil, err
	}
	body := data[Overhead:]
	if data[5]&flagZstd == 0 {
		if len(body) != size {
			return nil, store.Corruptf("blob %q holds %d bytes, declares %d", name, len(body), size)
		}
		return body, nil
	}
	payload, err := Decompress(body, size)
	if err != nil {
		return nil, store.Corruptf("blob %q: %v", name, err)
	}
	return payload, nil
}

// check verifies everything but the payload and returns its declared size.
func (f Format) check(name string, data []byte) (int, error) {
	if len(data) < Overhead {
		return 0, store.Corruptf("blob %q of %d bytes is shorter than its envelope", name, len(data))
	}
	if string(data[:4]) != f.Magic {
		return 0, store.Corruptf("blob %q begins with %x, not with %q", name, data[:4], f.Magic)
	}
	if data[4] != f.Version {
		return 0, store.Corruptf("blob %q has version %d of format %s, only %d is known", name, data[4], f.Magic, f.Version)
	}
	if got, want := Checksum(data[:10], data[Overhead:]), binary.LittleEndian.Uint32(data[10:]); got != want {
		return 0, store.Corruptf("blob %q has checksum %08x, not %08x", name, got, want)
	}
	if data[5]&^flagZstd != 0 {
		return 0, store.Corruptf("blob %q has unknown flags %#02x", name, data[5])
	}
	size := binary.LittleEndian.Uint32(data[6:])
	if uint64(size) > uint64(f.MaxSize) {
		return 0, store.Corruptf("blob %q declares %d bytes, at most %d are allowed", name, size, f.MaxSize)
	}
	return int(size), nil
}
