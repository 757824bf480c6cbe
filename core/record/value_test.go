package record

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

func TestValueSurvivesTheRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		name   string
		value  []byte
		packed bool
	}{
		{"empty", nil, false},
		{"short", []byte("v"), false},
		{"repetitive", bytes.Repeat([]byte("lattice "), 1<<16), true},
		{"random", noise(1 << 20), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			blob := EncodeValue(tc.value)
			if packed := len(blob) < len(tc.value); packed != tc.packed {
				t.Errorf("%d bytes became %d", len(tc.value), len(blob))
			}
			got, err := DecodeValue(Ref{Blob: "b", Size: int64(len(tc.value))}, blob)
			if err != nil || !bytes.Equal(got, tc.value) {
				t.Errorf("got %d bytes, %v, want the value of %d", len(got), err, len(tc.value))
			}
		})
	}
}

func TestValueOfAnotherSizeIsRefused(t *testing.T) {
	_, err := DecodeValue(Ref{Blob: "t/v/1", Size: 4}, EncodeValue([]byte("value")))
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), `"t/v/1"`) {
		t.Errorf("error %v, want ErrCorrupt naming the blob", err)
	}
}

func TestEveryBitFlipOfAValueIsRefused(t *testing.T) {
	value := bytes.Repeat([]byte("0123456789"), 100)
	blob := EncodeValue(value)
	for bit := range len(blob) * 8 {
		blob[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeValue(Ref{Blob: "b", Size: 1000}, blob); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("bit %d: error %v, want ErrCorrupt", bit, err)
		}
		blob[bit/8] ^= 1 << (bit % 8)
	}
}

func FuzzDecodeValue(f *testing.F) {
	f.Add(int64(5), EncodeValue([]byte("value")))
	f.Add(int64(2000), EncodeValue(make([]byte, 2000)))
	f.Fuzz(func(t *testing.T, size int64, blob []byte) {
		value, err := DecodeValue(Ref{Blob: "b", Size: size}, blob)
		switch {
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			t.Fatalf("error %v, want ErrCorrupt", err)
		case err == nil && int64(len(value)) != size:
			t.Fatalf("%d bytes accepted as %d", len(value), size)
		}
	})
}
