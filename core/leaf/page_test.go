package leaf

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sampleEntries has every field and awkward keys, in order.
func sampleEntries() []record.Entry {
	v := func(t int, w uint32) clock.Version {
		return clock.Version{Time: clock.At(1_800_000_000_000) + clock.HLC(t), Writer: w}
	}
	return []record.Entry{
		{Key: "", Value: []byte("empty key"), Version: v(9, 1)},
		{Key: "\x00", Version: v(3, 1), Type: "text/plain"},
		{Key: "a", Value: []byte{0, 0xFF}, Version: v(4, 2), Type: "image/png", Expiry: 1_900_000_000_000},
		{Key: "a/b", Tombstone: true, Version: v(5, 1)},
		{Key: "a/b/" + strings.Repeat("x", 200), Value: []byte("long key"), Version: v(1, 2), Type: "text/plain"},
		{Key: "l", Ref: &record.Ref{Blob: "t/0/v/1", Size: 1 << 22}, Version: v(0, 7), Expiry: 1},
		{Key: "z%/é", Value: []byte("last"), Version: clock.Version{}},
	}
}

func build(t testing.TB, entries []record.Entry) ([]byte, Summary) {
	t.Helper()
	var b Builder
	for i := range entries {
		if err := b.Add(&entries[i]); err != nil {
			t.Fatalf("add entry %d: %v", i, err)
		}
	}
	return b.Finish()
}

func mustDecode(t testing.TB, blob []byte) *Page {
	t.Helper()
	p, err := Decode("leaf", blob)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return p
}

func pageEntries(p *Page) []record.Entry {
	out := make([]record.Entry, p.Len())
	for i := range out {
		p.Entry(i, &out[i])
	}
	return out
}

func TestLeafGoldenBytesStayReadable(t *testing.T) {
	path := filepath.Join("testdata", "leaf-v1.golden")
	got, _ := build(t, sampleEntries())
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoding changed:\n got %x\nwant %x", got, want)
	}
	if back := pageEntries(mustDecode(t, want)); !reflect.DeepEqual(back, sampleEntries()) {
		t.Errorf("golden leaf decodes to %+v", back)
	}
}

