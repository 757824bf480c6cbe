package run

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/store"
)

func sampleLeaf(n int, first, last string) Leaf {
	return Leaf{
		Blob: fmt.Sprintf("t/0/leaf/%d", n), Size: 1000 + int64(n),
		Summary: leaf.Summary{
			First: first, Last: last, Entries: 3 + n, Tombstones: 1, Expiring: 1, Raw: 2000 + int64(n),
			DropFrom: 1_800_000_000_000, DropUntil: 1_900_000_000_000, Large: []string{"t/0/value/1", "t/0/value/2"},
		},
		Filter: leaf.NewFilter([]uint64{leaf.Hash(first), leaf.Hash(last)}),
	}
}

// sampleSlots is an index of two slots, the second of which has no leaves.
func sampleSlots() [][]Leaf {
	plain := sampleLeaf(3, "p", "q")
	plain.Filter, plain.Large, plain.DropFrom, plain.DropUntil = nil, nil, 0, 0
	return [][]Leaf{{sampleLeaf(1, "", "b"), sampleLeaf(2, "c/ü", "d\x00"), plain}, {}}
}

// sampleSet is a view with a young run, a merge of two runs in progress, and a
// merge into the base in progress whose inputs are partly settled.
func sampleSet() *Set {
	slots := sampleSlots()
	return &Set{
		seq: 4711, index: indexRef{name: "t/0/index/9", leaves: 3, bytes: 400},
		runs: []*Run{
			newRun(Run{Leaves: []Leaf{sampleLeaf(4, "a", "z")}, slot: noSlot}),
			newRun(Run{Level: 1, Inputs: 2, slot: noSlot, Leaves: []Leaf{sampleLeaf(5, "a", "b")}}),
			newRun(Run{From: "c", slot: noSlot, Leaves: []Leaf{sampleLeaf(6, "a", "d")}}),
			newRun(Run{From: "c", slot: noSlot}),
			newRun(Run{Base: true, Inputs: 2, slot: 1}),
			newRun(Run{Level: 2, From: "a", slot: noSlot, Leaves: []Leaf{sampleLeaf(7, "b", "c")}}),
			newRun(Run{Base: true, From: "bb", slot: 0, settled: 1, Leaves: []Leaf{slots[0][1], sampleLeaf(8, "x", "y")}}),
		},
	}
}

func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// payload returns what an envelope holds, which, unlike the envelope, does not
// depend on the compressor.
func payload(t testing.TB, f frame.Format, blob []byte) []byte {
	t.Helper()
	b, err := f.Open("blob", blob)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestManifestGoldenBytesStayReadable(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	want := sampleSet()
	manifest := encodeManifest(want)
	ix, _ := encodeIndex(sampleSlots())
	b.data["m"] = golden(t, "manifest-v1", manifest)
	b.data["t/0/index/9"] = golden(t, "index-v1", ix)
	if !bytes.Equal(payload(t, manifestFormat, manifest), payload(t, manifestFormat, b.data["m"])) {
		t.Error("encoding of manifests changed")
	}
	if !bytes.Equal(payload(t, indexFormat, ix), payload(t, indexFormat, b.data["t/0/index/9"])) {
		t.Error("encoding of indexes changed")
	}
	got := mustOpen(t, s, "m")
	if got.seq != want.seq || got.index != want.index || len(got.runs) != len(want.runs) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want.runs {
		g, w := *got.runs[i], *want.runs[i]
		if len(g.Leaves) == 0 && len(w.Leaves) == 0 {
			g.Leaves, w.Leaves = nil, nil
		}
		if !reflect.DeepEqual(g, w) {
			t.Errorf("run %d: got %+v\nwant %+v", i, g, w)
		}
	}
}

func TestEveryBitFlipOfAManifestOrIndexIsRefused(t *testing.T) {
	ix, _ := encodeIndex(sampleSlots())
	for name, blob := range map[string][]byte{"manifest": encodeManifest(sampleSet()), "index": ix} {
		t.Run(name, func(t *testing.T) {
			b := newBlobs()
			s, _ := newStore(b, Options{})
			b.data["manifest"], b.data["t/0/index/9"] = encodeManifest(sampleSet()), ix
			target := map[string]string{"manifest": "manifest", "index": "t/0/index/9"}[name]
			for bit := range len(blob) * 8 {
				bad := bytes.Clone(blob)
				bad[bit/8] ^= 1 << (bit % 8)
				b.data[target] = bad
				_, err := s.Open(t.Context(), "manifest")
				if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), target) {
					t.Fatalf("bit %d: error %v, want ErrCorrupt naming %q", bit, err, target)
				}
			}
		})
	}
}

