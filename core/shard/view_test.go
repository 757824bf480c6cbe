package shard_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// awkward are keys that have broken stores.
var awkward = []string{
	"/", "//", "..", "a", "a/", "a/b", "a\x00", "a\x00b", "%", "%2F", "?", "#", " ", "é", "z", "Z",
	"😀", "😀😀", "\U0010ffff", "a\u007f", "~", "key", "key1", "key10", "key2",
}

// Whatever was written, checkpointed and merged, in whatever order: a view shows
// exactly the live entries in bounds, in order, in both directions.
func TestViewAgreesWithAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := memory.New(memory.Options{})
		cfg := shard.DefaultConfig()
		cfg.Table, cfg.Blobs, cfg.Clock, cfg.Instance = m.Table(), m.Blobs(), clock.NewSystem(), 7
		cfg.LeafTargetBytes = 64
		pool, err := shard.NewPool(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		s, model := pool.Shard("s-test-0"), map[string]string{}
		if err := s.Create(t.Context()); err != nil {
			rt.Fatal(err)
		}
		keys := rapid.SampledFrom(awkward)
		for range rapid.IntRange(0, 40).Draw(rt, "operations") {
			switch key := keys.Draw(rt, "key"); rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				o := shard.CheckpointOptions{Force: true, MergeBytes: 1}
				if _, err := s.Checkpoint(t.Context(), o); err != nil {
					rt.Fatal(err)
				}
			case 1, 2, 3:
				if r := write(t, s, shard.Write{Op: shard.OpDelete, Key: key}); r.Existed != hasKey(model, key) {
					rt.Fatalf("delete of %q says existed %v", key, r.Existed)
				}
				delete(model, key)
			default:
				value := fmt.Sprint(len(model))
				if r := put(t, s, key, value); r.Existed != hasKey(model, key) {
					rt.Fatalf("put of %q says existed %v", key, r.Existed)
				}
				model[key] = value
			}
		}
		bounds := shard.Bounds{From: "", To: ""}
		if rapid.Bool().Draw(rt, "from") {
			bounds.From = keys.Draw(rt, "from key")
		}
		if rapid.Bool().Draw(rt, "to") {
			bounds.To = keys.Draw(rt, "to key")
		}
		checkView(t, rt, s, model, bounds, rapid.Bool().Draw(rt, "reverse"))
	})
}

func hasKey(m map[string]string, key string) bool { _, ok := m[key]; return ok }

func checkView(t *testing.T, rt *rapid.T, s *shard.Shard, model map[string]string, b shard.Bounds, reverse bool) {
	want := slices.Sorted(maps.Keys(model))
	want = slices.DeleteFunc(want, func(k string) bool { return !b.Contains(k) })
	v, err := s.View(t.Context(), shard.ReadOptions{})
	if err != nil {
		rt.Fatal(err)
	}
	n, err := v.Count(t.Context(), b, func(slot uint16) bool { return slot < keyspace.Slots })
	if err != nil || n != int64(len(want)) {
		rt.Fatalf("count %d of %d, %v", n, len(want), err)
	}
	if reverse {
		slices.Reverse(want)
	}
	var got []string
	c := v.Entries(b, reverse)
	for c.Next(t.Context()) {
		got = append(got, c.Entry().Key)
		if string(c.Entry().Value) != model[c.Entry().Key] {
			rt.Fatalf("key %q holds %q", c.Entry().Key, c.Entry().Value)
		}
	}
	if c.Err() != nil || !slices.Equal(got, want) {
		rt.Fatalf("bounds %q, reverse %v: got %q, want %q, %v", b, reverse, got, want, c.Err())
	}
	for _, key := range awkward {
		if e, ok, err := v.Get(t.Context(), key); err != nil || ok != hasKey(model, key) || string(e.Value) != model[key] {
			rt.Fatalf("get %q: %v, %q, %v", key, ok, e.Value, err)
		}
	}
}

