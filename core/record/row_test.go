package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sampleRow holds a record of every kind with every field.
func sampleRow() Row {
	tx := ID{1, 2, 3, 15: 9}
	v := clock.Version{Time: clock.At(1_700_000_000_000) + 7, Writer: 0xA1B2C3D4}
	return Row{
		Seq: 4711, Append: ID{0xFE, 15: 0x01}, Base: clock.At(1_800_000_000_000) + 3, Writer: 77,
		Records: []Record{
			{Kind: KindPut, Entry: Entry{Key: "a/ü\x00", Value: []byte{0, 0xFF, 0x80, 0x0A}, Type: "text/plain", Expiry: 1_900_000_000_000}},
			{Kind: KindPut, Entry: Entry{Key: "empty"}},
			{Kind: KindPut, Entry: Entry{Key: "large", Ref: &Ref{Blob: "t/0/v/abc", Size: 1 << 20}}},
			{Kind: KindTombstone, Entry: Entry{Key: "gone", Tombstone: true}},
			{Kind: KindMerge, Entry: Entry{Key: "moved", Value: []byte("v"), Version: v}},
			{Kind: KindMerge, Entry: Entry{Key: "moved-gone", Tombstone: true, Version: v}},
			{Kind: KindPrepare, Tx: tx, Note: []byte("origin"), Entry: Entry{Key: "staged", Value: []byte("w")}},
			{Kind: KindPrepare, Tx: tx, Entry: Entry{Key: "staged-gone", Tombstone: true, Version: v}},
			{Kind: KindCommit, Tx: tx},
			{Kind: KindAbort, Tx: tx},
			{Kind: KindGraft, Note: []byte("run")},
			{Kind: KindControl, Note: []byte(`{"lease":1}`)},
			{Kind: KindControl},
		},
	}
}

// stamped returns the row as DecodeRow yields it.
func stamped(r Row) Row {
	r.Records = append([]Record{}, r.Records...)
	for i := range r.Records {
		stampRecord(&r, i)
	}
	return r
}

// bigRow is long enough to be compressed.
func bigRow() Row {
	r := sampleRow()
	for i := range 40 {
		r.Records = append(r.Records, Record{Kind: KindPut, Entry: Entry{
			Key: fmt.Sprintf("user/%04d", i), Value: bytes.Repeat([]byte{byte(i)}, 30)}})
	}
	return r
}

func mustDecode(t *testing.T, seq uint64, data []byte) Row {
	t.Helper()
	row, err := DecodeRow(seq, data)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return row
}

func TestRowGoldenBytesStayReadable(t *testing.T) {
	for name, row := range map[string]Row{"row-v1": sampleRow(), "row-v1-zstd": bigRow()} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".golden")
			got := EncodeRow(&row)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, "zstd") && !bytes.Equal(got, want) {
				t.Errorf("encoding changed:\n got %x\nwant %x", got, want)
			}
			if back := mustDecode(t, row.Seq, want); !reflect.DeepEqual(back, stamped(row)) {
				t.Errorf("golden row decodes to\n%+v, want\n%+v", back, stamped(row))
			}
		})
	}
}

func TestRowIsCompressedOnlyWhenSmaller(t *testing.T) {
	small := sampleRow()
	small.Records = small.Records[:2]
	big := bigRow()
	noise := Row{Seq: 1, Records: []Record{{Kind: KindPut, Entry: Entry{Key: "k", Value: noise(2000)}}}}
	for _, tc := range []struct {
		name string
		row  Row
		want byte
	}{{"small", small, 0}, {"repetitive", big, rowFlagZstd}, {"random", noise, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			data := EncodeRow(&tc.row)
			if data[1] != tc.want {
				t.Errorf("flags are %d, want %d", data[1], tc.want)
			}
			if got := mustDecode(t, tc.row.Seq, data); !reflect.DeepEqual(got, stamped(tc.row)) {
				t.Errorf("round trip changed the row")
			}
		})
	}
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	return b
}

func TestAppendRowKeepsWhatIsInFront(t *testing.T) {
	row := bigRow()
	got := AppendRow([]byte("prefix"), &row)
	if !bytes.HasPrefix(got, []byte("prefix")) || !bytes.Equal(got[6:], EncodeRow(&row)) {
		t.Error("appending differs from encoding")
	}
}

