package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/history"
)

// ahead is a version that lies so far after the present.
func ahead(src clock.Source, d time.Duration) clock.Version {
	at := src.Now()
	at.Wall += int64(d)
	return clock.Version{Time: clock.Next(0, at), Writer: 7}
}

// staged stages entries in key order.
func staged(t *testing.T, s *shard.Shard, v clock.Version, entries map[string]string) *shard.Staged {
	t.Helper()
	g := s.Stage(t.Context(), v)
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err := g.Add(&record.Entry{Key: key, Value: []byte(entries[key])}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := g.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGraftedEntriesAreThereForEverybody(t *testing.T) {
	for name, edit := range map[string]func(*shard.Config){"lease off": quick, "lease on": func(c *shard.Config) { quick(c); c.Leases = true }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, edit)
				get(t, f.other, "b") // both know the shard, without the graft
				get(t, f.Shard, "b")
				v := ahead(f.src, 0)
				g := f.Stage(t.Context(), v)
				soon := f.src.Now().Milli() + 60_000
				for _, e := range []record.Entry{
					{Key: "a", Value: []byte("1"), Type: "text/plain"},
					{Key: "b", Value: []byte(strings.Repeat("large ", 50))},
					{Key: "c", Value: []byte("3"), Expiry: soon},
				} {
					if err := g.Add(&e); err != nil {
						t.Fatal(err)
					}
				}
				r, err := g.Finish()
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := get(t, f.Shard, "a"); ok {
					t.Error("a staged entry is visible")
				}
				if err := f.Graft(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				for who, s := range map[string]*shard.Shard{"the loader": f.Shard, "another instance": f.other} {
					a, _ := get(t, s, "a")
					b, _ := get(t, s, "b")
					c, _ := get(t, s, "c")
					if string(a.Value) != "1" || a.Type != "text/plain" || a.Version != v || len(b.Value) != 300 || c.Expiry != soon {
						t.Errorf("%s reads %+v, %d bytes, %+v", who, a, len(b.Value), c)
					}
				}
				if w := put(t, f.other, "a", "2"); w.Version.Compare(v) <= 0 {
					t.Errorf("a write after the graft has version %v, not above %v", w.Version, v)
				}
				_ = f.src.Sleep(t.Context(), 2*time.Minute)
				if _, ok := get(t, f.Shard, "c"); ok {
					t.Error("a grafted entry outlives its expiry")
				}
			})
		})
	}
}

// What the shard held before is replaced, in the log's tail and in a checkpoint;
// what is newer than the graft refuses it.
func TestGraftAndOrdinaryWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		put(t, f.Shard, "k1", "old")
		maintain(t, f.Shard, f.src)
		put(t, f.Shard, "k2", "old")
		write(t, f.Shard, shard.Write{Op: shard.OpDelete, Key: "k1"})
		r := staged(t, f.Shard, ahead(f.src, time.Millisecond), map[string]string{"k1": "new", "k2": "new", "k3": "new"})
		if err := f.Graft(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"warm": "up", "k1": "new", "k2": "new", "k3": "new"}
		sameContents(t, "after the graft", contents(t, f.mem), want)

		late := staged(t, f.Shard, ahead(f.src, -time.Minute), map[string]string{"k2": "ancient", "k4": "ancient"})
		if err := f.Graft(t.Context(), late); !errors.Is(err, shard.ErrNotGraftable) {
			t.Errorf("a graft under newer entries: %v", err)
		}
		apart := staged(t, f.Shard, ahead(f.src, -time.Minute), map[string]string{"z": "1"})
		if err := f.Graft(t.Context(), apart); err != nil {
			t.Errorf("a graft beside newer entries: %v", err)
		}
		want["z"] = "1"
		sameContents(t, "at the end", contents(t, f.mem), want)
	})
}

// Between the manifest and the append somebody writes one of the keys, with an
// older version because its clock is behind: that entry is in the log above the
// checkpoint, and must not hide the graft.
func TestOlderWriteDuringAGraftDoesNotHideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		r := staged(t, f.Shard, ahead(f.src, time.Second), map[string]string{"k": "graft"})
		f.faults.Add(onAppend(1, func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
			put(t, f.other, "k", "older")
			return perform(ctx)
		}))
		if err := f.Graft(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if e, _ := get(t, f.other, "k"); string(e.Value) != "graft" {
			t.Errorf("the key holds %q", e.Value)
		}
	})
}