// A view does not change, whatever is written after it.
func TestViewIsFrozen(t *testing.T) {
	s := fresh(t, nil)
	put(t, s, "a", "1")
	v, err := s.View(t.Context(), shard.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "2")
	put(t, s, "b", "2")
	if _, err := s.Checkpoint(t.Context(), force()); err != nil {
		t.Fatal(err)
	}
	if e, ok, _ := v.Get(t.Context(), "a"); !ok || string(e.Value) != "1" {
		t.Errorf("the view shows %q", e.Value)
	}
	if n, err := v.Count(t.Context(), shard.Bounds{}, nil); n != 1 || err != nil {
		t.Errorf("the view counts %d, %v", n, err)
	}
}

func TestConditionsOfWrites(t *testing.T) {
	s := fresh(t, nil)
	absent := shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("1"), IfAbsent: true}
	first := write(t, s, absent)
	if first.Status != shard.StatusApplied {
		t.Fatalf("if absent on an absent key: %+v", first)
	}
	if r := write(t, s, absent); r.Status != shard.StatusMismatch || r.Version != first.Version {
		t.Errorf("if absent on a present key: %+v", r)
	}
	second := write(t, s, shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("2"), IfVersion: first.Version})
	if second.Status != shard.StatusApplied || !second.Existed {
		t.Errorf("matching version: %+v", second)
	}
	if r := write(t, s, shard.Write{Op: shard.OpDelete, Key: "k", IfVersion: first.Version}); r.Status != shard.StatusMismatch || r.Version != second.Version {
		t.Errorf("delete of an older version: %+v", r)
	}
	if r := write(t, s, shard.Write{Op: shard.OpGetOrSet, Key: "k", Value: []byte("3")}); r.Status != shard.StatusExisting || string(r.Entry.Value) != "2" {
		t.Errorf("get-or-set of a present key: %+v", r)
	}
	if r := write(t, s, shard.Write{Op: shard.OpPut, Key: "other", IfVersion: first.Version}); r.Status != shard.StatusMismatch || !r.Version.IsZero() {
		t.Errorf("version of an absent key: %+v", r)
	}
	res, err := s.Write(t.Context(), []shard.Write{
		{Op: shard.OpPut, Key: "m", Value: []byte("1")},
		{Op: shard.OpPut, Key: "m", Value: []byte("2"), IfAbsent: true},
		{Op: shard.OpDelete, Key: "m"},
		{Op: shard.OpDelete, Key: "m"},
		{Op: shard.OpPut, Key: "m", Value: []byte{}},
	})
	if err != nil || res[1].Status != shard.StatusMismatch || !res[2].Existed || res[3].Existed || res[4].Existed {
		t.Errorf("writes of one key in one call: %+v, %v", res, err)
	}
	if e, ok := get(t, s, "m"); !ok || len(e.Value) != 0 {
		t.Errorf("an empty value reads as %v, %q", ok, e.Value)
	}
}

// A request too long for one append whose later part fails says which part is
// durable.
func TestPartOfALongRequest(t *testing.T) {
	f := newFaulty(t, func(c *shard.Config) { c.GroupMaxRecords = 10; c.CommitTimeout = time.Second })
	f.faults.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Skip: 2, Do: faulty.Fail(store.ErrUnavailable)})
	writes := make([]shard.Write, 35)
	for i := range writes {
		writes[i] = shard.Write{Op: shard.OpPut, Key: fmt.Sprint("k", i), Value: []byte("v")}
	}
	res, err := f.Write(t.Context(), writes)
	if !errors.Is(err, store.ErrUnavailable) || len(res) != len(writes) {
		t.Fatalf("%d results, %v", len(res), err)
	}
	for i, r := range res {
		_, ok := get(t, f.other, writes[i].Key)
		if durable := r.Status == shard.StatusApplied; durable != ok || ok != (i < 20) {
			t.Errorf("write %d: status %d, there %v", i, r.Status, ok)
		}
	}
}
