package shard_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/memory"
)

// Blind puts of the same keys count again and again, until a merge finds out.
func TestCheckpointsCorrectTheEstimates(t *testing.T) {
	s := fresh(t, nil)
	const keys, rounds = 100, 10
	for range rounds {
		writes := make([]shard.Write, keys)
		for i := range writes {
			writes[i] = shard.Write{Op: shard.OpPut, Key: fmt.Sprintf("key-%02d", i), Value: make([]byte, 94), Blind: true}
		}
		if _, err := s.Write(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	if live, bytes, err := s.Estimates(t.Context()); live != keys*rounds || bytes != live*100 || err != nil {
		t.Fatalf("before: %d live of %d bytes, %v", live, bytes, err)
	}
	if _, err := s.Checkpoint(t.Context(), shard.CheckpointOptions{Force: true, Budget: time.Second}); err != nil {
		t.Fatal(err)
	}
	if live, bytes, err := s.Estimates(t.Context()); live != keys || bytes != keys*100 || err != nil {
		t.Errorf("after: %d live of %d bytes, %v; want %d of %d", live, bytes, err, keys, keys*100)
	}
}

// Where every write looks at what it replaces the estimates are exact, and
// checkpoints in whatever state of merging leave them so. With blind puts they
// are never too low.
func TestEstimatesAreNeverTooLow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := memory.New(memory.Options{})
		s := instance(t, m.Table(), m.Blobs(), func(c *shard.Config) { c.LeafTargetBytes = 64 }).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			rt.Fatal(err)
		}
		exact := rapid.Bool().Draw(rt, "exact")
		model := map[string]int64{}
		for i := range rapid.IntRange(1, 60).Draw(rt, "operations") {
			key := fmt.Sprint("k", rapid.IntRange(0, 15).Draw(rt, "key"))
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1:
				o := shard.CheckpointOptions{Force: rapid.Bool().Draw(rt, "force"), MergeBytes: 1}
				if _, err := s.Checkpoint(t.Context(), o); err != nil {
					rt.Fatal(err)
				}
			case 2, 3:
				write(t, s, shard.Write{Op: shard.OpDelete, Key: key})
				delete(model, key)
			default:
				value := make([]byte, i)
				write(t, s, shard.Write{Op: shard.OpPut, Key: key, Value: value, Blind: !exact && rapid.Bool().Draw(rt, "blind")})
				model[key] = int64(len(key) + i)
			}
			live, bytes, err := s.Estimates(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			want := int64(0)
			for _, n := range model {
				want += n
			}
			if live < int64(len(model)) || exact && (live != int64(len(model)) || bytes != want) {
				rt.Fatalf("exact %v: %d live of %d bytes, there are %d of %d", exact, live, bytes, len(model), want)
			}
		}
	})
}

// What is expired and dropped no longer counts.
func TestEstimatesForgetWhatExpired(t *testing.T) {
	s := fresh(t, func(c *shard.Config) { c.Tuning.TombstoneGracePeriod = 0 })
	soon := clock.NewSystem().Now().Milli() - 1
	for i := range 50 {
		w := shard.Write{Op: shard.OpPut, Key: fmt.Sprintf("key-%02d", i), Value: []byte("v")}
		if i%2 == 0 {
			w.Expiry = soon
		}
		write(t, s, w)
	}
	if _, err := s.Checkpoint(t.Context(), shard.CheckpointOptions{Force: true, Budget: time.Second}); err != nil {
		t.Fatal(err)
	}
	if live, _, err := s.Estimates(t.Context()); live != 25 || err != nil {
		t.Errorf("%d live, %v, want 25", live, err)
	}
}
