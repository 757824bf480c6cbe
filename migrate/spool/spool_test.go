package spool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
)

// small makes many runs of few entries.
var small = Options{SortMemory: 8 << 10, BlockBytes: 512, MergeMemory: 4 << 10, MaxFanIn: 3}

func folder(t testing.TB, path string, step durable.Step) *durable.Dir {
	t.Helper()
	d, err := durable.Open(path, step)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t testing.TB, path string, generation int64, o Options) *Spool {
	t.Helper()
	s, err := Open(folder(t, path, nil), generation, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func entry(key string, n int) Entry {
	return Entry{Key: key, Value: fmt.Appendf(nil, "value %d", n), Type: "text/plain", Expiry: int64(n) - 2, Origin: fmt.Sprintf("row %d", n)}
}

func sorted(es []Entry) []Entry {
	out := slices.Clone(es)
	slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func collect(s *Spool, t testing.TB, after string) ([]Entry, error) {
	var out []Entry
	for e, err := range s.Sorted(t.Context(), after) {
		if err != nil {
			return out, err
		}
		c := *e
		c.Value = slices.Clone(e.Value)
		out = append(out, c)
	}
	return out, nil
}

func same(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool {
		return x.Key == y.Key && string(x.Value) == string(y.Value) && x.Type == y.Type && x.Expiry == y.Expiry && x.Origin == y.Origin
	})
}

func TestSortsAcrossRunsAndCrashes(t *testing.T) {
	key := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "a", "prefix/", "prefix/long/"}).Draw(t, "p") + rapid.StringN(0, 6, 12).Draw(t, "k")
	})
	parent := durabletest.Folder(t)
	rapid.Check(t, func(rt *rapid.T) {
		path, err := os.MkdirTemp(parent, "")
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, path, 0, small)
		var all, saved []Entry
		generation := int64(0)
		for n := range rapid.IntRange(0, 300).Draw(rt, "entries") {
			e := entry(key.Draw(rt, "key"), n)
			if rapid.IntRange(0, 40).Draw(rt, "large") == 0 {
				e.Value = make([]byte, 20<<10)
			}
			if err := s.Add(&e); err != nil {
				rt.Fatal(err)
			}
			if all = append(all, e); s.Held() > small.SortMemory && s.Buffered() > 1 {
				rt.Fatalf("%d entries in the buffer take %d bytes", s.Buffered(), s.Held())
			}
			switch rapid.IntRange(0, 30).Draw(rt, "then") {
			case 0:
				if generation, err = s.Checkpoint(); err != nil {
					rt.Fatal(err)
				}
				saved = slices.Clone(all)
			case 1:
				s, all = open(t, path, generation, small), slices.Clone(saved)
			}
		}
		if _, err := s.Checkpoint(); err != nil {
			rt.Fatal(err)
		}
		want := sorted(all)
		if got, err := collect(s, t, ""); err != nil || !same(got, want) {
			rt.Fatalf("%d entries, %d wanted, %v", len(got), len(want), err)
		}
		if len(want) > 0 {
			after := want[rapid.IntRange(0, len(want)-1).Draw(rt, "after")].Key
			i := slices.IndexFunc(want, func(e Entry) bool { return after == "" || e.Key > after })
			if i < 0 {
				i = len(want)
			}
			if got, err := collect(s, t, after); err != nil || !same(got, want[i:]) {
				rt.Fatalf("after %q: %d entries, %d wanted, %v", after, len(got), len(want)-i, err)
			}
		}
	})
}

func TestEntriesThatAreNotSavedAreNotRead(t *testing.T) {
	s := open(t, durabletest.Folder(t), 0, small)
	e := entry("a", 1)
	if err := s.Add(&e); err != nil {
		t.Fatal(err)
	}
	if _, err := collect(s, t, ""); !errors.Is(err, ErrUnsaved) {
		t.Fatal(err)
	}
}

