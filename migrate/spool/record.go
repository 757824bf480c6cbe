package spool

import (
	"encoding/binary"
	"fmt"
)

// A record is: length of the rest, then length and bytes of key, value, type
// and origin, then the expiry.

const headBytes = 4

// encodedBound is the most that an entry takes encoded.
func encodedBound(e *Entry) int {
	return headBytes + 5*binary.MaxVarintLen64 + len(e.Key) + len(e.Value) + len(e.Type) + len(e.Origin)
}

// encode appends the record of e.
func (e *Entry) encode(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = appendBytes(b, e.Key)
	b = appendBytes(b, e.Value)
	b = appendBytes(b, e.Type)
	b = appendBytes(b, e.Origin)
	b = binary.AppendVarint(b, e.Expiry)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-headBytes))
	return b
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// recordLen is the length of the record at the start of b.
func recordLen(b []byte) (int, error) {
	if len(b) < headBytes {
		return 0, fmt.Errorf("%w: a record is cut off", ErrCorrupt)
	}
	n := int64(binary.LittleEndian.Uint32(b)) + headBytes
	if n > int64(len(b)) {
		return 0, fmt.Errorf("%w: a record of %d bytes has %d", ErrCorrupt, n, len(b))
	}
	return int(n), nil
}

// recordKey is the key of a whole record, nil if it has none.
func recordKey(rec []byte) []byte {
	key, _, ok := takeBytes(rec[min(len(rec), headBytes):])
	if !ok {
		return nil
	}
	return key
}

func takeBytes(b []byte) (field, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	end := w + int(n)
	return b[w:end], b[end:], true
}

// decode reads a whole record. Value is a part of rec.
func (e *Entry) decode(rec []byte) error {
	rest := rec[headBytes:]
	var fields [4][]byte
	for i := range fields {
		var ok bool
		if fields[i], rest, ok = takeBytes(rest); !ok {
			return fmt.Errorf("%w: a record has no field %d", ErrCorrupt, i+1)
		}
	}
	expiry, w := binary.Varint(rest)
	if w <= 0 || w != len(rest) {
		return fmt.Errorf("%w: a record has no end", ErrCorrupt)
	}
	*e = Entry{Key: string(fields[0]), Value: fields[1], Type: string(fields[2]), Origin: string(fields[3]), Expiry: expiry}
	return nil
}
