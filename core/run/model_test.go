package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/record"
)

// TestViewsBehaveLikeAMap drives flushes, merge steps of random budgets, saves,
// reopens and crashes against a map.
func TestViewsBehaveLikeAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver(rt, t)
		rt.Repeat(map[string]func(*rapid.T){
			"flush": d.flush,
			"merge": d.merge,
			"crash": d.crash,
			"save":  d.save,
			"get":   d.get,
			"scan":  d.scan,
		})
		d.set = mustMerge(t, d.store, d.set, d.policy, Budget{Entries: 3})
		d.check()
		if n := d.set.Stats().Runs; n > 40 {
			rt.Fatalf("%d runs remain", n)
		}
	})
}

// driver is a view and the map that it should equal.
type driver struct {
	t      *testing.T
	store  *Store
	policy Policy
	set    *Set
	model  map[string]string
	at     int
}

func newDriver(rt *rapid.T, t *testing.T) *driver {
	s, _ := newStore(newBlobs(), Options{
		LeafTarget:   rapid.SampledFrom([]int{1, 300, 2000}).Draw(rt, "leaf target"),
		ParallelPuts: 1 + rapid.IntRange(0, 3).Draw(rt, "parallel"),
		TierUnit:     rapid.SampledFrom([]int64{50, 1 << 20}).Draw(rt, "tier unit"),
	})
	return &driver{
		t: t, store: s, set: s.Empty(), model: map[string]string{},
		policy: Policy{
			MergeRatio:     rapid.SampledFrom([]float64{0.01, 0.5, 10}).Draw(rt, "ratio"),
			MaxRunsPerTier: rapid.IntRange(2, 4).Draw(rt, "runs per tier"),
		},
	}
}

func drawKey(rt *rapid.T) string {
	return fmt.Sprintf("k%03d", rapid.IntRange(0, 150).Draw(rt, "key"))
}

func (d *driver) flush(rt *rapid.T) {
	d.at++
	changes := map[string]record.Entry{}
	for range rapid.IntRange(0, 25).Draw(rt, "changes") {
		key := drawKey(rt)
		if rapid.IntRange(0, 3).Draw(rt, "form") == 0 {
			changes[key] = dead(key, d.at)
			delete(d.model, key)
		} else {
			changes[key] = put(key, fmt.Sprintf("%d%050d", d.at, d.at), d.at)
			d.model[key] = string(changes[key].Value)
		}
	}
	entries := slices.SortedFunc(maps.Values(changes), func(a, b record.Entry) int { return cmp.Compare(a.Key, b.Key) })
	d.set = mustFlush(d.t, d.store, d.set, entries)
	if d.set.Seq() != uint64(d.at) {
		rt.Fatalf("view covers %d, want %d", d.set.Seq(), d.at)
	}
}

func (d *driver) step(rt *rapid.T) *Set {
	budget := Budget{
		Entries: rapid.SampledFrom([]int{0, 1, 2, 10}).Draw(rt, "entries"),
		Bytes:   rapid.SampledFrom([]int64{0, 1, 500}).Draw(rt, "bytes"),
	}
	next, _, err := d.store.MergeStep(d.t.Context(), d.set, d.policy, budget)
	if err != nil {
		rt.Fatal(err)
	}
	return next
}

func (d *driver) merge(rt *rapid.T) {
	d.set = d.step(rt)
	d.check()
}

// crash loses the result of a step, and sometimes its blobs.
func (d *driver) crash(rt *rapid.T) {
	lost := d.step(rt)
	if rapid.Bool().Draw(rt, "discard") {
		if err := d.store.Discard(d.t.Context(), d.set, lost); err != nil {
			rt.Fatal(err)
		}
	}
	d.check()
}

// save writes the view and goes on with what a cold instance reads.
func (d *driver) save(rt *rapid.T) {
	saved := mustSave(d.t, d.store, d.set)
	if rapid.Bool().Draw(rt, "index") {
		unnamed := *d.set
		n, err := d.store.rewriteIndex(d.t.Context(), &unnamed)
		if err != nil {
			rt.Fatal(err)
		}
		saved = mustSave(d.t, d.store, n)
	}
	d.store = fresh(d.store)
	d.set = mustOpen(d.t, d.store, saved.Name())
	d.check()
}

// check compares the view with the map, key by key, absent ones included.
func (d *driver) check() {
	d.t.Helper()
	check(d.t, d.set, d.model)
	for i := range 151 {
		key := fmt.Sprintf("k%03d", i)
		if e, ok, err := d.set.Get(d.t.Context(), key); err != nil || ok && !e.Tombstone && d.model[key] != string(e.Value) {
			d.t.Fatalf("get %q: %+v, %v, want %q", key, e, err, d.model[key])
		}
	}
}

func (d *driver) get(rt *rapid.T) {
	key := drawKey(rt)
	e, ok, err := d.set.Get(d.t.Context(), key)
	want, present := d.model[key]
	if err != nil || (ok && !e.Tombstone) != present || string(e.Value) != want {
		rt.Fatalf("get %q: %+v, %v, %v, want %q, %v", key, e, ok, err, want, present)
	}
}

func (d *driver) scan(rt *rapid.T) {
	b := Bounds{From: drawKey(rt), To: drawKey(rt)}
	if rapid.Bool().Draw(rt, "open start") {
		b.From = ""
	}
	if rapid.Bool().Draw(rt, "open end") {
		b.To = ""
	}
	reverse := rapid.Bool().Draw(rt, "reverse")
	var want []string
	for key := range d.model {
		if key >= b.From && (b.To == "" || key < b.To) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	if reverse {
		slices.Reverse(want)
	}
	var got []string
	for _, e := range contents(d.t, d.set.Iter(b, reverse)) {
		if !e.Tombstone {
			got = append(got, e.Key)
		}
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("scan %+v reverse=%v yields %v, want %v", b, reverse, got, want)
	}
}