func TestEveryBitFlipOfARowIsRefused(t *testing.T) {
	for _, row := range []Row{sampleRow(), bigRow()} {
		data := EncodeRow(&row)
		for bit := range len(data) * 8 {
			data[bit/8] ^= 1 << (bit % 8)
			if _, err := DecodeRow(row.Seq, data); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("bit %d of %d: error %v, want ErrCorrupt", bit, len(data)*8, err)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestEveryTruncationOfARowIsRefused(t *testing.T) {
	row := bigRow()
	data := EncodeRow(&row)
	for n := range data {
		if _, err := DecodeRow(row.Seq, data[:n]); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("first %d of %d bytes: error %v, want ErrCorrupt", n, len(data), err)
		}
	}
}

// reseal corrects the checksum of a row that a test has tampered with.
func reseal(data []byte) []byte {
	binary.LittleEndian.PutUint32(data[crcAt:], frame.Checksum(data[:crcAt], data[crcAt+4:]))
	return data
}

func TestDamagedRowIsRefusedWithItsNumber(t *testing.T) {
	head := func(flags byte, tail ...byte) []byte {
		data := make([]byte, rowFixed)
		data[0], data[1] = rowVersion, flags
		return reseal(append(data, tail...))
	}
	huge := binary.AppendUvarint(nil, MaxRowRaw+1)
	row := sampleRow()
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"unknown version", func() []byte { d := EncodeRow(&row); d[0] = 2; return reseal(d) }(), "unknown version 2"},
		{"unknown flag", head(2, 7, 0), "unknown flags"},
		{"empty", nil, "cut short"},
		{"another row", head(0, 8, 0), "holds row 8"},
		{"no sequence number", head(0), "malformed number"},
		{"too many records", head(0, 7, 200, 1, 1, 0), "declares 200 records"},
		{"missing record", head(0, 7, 1), "declares 1 records"},
		{"trailing bytes", head(0, 7, 1, byte(KindControl), 0, 0), "past its end"},
		{"unknown kind", head(0, 7, 1, 99, 0), "unknown record kind"},
		{"kind zero", head(0, 7, 1, 0, 0), "unknown record kind"},
		{"put without key", head(0, 7, 1, byte(KindPut), 0), "do not fit"},
		{"put with version", head(0, 7, 1, byte(KindPut), hasKey|hasVersion), "do not fit"},
		{"put that is a tombstone", head(0, 7, 1, byte(KindPut), hasKey|isTombstone), "do not fit"},
		{"tombstone with value", head(0, 7, 1, byte(KindTombstone), hasKey|isTombstone|hasValue), "do not fit"},
		{"tombstone that is none", head(0, 7, 1, byte(KindTombstone), hasKey), "do not fit"},
		{"value and reference", head(0, 7, 1, byte(KindMerge), hasKey|hasValue|hasRef), "do not fit"},
		{"commit with key", head(0, 7, 1, byte(KindCommit), hasKey), "do not fit"},
		{"key longer than the row", head(0, 7, 1, byte(KindPut), hasKey, 100), "100 items declared"},
		{"number in a longer form", head(0, 0x87, 0x00, 0), "malformed number"},
		{"huge declared size", head(rowFlagZstd, append([]byte{7, 1}, huge...)...), "bytes of records declared"},
		{"size beyond any ratio", head(rowFlagZstd, append([]byte{7, 1}, binary.AppendUvarint(nil, 1<<20)...)...), "cannot hold"},
		{"not zstd", head(rowFlagZstd, 7, 1, 10, 1, 2, 3), "decompress"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodeRow(7, tc.data)
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			if !strings.Contains(err.Error(), "row 7") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want the row and %q", err, tc.want)
			}
		})
	}
}

func TestPutIgnoresWhatItsKindDecides(t *testing.T) {
	row := Row{Seq: 1, Base: 100, Writer: 3, Records: []Record{
		{Kind: KindPut, Entry: Entry{Key: "k", Value: []byte("v"), Tombstone: true, Version: clock.Version{Time: 5}}},
		{Kind: KindTombstone, Entry: Entry{Key: "k", Value: []byte("v")}},
	}}
	got := mustDecode(t, 1, EncodeRow(&row))
	want := []Record{
		{Kind: KindPut, Entry: Entry{Key: "k", Value: []byte("v"), Version: clock.Version{Time: 100, Writer: 3}}},
		{Kind: KindTombstone, Entry: Entry{Key: "k", Tombstone: true, Version: clock.Version{Time: 101, Writer: 3}}},
	}
	if !reflect.DeepEqual(got.Records, want) {
		t.Errorf("got %+v, want %+v", got.Records, want)
	}
}