// A checkpoint of another instance between manifest and append: the graft is
// prepared anew on top of it.
func TestCheckpointDuringAGraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		r := staged(t, f.Shard, ahead(f.src, time.Second), map[string]string{"k": "graft"})
		f.faults.Add(onAppend(1, func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
			put(t, f.other, "other", "1")
			if _, err := f.other.Checkpoint(ctx, force()); err != nil {
				t.Error(err)
			}
			return perform(ctx)
		}))
		if err := f.Graft(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		sameContents(t, "after both", contents(t, f.mem), map[string]string{"warm": "up", "other": "1", "k": "graft"})
	})
}

// A graft of the lease's owner has landed, and its reply is on the way: the owner
// must not answer from memory what others can see has changed.
func TestLeasedReadWaitsForTheGraftUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, withLeases)
		get(t, f.Shard, "warm")
		r := staged(t, f.Shard, ahead(f.src, 0), map[string]string{"k": "graft"})
		f.faults.Add(slowReply(1, faulty.Apply))
		done := make(chan error)
		go func() { done <- f.Graft(t.Context(), r) }()
		_ = f.src.Sleep(t.Context(), 100*time.Millisecond)
		if e, _ := get(t, f.other, "k"); string(e.Value) != "graft" {
			t.Fatalf("the graft has not landed: %q", e.Value)
		}
		if e, _ := get(t, f.Shard, "k"); string(e.Value) != "graft" {
			t.Errorf("the owner answers %q", e.Value)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestGraftRefusals(t *testing.T) {
	slotOf := func(key string) (s keyspace.SlotSet) { s.Add(keyspace.Slot(key)); return s }
	cases := map[string]struct {
		prepare func(t *testing.T, f faultyShard)
		want    error
	}{
		"source of a migration": {func(t *testing.T, f faultyShard) {
			if err := f.BeginOutgoing(t.Context(), shard.Outgoing{ID: "m", Target: "s-test-1", Slots: slotOf("x")}); err != nil {
				t.Fatal(err)
			}
		}, shard.ErrNotGraftable},
		"target of a migration": {func(t *testing.T, f faultyShard) {
			if err := f.BeginIncoming(t.Context(), shard.Incoming{ID: "m", Source: "s-test-1", Slots: slotOf("x")}); err != nil {
				t.Fatal(err)
			}
		}, shard.ErrNotGraftable},
		"a slot moved away": {func(t *testing.T, f faultyShard) {
			err := f.BeginOutgoing(t.Context(), shard.Outgoing{ID: "m", Target: "s-test-1", Slots: slotOf("k")})
			if err = errors.Join(err, f.Seal(t.Context(), "m"), f.EndOutgoing(t.Context(), "m")); err != nil {
				t.Fatal(err)
			}
		}, shard.ErrStaleRouting},
		"closed": {func(t *testing.T, f faultyShard) {
			if err := f.SetClosed(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}, shard.ErrClosed},
		"staged too long ago": {func(t *testing.T, f faultyShard) { _ = f.src.Sleep(t.Context(), 6*time.Second) }, store.ErrUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, quick)
				r := staged(t, f.Shard, ahead(f.src, time.Minute), map[string]string{"k": "graft"})
				c.prepare(t, f)
				if err := f.Graft(t.Context(), r); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

// The migration begins between the check and the append.
func TestMigrationThatBeginsDuringAGraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		r := staged(t, f.Shard, ahead(f.src, time.Second), map[string]string{"k": "graft"})
		f.faults.Add(onAppend(1, func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
			if err := f.other.BeginOutgoing(ctx, shard.Outgoing{ID: "m", Target: "s-test-1", Slots: *all()}); err != nil {
				t.Error(err)
			}
			return perform(ctx)
		}))
		if err := f.Graft(t.Context(), r); !errors.Is(err, shard.ErrNotGraftable) {
			t.Errorf("got %v", err)
		}
		sameContents(t, "afterwards", contents(t, f.mem), map[string]string{"warm": "up"})
	})
}

func TestEmptinessCountsTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t, quick)
		isEmpty := func(want bool, when string) {
			t.Helper()
			if got, err := s.Empty(t.Context()); err != nil || got != want {
				t.Errorf("%s: empty is %v, %v", when, got, err)
			}
		}
		isEmpty(true, "a new shard")
		put(t, s, "k", "v")
		isEmpty(false, "a live key")
		write(t, s, shard.Write{Op: shard.OpDelete, Key: "k"})
		isEmpty(false, "a tombstone in the log")
		if _, err := s.Checkpoint(t.Context(), force()); err != nil {
			t.Fatal(err)
		}
		isEmpty(false, "a tombstone in the checkpoint")
	})
}

// A graft takes one manifest and one append beside its leaves.
func TestCostOfAGraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, nil)
		put(t, c.Shard, "warm", "up")
		r := staged(t, c.Shard, ahead(clock.NewSystem(), 0), map[string]string{"a": "1", "b": "2"})
		got := c.spend(func() {
			if err := c.Graft(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
		// One query brings the shard up to date; one leaf is that of the log's tail.
		if got.Ranges != 1 || got.Applies != 1 || got.BlobPuts != 2 || got.Calls() != 4 {
			t.Errorf("a graft costs %+v", got)
		}
	})
}

// A shard of two instances lives through writes, grafts of all ages, checkpoints
// and collections, and reads at every step like a map in which the greater
// version of a key stays.
func TestRandomGrafts(t *testing.T) {
	for i := range history.Seeds() {
		seed := uint64(i + 1)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomGrafts(t, rand.New(rand.NewPCG(seed, 4))) })
		})
	}
}

type versioned struct {
	value   string
	version clock.Version
}

func randomGrafts(t *testing.T, rng *rand.Rand) {
	src := clock.NewSystem()
	m := memory.New(memory.Options{Clock: src})
	leases := func(c *shard.Config) {
		quick(c)
		c.Leases = rng.IntN(2) == 0
		c.LeaseDuration, c.MaxClockSkew = 2*time.Second, 100*time.Millisecond
	}
	shards := []*shard.Shard{
		instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0"),
		instance(t, m.Table(), m.Blobs(), leases).Shard("s-test-0"),
	}
	if err := shards[0].Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	model := map[string]versioned{}
	for step := range 60 {
		s := shards[rng.IntN(2)]
		switch rng.IntN(6) {
		case 0, 1:
			key, value := fmt.Sprint("k", rng.IntN(20)), fmt.Sprint("put ", step)
			model[key] = versioned{value, put(t, s, key, value).Version}
		case 2:
			key := fmt.Sprint("k", rng.IntN(20))
			if r := write(t, s, shard.Write{Op: shard.OpDelete, Key: key}); r.Existed {
				model[key] = versioned{"", r.Version}
			}
		case 3, 4:
			graftSome(t, rng, s, src, model, step)
		default:
			maintain(t, s, src)
		}
		_ = src.Sleep(t.Context(), time.Duration(rng.IntN(300))*time.Millisecond)
		want := map[string]string{}
		for k, v := range model {
			if v.value != "" {
				want[k] = v.value
			}
		}
		sameContents(t, fmt.Sprint("step ", step), contentsOf(t, shards[rng.IntN(2)]), want)
	}
}

// graftSome grafts a few keys with a version about now, or merges them if that
// is refused.
func graftSome(t *testing.T, rng *rand.Rand, s *shard.Shard, src clock.Source, model map[string]versioned, step int) {
	t.Helper()
	v := ahead(src, time.Duration(rng.IntN(2000)-1000)*time.Millisecond)
	first, entries := rng.IntN(20), map[string]string{}
	for i := range 1 + rng.IntN(6) {
		entries[fmt.Sprint("k", first+i)] = fmt.Sprint("graft ", step)
	}
	err := s.Graft(t.Context(), staged(t, s, v, entries))
	if errors.Is(err, shard.ErrNotGraftable) {
		for key, value := range entries {
			write(t, s, shard.Write{Op: shard.OpMerge, Key: key, Value: []byte(value), Version: v})
		}
	} else if err != nil {
		t.Fatal(err)
	}
	for key, value := range entries {
		if v.Compare(model[key].version) > 0 {
			model[key] = versioned{value, v}
		}
	}
}
