package bulk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
	"pgregory.net/rapid"
)

func byHalf(slot uint16) keyspace.ShardID { return keyspace.ShardID(slot / (keyspace.Slots / 4)) }

// collect returns the entries of an iterator with what they point to copied.
func collect(t testing.TB, it run.Iterator) (out []record.Entry) {
	t.Helper()
	for it.Next(t.Context()) {
		e := *it.Entry()
		e.Key, e.Value = strings.Clone(e.Key), slices.Clone(e.Value)
		out = append(out, e)
	}
	return out
}

func same(a, b record.Entry) bool {
	return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Type == b.Type && a.Expiry == b.Expiry
}

func TestPartsHoldEveryEntryOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := NewBuffer(1 << 20)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") { // a buffer is used again
			b.Reset()
			keys := rapid.SliceOfNDistinct(rapid.StringN(1, 30, 60), 0, 200, rapid.ID[string]).Draw(rt, "keys")
			if rapid.Bool().Draw(rt, "sorted") {
				slices.Sort(keys)
			}
			want := map[string]record.Entry{}
			var bytes int64
			for i, k := range keys {
				e := record.Entry{
					Key: k, Value: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, "value"),
					Type: rapid.SampledFrom([]string{"", "a/b", "c/d"}).Draw(rt, "type"), Expiry: rapid.Int64().Draw(rt, "expiry"),
				}
				if rapid.IntRange(0, 50).Draw(rt, "large") == 0 {
					e.Value = make([]byte, 2<<20)
				}
				want[k] = e
				bytes += e.Size()
				b.Add(&e, int64(i))
			}
			if b.Len() != len(keys) || b.Bytes() != bytes || len(keys) > 0 && (b.First() != keys[0] || b.Last() != keys[len(keys)-1]) {
				rt.Fatalf("%d entries of %d bytes", b.Len(), b.Bytes())
			}
			bytes = 0
			for _, p := range b.Parts(byHalf) {
				if err := p.Sort(); err != nil {
					rt.Fatal(err)
				}
				bytes += p.Bytes()
				got := collect(t, p.Iter())
				if len(got) != p.Len() || !slices.IsSortedFunc(got, func(x, y record.Entry) int { return strings.Compare(x.Key, y.Key) }) {
					rt.Fatalf("part of %d entries is not in order", p.Len())
				}
				for _, e := range got {
					w, ok := want[e.Key]
					if slot := keyspace.Slot(e.Key); !ok || !same(e, w) || byHalf(slot) != p.Shard || !p.Slots.Has(slot) {
						rt.Fatalf("%q is wrong, twice there, or in the wrong part", e.Key)
					}
					delete(want, e.Key)
				}
			}
			if len(want) > 0 || bytes != b.Bytes() {
				rt.Fatalf("%d entries are missing", len(want))
			}
		}
	})
}

func TestDividedPartsKeepTheirOrder(t *testing.T) {
	b := NewBuffer(1 << 20)
	for i := range 500 {
		b.Add(&record.Entry{Key: fmt.Sprintf("%03d", (i*37)%500)}, int64(i))
	}
	whole := b.Parts(func(uint16) keyspace.ShardID { return 0 })
	if len(whole) != 1 || whole[0].Sort() != nil {
		t.Fatal(len(whole))
	}
	n := 0
	for _, p := range whole[0].Divide(byHalf) {
		got := collect(t, p.Iter())
		n += len(got)
		for i := 1; i < len(got); i++ {
			if got[i-1].Key >= got[i].Key {
				t.Fatalf("%q before %q", got[i-1].Key, got[i].Key)
			}
		}
	}
	if n != 500 || len(collect(t, whole[0].Iter())) != 500 {
		t.Errorf("%d entries", n)
	}
}

func TestSortFindsTheFirstRepetition(t *testing.T) {
	for name, keys := range map[string][]string{
		"of several":            {"prefix-c", "prefix-a", "prefix-b", "prefix-a", "prefix-b", "prefix-c"},
		"beyond the prefix":     {"x0123456789a", "x0123456789b", "w", "x0123456789b", "x0123456789a"},
		"in order but for that": {"a", "b", "c", "c", "d"},
		"of all alike":          {"y", "x", "b", "y", "y", "x"},
	} {
		b := NewBuffer(1 << 20)
		for i, k := range keys {
			b.Add(&record.Entry{Key: k}, int64(100+i))
		}
		parts := b.Parts(func(uint16) keyspace.ShardID { return 7 })
		var twice *DuplicateError
		if err := parts[0].Sort(); !errors.As(err, &twice) || twice.Index != 103 || twice.Key != keys[3] {
			t.Errorf("%s: %+v", name, twice)
		}
	}
	b := NewBuffer(1 << 20)
	for i, k := range []string{"aaaaaaaa\x00", "aaaaaaaa", "aaaaaaa", "aaaaaaa\x00"} {
		b.Add(&record.Entry{Key: k}, int64(i))
	}
	parts := b.Parts(func(uint16) keyspace.ShardID { return 7 })
	if err := parts[0].Sort(); err != nil {
		t.Errorf("keys that differ by a zero byte: %v", err)
	}
}

