package shard_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
)

func mergeOf(key, value string, v clock.Version) shard.Write {
	return shard.Write{Op: shard.OpMerge, Key: key, Value: []byte(value), Version: v, Tombstone: value == ""}
}

// Entries that arrive by merge, in any order, any number of times, mixed with
// checkpoints: the greatest version stays, tombstones included.
func TestGreatestVersionStays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := fresh(t, func(c *shard.Config) { c.LeafTargetBytes = 64 })
		newest := map[string]shard.Write{}
		base := clock.At(time.Now().UnixMilli()) // tombstones are within their grace
		for range rapid.IntRange(1, 30).Draw(rt, "merges") {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
			v := clock.Version{Time: base + clock.HLC(rapid.IntRange(1, 20).Draw(rt, "time")), Writer: uint32(rapid.IntRange(1, 3).Draw(rt, "writer"))}
			value := rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "value")
			w := mergeOf(key, value, v)
			if old, ok := newest[key]; !ok || old.Version.Compare(v) < 0 {
				newest[key] = w
			}
			write(t, s, w)
			if rapid.Bool().Draw(rt, "checkpoint") {
				if _, err := s.Checkpoint(t.Context(), force()); err != nil {
					rt.Fatal(err)
				}
			}
		}
		for key, w := range newest {
			e, ok := get(t, s, key)
			if ok == w.Tombstone || ok && (e.Version != w.Version || string(e.Value) != string(w.Value)) {
				rt.Fatalf("key %s: %v, %+v, want %+v", key, ok, e, w)
			}
		}
	})
}

// The clock of this shard lags behind what is merged into it. A write that is
// acknowledged afterwards, or in the same append, must win.
func TestLocalWriteAfterAMergeFromTheFuture(t *testing.T) {
	s := fresh(t, nil)
	future := clock.Version{Time: clock.At(time.Now().Add(time.Hour).UnixMilli()), Writer: 9}
	res, err := s.Write(t.Context(), []shard.Write{
		mergeOf("k", "merged", future),
		{Op: shard.OpPut, Key: "k", Value: []byte("same append")},
	})
	if err != nil || res[1].Version.Compare(future) <= 0 || !res[1].Existed {
		t.Fatalf("%+v, %v", res, err)
	}
	later := put(t, s, "k", "local")
	if later.Version.Compare(res[1].Version) <= 0 {
		t.Errorf("version %s is not past %s", later.Version, res[1].Version)
	}
	write(t, s, mergeOf("k", "merged", future))
	if e, _ := get(t, s, "k"); string(e.Value) != "local" {
		t.Errorf("the acknowledged write lost: %q", e.Value)
	}
	write(t, s, shard.Write{Op: shard.OpDelete, Key: "k"})
	write(t, s, mergeOf("k", "merged", future))
	if e, ok := get(t, s, "k"); ok {
		t.Errorf("a deleted key is back: %q", e.Value)
	}
}
