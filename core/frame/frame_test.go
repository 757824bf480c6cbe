package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/store"
)

var format = Format{Magic: "TEST", Version: 3, MaxSize: 1 << 20}

// reseal corrects the checksum of a blob that a test has tampered with.
func reseal(blob []byte) []byte {
	binary.LittleEndian.PutUint32(blob[10:], Checksum(blob[:10], blob[Overhead:]))
	return blob
}

func TestSealedPayloadOpens(t *testing.T) {
	for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("ab"), 5000)} {
		got, err := format.Open("b", format.Seal(payload))
		if err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%d bytes came back as %d, %v", len(payload), len(got), err)
		}
	}
}

func TestDamagedEnvelopeIsRefusedByName(t *testing.T) {
	tamper := func(f func(b []byte) []byte) []byte {
		return reseal(f(format.Seal(bytes.Repeat([]byte("ab"), 500))))
	}
	size := func(n uint32) []byte {
		return tamper(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[6:], n); return b })
	}
	for _, tc := range []struct {
		name string
		blob []byte
		want string
	}{
		{"empty", nil, "shorter than its envelope"},
		{"another format", Format{Magic: "ELSE", Version: 3, MaxSize: 9}.Seal(nil), "begins with"},
		{"another version", Format{Magic: "TEST", Version: 4, MaxSize: 9}.Seal(nil), "version 4"},
		{"unknown flag", tamper(func(b []byte) []byte { b[5] |= 8; return b }), "unknown flags"},
		{"huge size", size(1<<20 + 1), "at most"},
		{"size too small", size(999), "decompress"},
		{"size too large", size(1001), "declared size"},
		{"stored size differs", tamper(func(b []byte) []byte { b[5] = 0; return b }), "declares"},
		{"trailing bytes", tamper(func(b []byte) []byte { return append(b, 1) }), "decompress"},
		{"wrong checksum", append(format.Seal([]byte("abc")), 0), "checksum"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := format.Open("some/blob", tc.blob)
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			if !strings.Contains(err.Error(), `"some/blob"`) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want the blob's name and %q", err, tc.want)
			}
		})
	}
}

func TestCompressionIsSafeForConcurrentUse(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			payload := bytes.Repeat([]byte{byte(i), 1, 2, 3}, 3000)
			for range 50 {
				got, err := format.Open("b", format.Seal(payload))
				if err != nil || !bytes.Equal(got, payload) {
					t.Errorf("payload %d came back wrong: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestDecompressRefusesBeforeItAllocates(t *testing.T) {
	for _, size := range []int{-1, 1 << 40} {
		if _, err := Decompress([]byte{1, 2, 3}, size); err == nil {
			t.Errorf("size %d was accepted", size)
		}
	}
}

func TestReaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "b")
		s := rapid.String().Draw(t, "s")
		data := binary.AppendUvarint(nil, n)
		data = AppendBytes(data, b)
		data = AppendBytes(data, s)
		data = binary.LittleEndian.AppendUint64(data, n)
		data = append(data, 7)
		r := NewReader(data)
		if got := r.Uvarint(); got != n {
			t.Fatalf("number %d, want %d", got, n)
		}
		if got := r.Bytes(); !bytes.Equal(got, b) {
			t.Fatalf("bytes %x, want %x", got, b)
		}
		if got := r.Text(); got != s {
			t.Fatalf("text %q, want %q", got, s)
		}
		if got := r.Uint64(); got != n {
			t.Fatalf("fixed number %d, want %d", got, n)
		}
		if got := r.Byte(); got != 7 || r.Close() != nil {
			t.Fatalf("byte %d, %v, want 7 and the end", got, r.Err())
		}
	})
}

func TestReaderStopsAtItsFirstError(t *testing.T) {
	for _, tc := range []struct {
		name string
		data []byte
		read func(r *Reader)
		want error
	}{
		{"byte", nil, func(r *Reader) { r.Byte() }, errShort},
		{"number", []byte{0x80}, func(r *Reader) { r.Uvarint() }, errVarint},
		{"number of 11 bytes", bytes.Repeat([]byte{0xFF}, 11), func(r *Reader) { r.Uvarint() }, errVarint},
		{"fixed numbers", []byte{1, 2, 3, 4, 5}, func(r *Reader) { r.Uint32(); r.Uint64() }, errShort},
		{"trailing", []byte{1}, func(r *Reader) {}, errTrailing},
		{"negative length", []byte{1}, func(r *Reader) { r.Next(-1) }, errShort},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := NewReader(tc.data)
			tc.read(&r)
			if err := r.Close(); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if r.Uvarint() != 0 || r.Text() != "" || r.Uint32() != 0 || r.Len() != 0 {
				t.Error("reading after an error yields something")
			}
		})
	}
}

func TestCountIsBoundedByWhatIsLeft(t *testing.T) {
	data := append(binary.AppendUvarint(nil, 5), make([]byte, 9)...)
	r := NewReader(data)
	if n := r.Count(2); n != 0 || r.Err() == nil {
		t.Errorf("5 items of 2 bytes accepted in 9: %d", n)
	}
	r = NewReader(append(data, 0))
	if n := r.Count(2); n != 5 || r.Err() != nil {
		t.Errorf("5 items of 2 bytes refused in 10: %v", r.Err())
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(format.Seal([]byte("payload")))
	f.Add(format.Seal(make([]byte, 3000)))
	f.Fuzz(func(t *testing.T, blob []byte) {
		if len(blob) >= Overhead { // let the fuzzer past the checksum
			blob = reseal(bytes.Clone(blob))
		}
		payload, err := format.Open("b", blob)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			return
		}
		back, err := format.Open("b", format.Seal(payload))
		if err != nil || !bytes.Equal(back, payload) {
			t.Fatalf("payload does not survive: %v", err)
		}
	})
}
