package tree

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/providers/memory"
	"pgregory.net/rapid"
)

// model is what a tree must behave like: a sorted map.
type model struct {
	t       *rapid.T
	tb      testing.TB
	handles []*instance
	keys    map[string]string
	version map[string]clock.Version
	splits  int
}

// keyGen draws from few enough keys that operations meet.
var keyGen = rapid.OneOf(
	rapid.StringMatching(`[ab/%]{1,3}`),
	rapid.SampledFrom([]string{"\x00", "a\x00", "é", "😀", "\U0010FFFF", strings.Repeat("k", 1024)}),
)

var boundGen = rapid.OneOf(rapid.Just(""), keyGen)

// tree picks an instance: each has its own idea of the map.
func (m *model) tree() *Tree {
	in := rapid.SampledFrom(m.handles).Draw(m.t, "instance")
	h, err := in.OpenOrCreate(m.tb.Context(), "t")
	m.ok(err)
	return h
}

func (m *model) ok(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) set(key, value string, v clock.Version) {
	if old := m.version[key]; v.Compare(old) <= 0 {
		m.t.Fatalf("version of %q went from %v to %v", key, old, v)
	}
	m.keys[key], m.version[key] = value, v
}

func (m *model) put(*rapid.T) {
	key, value := keyGen.Draw(m.t, "key"), rapid.StringN(0, 20, -1).Draw(m.t, "value")
	o := PutOptions{
		IfAbsent: rapid.Bool().Draw(m.t, "absent"),
		GetOrSet: rapid.Bool().Draw(m.t, "getOrSet"),
	}
	o.IfAbsent = o.IfAbsent && !o.GetOrSet
	old, exists := m.keys[key]
	r, err := m.tree().Put(m.tb.Context(), key, []byte(value), o)
	var mismatch *MismatchError
	switch {
	case o.IfAbsent && exists:
		if !errors.As(err, &mismatch) || mismatch.Current != m.version[key] {
			m.t.Fatalf("put %q if absent: %v", key, err)
		}
	case o.GetOrSet && exists:
		m.ok(err)
		if r.Existing == nil || string(r.Existing.Value) != old {
			m.t.Fatalf("get or set %q: %+v", key, r)
		}
	default:
		m.ok(err)
		if r.Created == exists {
			m.t.Fatalf("put %q: created %v", key, r.Created)
		}
		m.set(key, value, r.Version)
	}
}

func (m *model) delete(*rapid.T) {
	key := keyGen.Draw(m.t, "key")
	_, exists := m.keys[key]
	existed, err := m.tree().Delete(m.tb.Context(), key, clock.Version{})
	m.ok(err)
	if existed != exists {
		m.t.Fatalf("delete %q: existed %v", key, existed)
	}
	delete(m.keys, key)
}

func (m *model) get(*rapid.T) {
	key := keyGen.Draw(m.t, "key")
	want, exists := m.keys[key]
	it, ok, err := m.tree().Get(m.tb.Context(), key, ReadOptions{})
	m.ok(err)
	if ok != exists || ok && (string(it.Value) != want || it.Version != m.version[key]) {
		m.t.Fatalf("get %q: %q %v, want %q %v", key, it.Value, ok, want, exists)
	}
}

func (m *model) batch(*rapid.T) {
	var ops []BatchOp
	for range rapid.IntRange(1, 12).Draw(m.t, "size") {
		key := keyGen.Draw(m.t, "key")
		if rapid.Bool().Draw(m.t, "delete") {
			ops = append(ops, BatchOp{Key: key, Delete: true})
			continue
		}
		ops = append(ops, BatchOp{Key: key, Value: []byte(rapid.StringN(0, 9, -1).Draw(m.t, "value")), IfAbsent: rapid.Bool().Draw(m.t, "absent")})
	}
	results, err := m.tree().Batch(m.tb.Context(), ops)
	m.ok(err)
	for i, op := range ops {
		_, exists := m.keys[op.Key]
		switch r := results[i]; {
		case op.Delete:
			if r.Existed != exists {
				m.t.Fatalf("batch[%d] %+v: %+v", i, op, r)
			}
			delete(m.keys, op.Key)
		case op.IfAbsent && exists:
			if r.Err == nil {
				m.t.Fatalf("batch[%d] %+v: %+v", i, op, r)
			}
		default:
			m.ok(r.Err)
			m.set(op.Key, string(op.Value), r.Version)
		}
	}
}

// within returns the model's keys of a range in order.
func (m *model) within(b Bounds, reverse bool) []string {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		if k >= b.From && (b.To == "" || k < b.To) {
			keys = append(keys, k)
		}
	}
	if reverse {
		slices.Reverse(keys)
	}
	return keys
}

func (m *model) bounds() Bounds {
	if rapid.Bool().Draw(m.t, "prefix") {
		return Prefix(boundGen.Draw(m.t, "prefix"))
	}
	return Bounds{From: boundGen.Draw(m.t, "from"), To: boundGen.Draw(m.t, "to")}
}

