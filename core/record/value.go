package record

import (
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// valueFormat is the envelope of a large value in a blob of its own.
var valueFormat = frame.Format{Magic: "LTVA", Version: 1, MaxSize: store.MaxBlobBytes - frame.Overhead}

// EncodeValue returns the blob that holds a large value, compressed if that is
// smaller. The value may have at most store.MaxBlobBytes less frame.Overhead
// bytes.
func EncodeValue(value []byte) []byte { return valueFormat.Seal(value) }

// DecodeValue returns the value from the blob that ref names. It may alias
// data. Damage, or another size than ref says, is store.ErrCorrupt naming the
// blob.
func DecodeValue(ref Ref, data []byte) ([]byte, error) {
	value, err := valueFormat.Open(ref.Blob, data)
	if err != nil {
		return nil, err
	}
	if int64(len(value)) != ref.Size {
		return nil, store.Corruptf("blob %q holds a value of %d bytes, not %d", ref.Blob, len(value), ref.Size)
	}
	return value, nil
}