// fill makes a spool of n entries, and returns them in order.
func fill(t testing.TB, s *Spool, n int, seed uint64) []Entry {
	t.Helper()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var all []Entry
	for i := range n {
		e := entry(fmt.Sprintf("key/%06d", r.IntN(n*2)), i)
		if err := s.Add(&e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if _, err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	return sorted(all)
}

// The buffer keeps to its memory, whatever the sizes of the entries are.
func TestBufferKeepsToItsMemory(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	o := Options{SortMemory: 64 << 10}
	s := open(t, durabletest.Folder(t), 0, o)
	most := 0
	for i := range 5000 {
		e := entry(fmt.Sprint(r.Uint64()), i)
		e.Value = make([]byte, r.IntN(1<<r.IntN(14)))
		if err := s.Add(&e); err != nil {
			t.Fatal(err)
		}
		most = max(most, s.Held())
	}
	if most > o.SortMemory || most < o.SortMemory/2 {
		t.Fatalf("the buffer took up to %d bytes, %d are allowed", most, o.SortMemory)
	}
}

func TestMergesInPassesWithinItsMemory(t *testing.T) {
	for name, o := range map[string]Options{
		"bounded by files":  {SortMemory: 8 << 10, BlockBytes: 512, MergeMemory: 1 << 20, MaxFanIn: 3},
		"bounded by memory": {SortMemory: 8 << 10, BlockBytes: 512, MergeMemory: 4 << 10, MaxFanIn: 1000},
	} {
		t.Run(name, func(t *testing.T) { testMerges(t, o) })
	}
}

func testMerges(t *testing.T, o Options) {
	s := open(t, durabletest.Folder(t), 0, o)
	want := fill(t, s, 3000, 1)
	runs := len(s.runs)
	if runs < 20 {
		t.Fatalf("only %d runs", runs)
	}
	got, err := collect(s, t, "")
	if err != nil || !same(got, want) {
		t.Fatalf("%d of %d entries, %v", len(got), len(want), err)
	}
	width, err := s.fanIn()
	if err != nil || len(s.runs) > width || width > o.MaxFanIn {
		t.Fatalf("%d runs are left, %d can be read at once, %v", len(s.runs), width, err)
	}
	memory := 0
	for _, r := range s.runs {
		rd, err := openRun(s.dir.Join(r.name()), nil)
		if err != nil {
			t.Fatal(err)
		}
		memory += rd.want.memory()
		rd.close()
	}
	if memory > o.MergeMemory {
		t.Fatalf("the readers take %d bytes, %d are allowed", memory, o.MergeMemory)
	}
	if got, err = collect(open(t, s.dir.Path(), int64(runs), o), t, ""); err != nil || !same(got, want) {
		t.Fatalf("opened again: %d of %d entries, %v", len(got), len(want), err)
	}
}

func TestDamageIsRefused(t *testing.T) {
	path := durabletest.Folder(t)
	s := open(t, path, 0, Options{BlockBytes: 256})
	want := fill(t, s, 40, 2)
	name := s.dir.Join(s.runs[0].name())
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, damaged []byte) {
		t.Helper()
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := collect(s, t, ""); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s: %d of %d entries, %v", what, len(got), len(want), err)
		}
	}
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		check(fmt.Sprintf("bit flipped in byte %d", i), bad)
		check(fmt.Sprintf("cut off at %d", i), whole[:i])
	}
	first := len(magic) + frameBytes + int(binary.LittleEndian.Uint32(whole[len(magic):]))
	check("a block is missing", append([]byte(magic), whole[first:]...))
	check("something behind the end", append(slices.Clone(whole), 'x'))
	check("twice the end", append(slices.Clone(whole), whole[len(whole)-frameBytes-endBytes:]...))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := collect(s, t, ""); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if _, err := Open(folder(t, path, nil), 1, small); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "run 1 of 1 is missing") {
		t.Fatal(err)
	}
}

// A program that ends at any change to the disk, before or after it, loses
// what was added since its last checkpoint and nothing else, and merging
// loses nothing at all.
func TestEveryCrashPoint(t *testing.T) {
	crash := errors.New("crash")
	for stop := 1; ; stop++ {
		path, n, name := durabletest.Folder(t), 0, ""
		d := folder(t, path, func(step string) error {
			if n++; n == stop {
				name = step
			}
			if n >= stop {
				return crash
			}
			return nil
		})
		s, err := Open(d, 0, small)
		if err != nil {
			t.Fatal(err)
		}
		var all, saved []Entry
		generation := int64(0)
		for i := 0; i < 200 && err == nil; i++ {
			e := entry(fmt.Sprintf("%03d", i*7%200), i)
			if err = s.Add(&e); err == nil {
				all = append(all, e)
			}
			if err == nil && i%40 == 39 {
				var g int64
				if g, err = s.Checkpoint(); err == nil {
					generation, saved = g, slices.Clone(all)
				}
			}
		}
		if err == nil {
			_, err = collect(s, t, "")
		}
		got, rerr := collect(open(t, path, generation, small), t, "")
		if rerr != nil || !same(got, sorted(saved)) {
			t.Fatalf("crash at step %d (%s): %d of %d entries, %v", stop, name, len(got), len(saved), rerr)
		}
		names, nerr := d.Names()
		if nerr != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, durable.Suffix) }) {
			t.Fatalf("crash at step %d: %q is left, %v", stop, names, nerr)
		}
		if name == "" {
			if err != nil || len(saved) != 200 {
				t.Fatal(err)
			}
			t.Logf("%d crash points", stop-1)
			return
		}
		if !errors.Is(err, crash) {
			t.Fatalf("step %d (%s): %v", stop, name, err)
		}
	}
}

// A checkpoint that could not be written is tried again with nothing lost.
func TestFailedCheckpointIsRepeated(t *testing.T) {
	full := true
	d := folder(t, durabletest.Folder(t), func(string) error {
		if full {
			return durable.ErrFull
		}
		return nil
	})
	s, err := Open(d, 0, small)
	if err != nil {
		t.Fatal(err)
	}
	e := entry("a", 1)
	if err := s.Add(&e); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Checkpoint(); !errors.Is(err, durable.ErrFull) {
		t.Fatal(err)
	}
	full = false
	if g, err := s.Checkpoint(); err != nil || g != 1 {
		t.Fatal(g, err)
	}
	if got, err := collect(s, t, ""); err != nil || !same(got, []Entry{e}) {
		t.Fatal(got, err)
	}
}

func TestClear(t *testing.T) {
	s := open(t, durabletest.Folder(t), 0, small)
	fill(t, s, 500, 3)
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	if names, err := s.dir.Names(); err != nil || len(names) != 0 {
		t.Fatal(names, err)
	}
	if got, err := collect(open(t, s.dir.Path(), 0, small), t, ""); err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}
}

func FuzzRun(f *testing.F) {
	s := open(f, durabletest.Folder(f), 0, Options{BlockBytes: 64})
	fill(f, s, 5, 4)
	whole, err := os.ReadFile(s.dir.Join(s.runs[0].name()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		s := open(t, durabletest.Folder(t), 0, Options{})
		s.runs = []span{{0, 1}}
		if err := os.WriteFile(s.dir.Join(s.runs[0].name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := collect(s, t, ""); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	e := entry("key", 1)
	f.Add(e.encode(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := recordLen(data)
		if err != nil {
			return
		}
		var e Entry
		if err := e.decode(data[:n]); err == nil && string(recordKey(data[:n])) != e.Key {
			t.Fatalf("two keys: %q, %q", recordKey(data[:n]), e.Key)
		}
	})
}