func TestBufferIsBounded(t *testing.T) {
	const limit = 4 << 20
	b := NewBuffer(limit)
	if !b.Fits(1, 64<<20) {
		t.Error("an empty buffer takes no large entry")
	}
	value := make([]byte, 100)
	for range 3 {
		n := 0
		for key := ""; b.Fits(10, len(value)); n++ {
			key = fmt.Sprintf("%010d", n)
			b.Add(&record.Entry{Key: key, Value: value}, int64(n))
		}
		memory := int64(cap(b.refs)+cap(b.other)) * 16
		for _, block := range append(slices.Clone(b.blocks), b.spare...) {
			memory += int64(cap(block))
		}
		if n < limit/200 || memory > limit+limit/2 {
			t.Errorf("%d entries in %d bytes", n, memory)
		}
		b.Parts(byHalf)
		b.Reset()
	}
	for i := range maxTypes {
		b.Add(&record.Entry{Key: fmt.Sprint(i), Type: fmt.Sprint("t", i)}, 0)
	}
	if b.Fits(1, 1) {
		t.Error("media types are not bounded")
	}
}

func TestABufferAllocatesNothingForAnEntry(t *testing.T) {
	b := NewBuffer(8 << 20)
	e := record.Entry{Key: "some key", Value: make([]byte, 100)}
	fill := func() {
		b.Reset()
		for i := range 10_000 {
			b.Add(&e, int64(i))
		}
		b.Parts(byHalf)
	}
	fill()
	if n := testing.AllocsPerRun(3, fill); n > 50 {
		t.Errorf("%v allocations for 10,000 entries", n)
	}
}

func entries(keys ...string) run.Iterator {
	out := make([]record.Entry, len(keys))
	for i, k := range keys {
		out[i].Key = k
	}
	return run.Slice(out)
}

func TestMergeIsTheSortedUnion(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var inputs []run.Iterator
		var want []string
		next := r.Perm(400)
		for range r.IntN(20) {
			var keys []string
			for range r.IntN(20) {
				keys = append(keys, fmt.Sprintf("%04d", next[0]))
				next = next[1:]
			}
			slices.Sort(keys)
			want = append(want, keys...)
			inputs = append(inputs, entries(keys...))
		}
		slices.Sort(want)
		it := Merge(inputs...)
		var got []string
		for it.Next(t.Context()) {
			got = append(got, it.Entry().Key)
		}
		if it.Err() != nil || !slices.Equal(got, want) {
			t.Fatalf("%v (%v), want %v", got, it.Err(), want)
		}
	}
}

func TestMergeFindsDuplicates(t *testing.T) {
	for _, inputs := range [][]run.Iterator{
		{entries("a", "c"), entries("b", "c")}, {entries("c"), entries("c")}, {entries("a", "b", "c", "c")},
	} {
		it := Merge(inputs...)
		for it.Next(t.Context()) {
			if k := it.Entry().Key; k > "c" {
				t.Errorf("went on to %q", k)
			}
		}
		var twice *DuplicateError
		if !errors.As(it.Err(), &twice) || twice.Key != "c" || twice.Index != -1 || it.Next(t.Context()) {
			t.Errorf("error %v", it.Err())
		}
	}
}

func TestDigestTellsContentsApart(t *testing.T) {
	base := []record.Entry{{Key: "ab", Value: []byte("c")}, {Key: "d", Value: make([]byte, 5000), Type: "x"}}
	sum := func(change func(e []record.Entry) []record.Entry) string {
		d := NewDigest()
		for _, e := range change(slices.Clone(base)) {
			d.Add(&e)
		}
		return d.String()
	}
	plain := sum(func(e []record.Entry) []record.Entry { return e })
	if len(plain) != DigestLength {
		t.Errorf("%d characters", len(plain))
	}
	seen := map[string]string{plain: "nothing"}
	for name, change := range map[string]func(e []record.Entry) []record.Entry{
		"a byte moved":    func(e []record.Entry) []record.Entry { e[0].Key, e[0].Value = "a", []byte("bc"); return e },
		"a type moved":    func(e []record.Entry) []record.Entry { e[0].Type, e[0].Value = "c", nil; return e },
		"less":            func(e []record.Entry) []record.Entry { return e[:1] },
		"a large value":   func(e []record.Entry) []record.Entry { e[1].Value = append(make([]byte, 4999), 1); return e },
		"an expiry":       func(e []record.Entry) []record.Entry { e[0].Expiry = 5; return e },
		"another's order": func(e []record.Entry) []record.Entry { e[0], e[1] = e[1], e[0]; return e },
	} {
		s := sum(change)
		if was, ok := seen[s]; ok {
			t.Errorf("%s is the same as %s", name, was)
		}
		seen[s] = name
	}
	if a, b := sum(func(e []record.Entry) []record.Entry { e[0].Expiry = 5; return e }), sum(func(e []record.Entry) []record.Entry { e[0].Expiry = 6; return e }); a != b {
		t.Error("the time of an expiry counts")
	}
}