func (m *model) scan(*rapid.T) {
	q := ScanQuery{Bounds: m.bounds(), Reverse: rapid.Bool().Draw(m.t, "reverse"), Limit: rapid.IntRange(1, 9).Draw(m.t, "limit")}
	want := m.within(q.Bounds, q.Reverse)
	var got []string
	for {
		p, err := m.tree().Scan(m.tb.Context(), q) // each page from another instance
		m.ok(err)
		for _, it := range p.Items {
			if string(it.Value) != m.keys[it.Key] {
				m.t.Fatalf("scan: %q has %q", it.Key, it.Value)
			}
			got = append(got, it.Key)
		}
		if q.Token = p.NextToken; q.Token == "" {
			break
		}
		if len(p.Items) != q.Limit {
			m.t.Fatalf("a page of %d entries continues", len(p.Items))
		}
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("scan %+v: %q, want %q", q, got, want)
	}
}

func (m *model) count(*rapid.T) {
	b := m.bounds()
	c, err := m.tree().Count(m.tb.Context(), b, ReadOptions{})
	m.ok(err)
	if want := len(m.within(b, false)); c.Total != int64(want) {
		m.t.Fatalf("count %+v: %d, want %d", b, c.Total, want)
	}
}

func (m *model) getMany(*rapid.T) {
	keys := rapid.SliceOfN(keyGen, 0, 8).Draw(m.t, "keys")
	items, err := m.tree().GetMany(m.tb.Context(), keys, ReadOptions{})
	m.ok(err)
	want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { _, ok := m.keys[k]; return !ok })
	if got := keysOf(items); !slices.Equal(got, want) {
		m.t.Fatalf("get many %q: %q", keys, got)
	}
}

func (m *model) deleteRange(*rapid.T) {
	b := m.bounds()
	want := m.within(b, false)
	n, err := m.tree().DeleteRange(m.tb.Context(), b)
	m.ok(err)
	if n != int64(len(want)) {
		m.t.Fatalf("delete range %+v: %d, want %d", b, n, len(want))
	}
	for _, k := range want {
		delete(m.keys, k)
	}
}

func (m *model) split(*rapid.T) {
	if m.splits >= 4 {
		return
	}
	from := keyspace.ShardID(rapid.IntRange(0, 2+m.splits).Draw(m.t, "shard"))
	before := maps.Clone(m.version)
	m.handles[0].split(m.tb, "t", from, nil)
	m.splits++
	// The stand-in for a split writes what it moves anew, with new versions.
	h := m.handles[0].writer(m.tb, "t")
	for k := range m.keys {
		it, ok, err := h.Get(m.tb.Context(), k, ReadOptions{})
		m.ok(err)
		if !ok || it.Version.Compare(before[k]) < 0 {
			m.t.Fatalf("%q after the split: %v %v", k, it.Version, ok)
		}
		m.version[k] = it.Version
	}
}

func (m *model) maintain(*rapid.T) {
	in := rapid.SampledFrom(m.handles).Draw(m.t, "instance")
	rep, err := in.Checkpoint(m.tb.Context(), 0)
	m.ok(err)
	if rep.Failed > 0 {
		m.t.Fatalf("%+v", rep)
	}
	rep, err = in.Collect(m.tb.Context(), 0)
	m.ok(err)
	if rep.Failed > 0 {
		m.t.Fatalf("%+v", rep)
	}
}

func (m *model) deleteAndRecover(*rapid.T) {
	a, b := rapid.SampledFrom(m.handles).Draw(m.t, "a"), rapid.SampledFrom(m.handles).Draw(m.t, "b")
	m.ok(a.Delete(m.tb.Context(), "t"))
	if _, err := b.OpenOrCreate(m.tb.Context(), "t"); err == nil {
		h, _ := b.OpenOrCreate(m.tb.Context(), "t")
		if _, _, err := h.Get(m.tb.Context(), "a", ReadOptions{}); !errors.Is(err, ErrTreeDeleted) {
			m.t.Fatalf("a deleted tree answers: %v", err)
		}
	}
	m.ok(b.Recover(m.tb.Context(), "t"))
}

// In virtual time, so that waiting for the leases of one instance costs nothing.
func TestTreeBehavesLikeASortedMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The wrapping hides Deadline, which has no meaning in virtual time.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { checkModel(t, rt) })
	})
}

func checkModel(t *testing.T, rt *rapid.T) {
	store := memory.New(memory.Options{})
	m := &model{t: rt, tb: t, keys: map[string]string{}, version: map[string]clock.Version{}}
	for i := range 3 {
		m.handles = append(m.handles, open(t, store.Table(), store.Blobs(), func(o *options.Options) {
			o.DefaultShardCount = 3
			o.CheckpointTailRows = 4
			o.LeafTargetBytes = 4 << 10
			o.Leases = i == 2
		}))
	}
	m.handles[0].writer(t, "t")
	rt.Repeat(map[string]func(*rapid.T){
		"put": m.put, "put again": m.put, "delete": m.delete, "get": m.get, "batch": m.batch, "scan": m.scan,
		"count": m.count, "get many": m.getMany, "delete range": m.deleteRange, "split": m.split,
		"maintain": m.maintain, "delete and recover": m.deleteAndRecover,
	})
}
