package bolt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/store"
)

func TestRowSurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		version := rapid.Uint64().Draw(t, "version")
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		v := encodeRow(key, version, data)
		gotVersion, got, err := decodeRow(key, v)
		if err != nil || gotVersion != version || !bytes.Equal(got, data) {
			t.Fatalf("got %d %x, error %v", gotVersion, got, err)
		}
		v[rapid.IntRange(0, len(v)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, _, err := decodeRow(key, v); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("a flipped bit gives %v", err)
		}
	})
}

func TestBlobSurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := blobEntry{version: rapid.Uint64().Draw(t, "version"), sum: rapid.Uint32().Draw(t, "sum"),
			modified: time.Unix(0, rapid.Int64().Draw(t, "modified")).UTC()}
		if rapid.Bool().Draw(t, "inline") {
			e.data = rapid.SliceOf(rapid.Byte()).Draw(t, "data")
			e.size = int64(len(e.data))
		} else {
			e.file = rapid.SliceOfN(rapid.Byte(), fileNameBytes, fileNameBytes).Draw(t, "file")
			e.size = rapid.Int64Range(0, store.MaxBlobBytes).Draw(t, "size")
		}
		got, err := decodeBlob([]byte("name"), e.encode([]byte("name")))
		if err != nil || got.version != e.version || !got.modified.Equal(e.modified) || got.size != e.size || got.sum != e.sum ||
			!bytes.Equal(got.data, e.data) || !bytes.Equal(got.file, e.file) {
			t.Fatalf("got %+v, want %+v, error %v", got, e, err)
		}
	})
}

// TestStoredBytesStayAsTheyAre pins the format: databases of today must be
// readable for ever.
func TestStoredBytesStayAsTheyAre(t *testing.T) {
	row := encodeRow(rowKey("p", "k"), 0x0102, []byte("data"))
	inline := blobEntry{version: 3, modified: time.Unix(1, 2), size: 2, sum: 0xAABBCCDD, data: []byte("hi")}
	file := blobEntry{version: 4, modified: time.Unix(1, 2), size: 70_000, sum: 1, file: []byte("0123456789abcdef")}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"row key":     {rowKey("p", "k"), "70006b"},
		"row":         {row, goldenRow},
		"inline blob": {inline.encode([]byte("n")), goldenInline},
		"file blob":   {file.encode([]byte("n")), goldenFile},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is %s, want %s", name, got, c.want)
		}
	}
}

const (
	goldenRow    = "0000000000000102c8a620c864617461"
	goldenInline = "00000000000000038deaebba01000000003b9aca020000000000000002aabbccdd6869"
	goldenFile   = "0000000000000004e696c16502000000003b9aca0200000000000111700000000130313233343536373839616263646566"
)

// TestEntryThatLiesIsRefused seals entries whose parts disagree.
func TestEntryThatLiesIsRefused(t *testing.T) {
	key := []byte("n")
	valid := blobEntry{version: 1, modified: time.Unix(1, 0), size: 4, data: []byte("data")}
	for name, lie := range map[string]func(v []byte) []byte{
		"unknown kind":     func(v []byte) []byte { v[frameBytes] = 9; return v },
		"kind zero":        func(v []byte) []byte { v[frameBytes] = 0; return v },
		"larger size":      func(v []byte) []byte { v[frameBytes+16] = 5; return v },
		"huge size":        func(v []byte) []byte { v[frameBytes+9] = 0x7F; return v },
		"negative size":    func(v []byte) []byte { v[frameBytes+9] = 0xFF; return v },
		"file without one": func(v []byte) []byte { v[frameBytes] = kindFile; return v },
		"huge file": func(v []byte) []byte {
			v[frameBytes], v[frameBytes+9] = kindFile, 0x7F
			return append(v[:frameBytes+blobHeadBytes], make([]byte, fileNameBytes)...)
		},
		"no head": func(v []byte) []byte { return v[:frameBytes+blobHeadBytes-1] },
	} {
		if _, err := decodeBlob(key, seal(key, lie(valid.encode(key)))); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	e := blobEntry{version: 1, size: 4, data: []byte("data")}
	f.Add([]byte("k"), encodeRow([]byte("k"), 1, []byte("data")))
	f.Add([]byte("k"), e.encode([]byte("k")))
	f.Add([]byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if _, data, err := decodeRow(key, value); err == nil && len(data)+frameBytes != len(value) {
			t.Errorf("%d bytes from %d", len(data), len(value))
		} else if err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Error(err)
		}
		// A valid checksum lets the fuzzer reach what is behind it.
		if len(value) >= frameBytes {
			value = seal(key, bytes.Clone(value))
		}
		entry, err := decodeBlob(key, value)
		switch {
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			t.Error(err)
		case err == nil && (entry.size < 0 || entry.file == nil && int64(len(entry.data)) != entry.size):
			t.Errorf("accepted %+v", entry)
		}
	})
}
