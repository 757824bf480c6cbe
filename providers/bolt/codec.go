package bolt

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// A stored value, of a row or in the index of blobs, is
//
//	8 bytes   version: the counter behind the ETag, big-endian
//	4 bytes   CRC-32C of key, version and body, big-endian
//	the rest  body
//
// The body of a row is its data. The body of a blob is
//
//	1 byte    kind: 1 the data follow, 2 the name of a file follows
//	8 bytes   Unix nanoseconds of the last modification, big-endian
//	8 bytes   size, big-endian
//	4 bytes   CRC-32C of the data, big-endian
//	the rest  the data, or the 16 bytes of the file's name
//
// The key of a row is partition, zero byte, row key; no name holds a zero
// byte, so rows of a partition are neighbours, in order.
const (
	frameBytes     = 12
	blobHeadBytes  = 21
	fileNameBytes  = 16
	kindInline     = 1
	kindFile       = 2
	partitionBreak = 0
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// etagOf is the public form of a version.
func etagOf(version uint64) store.ETag {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], version)
	return store.ETag(hex.EncodeToString(b[:]))
}

// rowKey is the database key of a row.
func rowKey(partition, key string) []byte {
	k := make([]byte, 0, len(partition)+1+len(key))
	k = append(k, partition...)
	k = append(k, partitionBreak)
	return append(k, key...)
}

// frame prepares a stored value whose body the caller appends; seal completes
// it.
func frame(version uint64, bodyBytes int) []byte {
	v := make([]byte, 0, frameBytes+bodyBytes)
	v = binary.BigEndian.AppendUint64(v, version)
	return append(v, 0, 0, 0, 0)
}

func seal(key, value []byte) []byte {
	binary.BigEndian.PutUint32(value[8:], checksum(key, value))
	return value
}

func checksum(key, value []byte) uint32 {
	sum := crc32.Update(0, castagnoli, key)
	sum = crc32.Update(sum, castagnoli, value[:8])
	return crc32.Update(sum, castagnoli, value[frameBytes:])
}

// unframe returns version and body of a stored value. The body is part of v.
func unframe(key, v []byte) (uint64, []byte, error) {
	if len(v) < frameBytes {
		return 0, nil, fmt.Errorf("%d bytes, at least %d expected", len(v), frameBytes)
	}
	if got, want := checksum(key, v), binary.BigEndian.Uint32(v[8:]); got != want {
		return 0, nil, fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	return binary.BigEndian.Uint64(v), v[frameBytes:], nil
}

func encodeRow(key []byte, version uint64, data []byte) []byte {
	return seal(key, append(frame(version, len(data)), data...))
}

// decodeRow returns version and data of a row. The data are part of v.
func decodeRow(key, v []byte) (uint64, []byte, error) {
	version, data, err := unframe(key, v)
	if err != nil {
		partition, row, _ := bytes.Cut(key, []byte{partitionBreak})
		return 0, nil, store.Corruptf("row %q of partition %q: %v", row, partition, err)
	}
	return version, data, nil
}

// blobEntry is a blob in the index.
type blobEntry struct {
	version  uint64
	modified time.Time
	size     int64
	sum      uint32
	// data is the content of a blob that has no file.
	data []byte
	// file names the file of one that has.
	file []byte
}

func (e *blobEntry) encode(key []byte) []byte {
	kind, rest := byte(kindInline), e.data
	if e.file != nil {
		kind, rest = kindFile, e.file
	}
	v := append(frame(e.version, blobHeadBytes+len(rest)), kind)
	v = binary.BigEndian.AppendUint64(v, uint64(e.modified.UnixNano()))
	v = binary.BigEndian.AppendUint64(v, uint64(e.size))
	v = binary.BigEndian.AppendUint32(v, e.sum)
	return seal(key, append(v, rest...))
}

// decodeBlob reads an index entry. Its data and file are part of v.
func decodeBlob(key, v []byte) (blobEntry, error) {
	version, body, err := unframe(key, v)
	if err != nil {
		return blobEntry{}, store.Corruptf("blob %q: %v", key, err)
	}
	if len(body) < blobHeadBytes {
		return blobEntry{}, store.Corruptf("blob %q: index entry of %d bytes", key, len(body))
	}
	e := blobEntry{
		version:  version,
		modified: time.Unix(0, int64(binary.BigEndian.Uint64(body[1:]))).UTC(),
		size:     int64(binary.BigEndian.Uint64(body[9:])),
		sum:      binary.BigEndian.Uint32(body[17:]),
	}
	rest := body[blobHeadBytes:]
	switch {
	case body[0] == kindInline && e.size == int64(len(rest)):
		e.data = rest
	case body[0] == kindFile && len(rest) == fileNameBytes && e.size >= 0 && e.size <= store.MaxBlobBytes:
		e.file = rest
	default:
		return blobEntry{}, store.Corruptf("blob %q: index entry of kind %d with %d bytes for a size of %d", key, body[0], len(rest), e.size)
	}
	return e, nil
}