// drawRow draws a row in its canonical form.
func drawRow(t *rapid.T) Row {
	row := Row{
		Seq:    rapid.Uint64().Draw(t, "seq"),
		Base:   clock.HLC(rapid.Uint64Range(0, 1<<62).Draw(t, "base")),
		Writer: rapid.Uint32().Draw(t, "writer"),
	}
	copy(row.Append[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "append"))
	row.Records = rapid.SliceOfN(rapid.Custom(drawRecord), 0, 40).Draw(t, "records")
	return row
}

func drawRecord(t *rapid.T) Record {
	r := Record{Kind: Kind(rapid.IntRange(1, 8).Draw(t, "kind"))}
	if r.Kind.holdsEntry() {
		r.Entry = drawEntry(t, r.Kind)
	}
	if rapid.Bool().Draw(t, "tx") {
		copy(r.Tx[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		r.Note = nonEmpty(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "note"))
	}
	return r
}

func drawEntry(t *rapid.T, k Kind) Entry {
	e := Entry{
		Key:    rapid.StringN(0, 20, 40).Draw(t, "key"),
		Expiry: rapid.Int64().Draw(t, "expiry"),
		Type:   rapid.SampledFrom([]string{"", "text/plain", "x"}).Draw(t, "type"),
	}
	if k == KindMerge || k == KindPrepare {
		e.Version = clock.Version{Time: clock.HLC(rapid.Uint64().Draw(t, "time")), Writer: rapid.Uint32().Draw(t, "w")}
		e.Tombstone = rapid.Bool().Draw(t, "tombstone")
	}
	e.Tombstone = e.Tombstone || k == KindTombstone
	switch {
	case e.Tombstone:
	case rapid.Bool().Draw(t, "large"):
		e.Ref = &Ref{Blob: rapid.StringN(1, 9, 30).Draw(t, "blob"), Size: rapid.Int64Min(0).Draw(t, "size")}
	default:
		e.Value = nonEmpty(rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "value"))
	}
	return e
}

func nonEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func TestRowSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := drawRow(t)
		data := EncodeRow(&row)
		bound := RowOverhead
		for i := range row.Records {
			bound += RecordSize(&row.Records[i])
		}
		if len(data) > bound {
			t.Fatalf("%d bytes, RecordSize promised at most %d", len(data), bound)
		}
		got, err := DecodeRow(row.Seq, data)
		if err != nil {
			t.Fatal(err)
		}
		want := stamped(row)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
		if _, err := DecodeRow(row.Seq+1, data); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("misplaced row: error %v, want ErrCorrupt", err)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	for _, row := range []Row{sampleRow(), bigRow(), {Seq: 1}} {
		f.Add(row.Seq, EncodeRow(&row))
	}
	f.Fuzz(func(t *testing.T, seq uint64, data []byte) {
		if len(data) >= rowFixed { // let the fuzzer past the checksum
			data = reseal(bytes.Clone(data))
		}
		row, err := DecodeRow(seq, data)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			return
		}
		back, err := DecodeRow(seq, EncodeRow(&row))
		if err != nil || !reflect.DeepEqual(back, row) {
			t.Fatalf("decoded row does not survive: %v", err)
		}
	})
}

func BenchmarkAppendRow(b *testing.B) {
	for _, n := range []int{1, 250} {
		row := Row{Seq: 9}
		for i := range n {
			row.Records = append(row.Records, Record{Kind: KindPut, Entry: Entry{
				Key: fmt.Sprintf("user/%08d", i*7919), Value: noise(100 + i)[i:]}})
		}
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			buf := AppendRow(nil, &row)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendRow(buf[:0], &row)
			}
		})
		b.Run(fmt.Sprintf("decode/records=%d", n), func(b *testing.B) {
			data := EncodeRow(&row)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeRow(9, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