func TestSummaryDescribesThePage(t *testing.T) {
	blob, got := build(t, sampleEntries())
	want := Summary{
		First: "", Last: "z%/é", Entries: 7, Tombstones: 1, Expiring: 2,
		Raw: int64(len(blob) - frame.Overhead), DropFrom: 1, DropUntil: 1_900_000_000_000,
		Large: []string{"t/0/v/1"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestEmptyPageHoldsNothing(t *testing.T) {
	blob, sum := build(t, nil)
	p := mustDecode(t, blob)
	if _, ok := p.Get("k"); ok || p.Len() != 0 || sum.Entries != 0 {
		t.Errorf("empty page has %d entries", p.Len())
	}
	if i, ok := p.Seek("k"); i != 0 || ok {
		t.Errorf("seek in an empty page yields %d, %v", i, ok)
	}
}

func TestBuilderRefusesWhatBreaksThePage(t *testing.T) {
	var b Builder
	add := func(e record.Entry) error { return b.Add(&e) }
	if err := add(record.Entry{Key: "m"}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"m", "l", ""} {
		if err := add(record.Entry{Key: key}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("key %q after m: error %v, want ErrInvalid", key, err)
		}
	}
	if err := add(record.Entry{Key: "n", Value: make([]byte, MaxEntry)}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("huge entry: error %v, want ErrTooLarge", err)
	}
	blob, _ := b.Finish()
	if p := mustDecode(t, blob); p.Len() != 1 {
		t.Errorf("%d entries after refusals, want 1", p.Len())
	}
}

func TestBuilderStopsBeforeThePageIsTooLarge(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for name, entry := range map[string]func(n int) record.Entry{
		"by values": func(n int) record.Entry { return record.Entry{Key: fmt.Sprintf("%03d", n), Value: []byte(big)} },
		"by keys":   func(n int) record.Entry { return record.Entry{Key: fmt.Sprintf("%03d", n) + big} },
		"by types":  func(n int) record.Entry { return record.Entry{Key: fmt.Sprintf("%03d", n), Type: fmt.Sprint(n, big)} },
		"by one type": func(n int) record.Entry {
			return record.Entry{Key: fmt.Sprintf("%03d", n), Type: big, Value: []byte(big)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b Builder
			var err error
			n := 0
			for ; err == nil && n < 100; n++ {
				e := entry(n)
				err = b.Add(&e)
			}
			if !errors.Is(err, store.ErrTooLarge) || n < 8 {
				t.Fatalf("error %v after %d MiB, want ErrTooLarge", err, n)
			}
			blob, _ := b.Finish()
			if p := mustDecode(t, blob); p.Len() != n-1 {
				t.Errorf("%d entries, want %d", p.Len(), n-1)
			}
		})
	}
}

func TestBuilderIsEmptyAfterFinish(t *testing.T) {
	b := Builder{Filtered: true}
	for round := range 3 {
		for i := range 10 + round {
			if err := b.Add(&record.Entry{Key: fmt.Sprint(10 + i), Type: fmt.Sprint(round), Version: clock.Version{Writer: uint32(round)}}); err != nil {
				t.Fatal(err)
			}
		}
		f := b.Filter()
		blob, sum := b.Finish()
		p := mustDecode(t, blob)
		if p.Len() != 10+round || sum.Entries != p.Len() || !f.MayHold(Hash("10")) {
			t.Errorf("round %d: %d entries", round, p.Len())
		}
		if e, _ := p.Get("10"); e.Type != fmt.Sprint(round) || e.Version.Writer != uint32(round) {
			t.Errorf("round %d: entry %+v", round, e)
		}
	}
}

func drawEntries(t *rapid.T) []record.Entry {
	entry := rapid.Custom(func(t *rapid.T) record.Entry {
		e := record.Entry{
			Key:     rapid.StringOfN(rapid.RuneFrom([]rune("ab/é\x00")), 0, 200, -1).Draw(t, "key"),
			Version: clock.Version{Time: clock.HLC(rapid.Uint64().Draw(t, "time")), Writer: uint32(rapid.IntRange(0, 3).Draw(t, "writer"))},
			Expiry:  rapid.Int64().Draw(t, "expiry"),
			Type:    rapid.SampledFrom([]string{"", "text/plain", "a/b"}).Draw(t, "type"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 0:
			e.Tombstone = true
		case 1:
			e.Ref = &record.Ref{Blob: rapid.StringN(1, 9, 30).Draw(t, "blob"), Size: rapid.Int64Min(0).Draw(t, "size")}
		default:
			if v := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "value"); len(v) > 0 {
				e.Value = v
			}
		}
		return e
	})
	entries := rapid.SliceOfN(entry, 0, 60).Draw(t, "entries")
	slices.SortFunc(entries, func(a, b record.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(entries, func(a, b record.Entry) bool { return a.Key == b.Key })
}

func TestPageAnswersLikeTheSortedList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		entries := drawEntries(rt)
		size := 0
		for i := range entries {
			size += EntrySize(&entries[i])
		}
		blob, sum := build(t, entries)
		p := mustDecode(t, blob)
		if got := pageEntries(p); len(got) != len(entries) || len(got) > 0 && !reflect.DeepEqual(got, entries) {
			rt.Fatalf("got %+v\nwant %+v", got, entries)
		}
		if head := int64(1024); sum.Raw > int64(size)+head {
			rt.Fatalf("%d bytes, EntrySize promised %d", sum.Raw, size)
		}
		key := rapid.StringOfN(rapid.RuneFrom([]rune("ab/é\x00")), 0, 3, -1).Draw(rt, "probe")
		want, found := slices.BinarySearchFunc(entries, key, func(e record.Entry, k string) int { return cmp.Compare(e.Key, k) })
		if i, ok := p.Seek(key); i != want || ok != found {
			rt.Fatalf("seek %q: %d, %v, want %d, %v", key, i, ok, want, found)
		}
		for _, e := range entries {
			if got, ok := p.Get(e.Key); !ok || !reflect.DeepEqual(got, e) {
				rt.Fatalf("get %q: %+v, %v", e.Key, got, ok)
			}
		}
	})
}

func TestEveryBitFlipOfALeafIsRefused(t *testing.T) {
	entries := sampleEntries()
	for i := range 20 {
		entries = append(entries, record.Entry{Key: fmt.Sprintf("~%03d", i), Value: bytes.Repeat([]byte("v"), 30)})
	}
	blob, _ := build(t, entries)
	for bit := range len(blob) * 8 {
		blob[bit/8] ^= 1 << (bit % 8)
		if _, err := Decode("leaf", blob); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("bit %d: error %v, want ErrCorrupt", bit, err)
		}
		blob[bit/8] ^= 1 << (bit % 8)
	}
}

func TestDamagedLeafIsRefusedByName(t *testing.T) {
	head := func(count byte, tail ...byte) []byte {
		return append(append([]byte{count}, make([]byte, 8)...), tail...)
	}
	one := []byte{1, 7, 0, 0, 0, 0} // one writer, no types
	entry := func(b ...byte) []byte { return head(1, append(slices.Clone(one), b...)...) }
	for _, tc := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"no payload", nil, "malformed number"},
		{"too many entries", head(100, one...), "100 items"},
		{"dictionary larger than the page", head(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "more words"},
		{"unknown writer", entry(1, 'a', 0, 0, 1), "writer is not"},
		{"unknown type", entry(1, 'a', hasType, 0, 0, 0), "type is not"},
		{"unknown flag", entry(1, 'a', 0x80, 0, 0), "impossible flags"},
		{"value and tombstone", entry(1, 'a', hasValue|isTombstone, 0, 0, 0), "impossible flags"},
		{"value past the end", entry(1, 'a', hasValue, 0, 0, 9), "9 items"},
		{"trailing bytes", entry(1, 'a', 0, 0, 0, 0), "past its end"},
		{"keys out of order", head(2, append(slices.Clone(one), 1, 'b', 0, 0, 0, 1, 'a', 0, 0, 0)...), "ascending"},
		{"key twice", head(2, append(slices.Clone(one), 1, 'b', 0, 0, 0, 1, 'b', 0, 0, 0)...), "ascending"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Decode("some/leaf", format.Seal(tc.payload))
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			if !strings.Contains(err.Error(), `"some/leaf"`) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q, want the leaf's name and %q", err, tc.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	blob, _ := build(f, sampleEntries())
	payload, err := format.Open("leaf", blob)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := Decode("leaf", format.Seal(payload))
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			return
		}
		entries := pageEntries(p)
		again, _ := build(t, entries)
		if got := pageEntries(mustDecode(t, again)); len(got) > 0 && !reflect.DeepEqual(got, entries) {
			t.Fatalf("decoded leaf does not survive")
		}
		for i := range entries {
			if at, ok := p.Seek(entries[i].Key); at != i || !ok {
				t.Fatalf("entry %d is found at %d, %v", i, at, ok)
			}
		}
	})
}