func TestImpossibleManifestIsRefused(t *testing.T) {
	one := func(r Run) *Set { r.slot = noSlot; return &Set{runs: []*Run{newRun(r)}} }
	runs := func(rs ...Run) *Set {
		s := &Set{}
		for _, r := range rs {
			r.slot = noSlot
			s.runs = append(s.runs, newRun(r))
		}
		return s
	}
	noEntries := sampleLeaf(1, "a", "b")
	noEntries.Entries = 0
	badFilter := sampleLeaf(1, "a", "b")
	badFilter.Filter = leaf.Filter{99, 0}
	for _, tc := range []struct {
		name string
		set  *Set
		want error
	}{
		{"leaves out of order", one(Run{Leaves: []Leaf{sampleLeaf(1, "c", "d"), sampleLeaf(2, "a", "b")}}), errLeafOrder},
		{"leaves overlap", one(Run{Leaves: []Leaf{sampleLeaf(1, "a", "c"), sampleLeaf(2, "c", "d")}}), errLeafOrder},
		{"bounds of a leaf swapped", one(Run{Leaves: []Leaf{sampleLeaf(1, "b", "a")}}), errLeafOrder},
		{"leaf without entries", one(Run{Leaves: []Leaf{noEntries}}), errLeafEmpty},
		{"malformed filter", one(Run{Leaves: []Leaf{badFilter}}), leaf.CheckFilter([]byte{99, 0})},
		{"merge past the end", one(Run{Inputs: 1}), errGroup},
		{"merge in a merge", runs(Run{Inputs: 2}, Run{Inputs: 1}, Run{}), errGroup},
		{"run below the base", runs(Run{Base: true}, Run{}), errBasePlace},
		{"base in a merge of others", runs(Run{Inputs: 1}, Run{Base: true}), errBasePlace},
		{"two bases in a merge", runs(Run{Base: true, Inputs: 2}, Run{Base: true}, Run{Base: true}), errBasePlace},
		{"settled without an index", &Set{runs: []*Run{{slot: 0, settled: 1, Leaves: []Leaf{sampleLeaf(1, "a", "b")}}}}, errSlot},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBlobs()
			s, _ := newStore(b, Options{})
			b.data["t/0/m"] = encodeManifest(tc.set)
			_, err := s.Open(t.Context(), "t/0/m")
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			if msg := err.Error(); !strings.Contains(msg, `"t/0/m"`) || !strings.Contains(msg, tc.want.Error()) {
				t.Errorf("error %q, want the blob's name and %q", msg, tc.want)
			}
		})
	}
}

func TestManifestThatDoesNotFitItsIndexIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		slots [][]Leaf
	}{
		{"slot is missing", nil},
		{"slot has too few leaves", [][]Leaf{{sampleLeaf(1, "", "b")}, {}}},
		{"slot overlaps the manifest", [][]Leaf{{sampleLeaf(1, "c", "xx")}, {}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBlobs()
			s, _ := newStore(b, Options{})
			b.data["m"] = encodeManifest(sampleSet())
			b.data["t/0/index/9"], _ = encodeIndex(tc.slots)
			if _, err := s.Open(t.Context(), "m"); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("error %v, want ErrCorrupt", err)
			}
		})
	}
}

func TestMissingManifestOrIndexIsNamed(t *testing.T) {
	b := newBlobs()
	s, _ := newStore(b, Options{})
	_, err := s.Open(t.Context(), "t/0/m")
	if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), `"t/0/m"`) {
		t.Errorf("missing manifest: error %v", err)
	}
	b.data["t/0/m"] = encodeManifest(sampleSet())
	_, err = s.Open(t.Context(), "t/0/m")
	if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), `"t/0/index/9"`) {
		t.Errorf("missing index: error %v", err)
	}
}

func TestDeclaredCountsAreCheckedBeforeAllocation(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<40)
	for name, body := range map[string][]byte{
		"runs":   append([]byte{1, 0, 0, 0}, huge...),
		"leaves": append([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, append(huge, make([]byte, 20)...)...),
		"name":   append([]byte{1}, huge...),
	} {
		if _, err := decodeManifest("m", manifestFormat.Seal(body)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("huge number of %s: error %v, want ErrCorrupt", name, err)
		}
	}
}

func FuzzOpenManifest(f *testing.F) {
	ix, _ := encodeIndex(sampleSlots())
	f.Add(payload(f, manifestFormat, encodeManifest(sampleSet())), payload(f, indexFormat, ix))
	f.Add(payload(f, manifestFormat, encodeManifest(&Set{})), []byte{})
	f.Fuzz(func(t *testing.T, manifest, index []byte) {
		b := newBlobs()
		s, _ := newStore(b, Options{})
		b.data["m"], b.data["t/0/index/9"] = manifestFormat.Seal(manifest), indexFormat.Seal(index)
		set, err := s.Open(t.Context(), "m")
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("error %v, want ErrCorrupt or ErrNotFound", err)
			}
			return
		}
		again := *set
		if again.index.name == "" { // then no run may lean on it
			b.data["again"] = encodeManifest(&again)
			back := mustOpen(t, s, "again")
			if !reflect.DeepEqual(back.runs, set.runs) {
				t.Fatal("decoded manifest does not survive")
			}
		}
	})
}