func benchPage(b *testing.B) (*Page, []string) {
	var entries []record.Entry
	var keys []string
	for i := range 2000 {
		key := fmt.Sprintf("user/%08d", i*37)
		keys = append(keys, key)
		entries = append(entries, record.Entry{Key: key, Value: bytes.Repeat([]byte{byte(i)}, 100), Version: clock.Version{Time: clock.HLC(i)}})
	}
	blob, _ := build(b, entries)
	return mustDecode(b, blob), keys
}

func BenchmarkPageGet(b *testing.B) {
	p, keys := benchPage(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := p.Get(keys[i*7919%len(keys)]); !ok {
			b.Fatal("key is missing")
		}
	}
}

func BenchmarkPageDecode(b *testing.B) {
	p, _ := benchPage(b)
	blob := format.Seal(p.payload)
	b.SetBytes(int64(len(p.payload)))
	for b.Loop() {
		if _, err := Decode("leaf", blob); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSummaryKeepsNoPageAlive(t *testing.T) {
	blob, _ := build(t, sampleEntries())
	p := mustDecode(t, blob)
	var b Builder
	for _, e := range pageEntries(p) {
		if err := b.Add(&e); err != nil {
			t.Fatal(err)
		}
	}
	_, sum := b.Finish()
	clear(p.payload) // whatever aliases the page changes with it
	if sum.Last != "z%/é" || sum.Large[0] != "t/0/v/1" {
		t.Errorf("summary aliases the page it was built from: %q, %q", sum.Last, sum.Large)
	}
}
