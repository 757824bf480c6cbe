package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/history"
)

func pin(t *testing.T, s *shard.Shard, src clock.Source, id string, life time.Duration) shard.Pin {
	t.Helper()
	p, err := s.Pin(t.Context(), id, soon(time.Second).Time, src.Now().Milli()+life.Milliseconds(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// entriesOf reads all live entries of a view.
func entriesOf(t *testing.T, v *shard.View) map[string]string {
	t.Helper()
	got := map[string]string{}
	c := v.Entries(shard.Bounds{}, false)
	for c.Next(t.Context()) {
		e := *c.Entry()
		value, err := v.Load(t.Context(), &e)
		if err != nil {
			t.Fatal(err)
		}
		got[e.Key] = string(value)
	}
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	return got
}

// Several states are pinned while a shard is written, checkpointed, merged and
// collected; each reads the same to its end, through any instance, and what it
// kept is freed afterwards.
func TestPinnedStatesStay(t *testing.T) {
	for i := range history.Seeds() {
		seed := uint64(i + 1)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				with := pinnedStates(t, rand.New(rand.NewPCG(seed, 6)), true)
				without := pinnedStates(t, rand.New(rand.NewPCG(seed, 6)), false)
				if with > without+5 {
					t.Errorf("%d blobs and rows stay, and %d where nothing was pinned", with, without)
				}
			})
		})
	}
}

// pinnedStates returns what is stored at the end.
func pinnedStates(t *testing.T, rng *rand.Rand, pins bool) int {
	src := clock.NewSystem()
	m := memory.New(memory.Options{Clock: src})
	s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	model, pinned, states := map[string]string{}, map[string]shard.Pin{}, map[string]map[string]string{}
	for round := range 8 {
		scribble(t, rng, s, model, 30)
		if rng.IntN(2) == 0 && pins {
			id := fmt.Sprint("pin", round)
			pinned[id] = pin(t, s, src, id, time.Hour)
			states[id] = maps.Clone(model)
		}
		scribble(t, rng, s, model, 10)
		maintain(t, s, src)
		cold := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		for id, p := range pinned {
			v, err := cold.Pinned(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			sameContents(t, fmt.Sprint("round ", round, ", ", id), entriesOf(t, v), states[id])
			if n, err := v.Count(t.Context(), shard.Bounds{}, nil); err != nil || n != int64(len(states[id])) {
				t.Errorf("%s: count %d, %v, of %d", id, n, err, len(states[id]))
			}
		}
		sameContents(t, "the present", contents(t, m), model)
	}
	_ = src.Sleep(t.Context(), 2*time.Hour)
	for id, p := range pinned {
		if _, err := s.Pinned(t.Context(), p); !errors.Is(err, shard.ErrPinExpired) {
			t.Errorf("%s, after its expiry: %v", id, err)
		}
	}
	for range 8 {
		maintain(t, s, src)
	}
	blobs, rows := stored(t, m)
	return len(blobs) + rows
}

func TestPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		first := put(t, f.Shard, "k", "1")
		p := pin(t, f.Shard, f.src, "p", time.Minute)
		if r := put(t, f.other, "k", "2"); r.Version.Time <= p.Cut || first.Version.Time > p.Cut {
			t.Errorf("versions %s and %s around the cut %v", first.Version, r.Version, p.Cut)
		}
		if _, err := f.Shard.Pin(t.Context(), "late", p.Cut, 1<<60, nil); !errors.Is(err, shard.ErrPastCut) {
			t.Errorf("a cut that is past: %v", err)
		}
		if err := f.Repin(t.Context(), "p", f.src.Now().Milli()+time.Hour.Milliseconds()); err != nil {
			t.Error(err)
		}
		_ = f.src.Sleep(t.Context(), 10*time.Minute)
		maintain(t, f.Shard, f.src)
		maintain(t, f.Shard, f.src)
		p.Expiry += time.Hour.Milliseconds()
		v, err := f.other.Pinned(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok, err := v.Get(t.Context(), "k"); err != nil || !ok || string(e.Value) != "1" {
			t.Errorf("get %q, %v, %v", e.Value, ok, err)
		}
		if err := f.Unpin(t.Context(), "p"); err != nil {
			t.Error(err)
		}
		if err := f.Repin(t.Context(), "p", 1<<60); !errors.Is(err, shard.ErrPinExpired) {
			t.Errorf("repin after unpin: %v", err)
		}
		for i := range shard.MaxPins + 1 {
			_, err = f.Shard.Pin(t.Context(), fmt.Sprint(i), soon(time.Duration(i+2)*time.Second).Time, 1<<60, nil)
		}
		if !errors.Is(err, shard.ErrTooManyPins) {
			t.Errorf("one too many: %v", err)
		}
	})
}

// A shard that has sealed or given away slots is not their owner: a snapshot must
// not be taken of what it still has of them.
func TestPinOfSlotsThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		var one keyspace.SlotSet
		one.Add(keyspace.Slot("k"))
		if err := f.BeginOutgoing(t.Context(), shard.Outgoing{ID: "m", Target: "s-test-1", Slots: one}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Shard.Pin(t.Context(), "before", soon(time.Second).Time, 1<<60, all()); err != nil {
			t.Errorf("before the seal: %v", err)
		}
		if err := f.Seal(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Shard.Pin(t.Context(), "after", soon(time.Minute).Time, 1<<60, all()); !errors.Is(err, shard.ErrStaleRouting) {
			t.Errorf("after the seal: %v", err)
		}
	})
}

// The collector of an instance whose clock is ahead takes a pinned state away
// that another still believes in: that one is told so, and sees nothing else.
func TestPinnedStateThatIsGoneIsNotGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		for i := range 40 {
			put(t, f.Shard, fmt.Sprint("k", i), "some value that fills a leaf or two")
		}
		maintain(t, f.Shard, f.src)
		p := pin(t, f.Shard, f.src, "p", time.Second)
		for range 4 {
			for i := range 40 {
				put(t, f.Shard, fmt.Sprint("k", i), "another value that fills a leaf or two")
			}
			_ = f.src.Sleep(t.Context(), 10*time.Second)
			maintain(t, f.Shard, f.src)
		}
		p.Expiry += time.Hour.Milliseconds() // as an instance believes
		v, err := f.other.Pinned(t.Context(), p)
		if err == nil {
			c := v.Entries(shard.Bounds{}, false)
			for c.Next(t.Context()) {
			}
			err = c.Err()
		}
		if !errors.Is(err, shard.ErrPinExpired) {
			t.Errorf("got %v", err)
		}
	})
}

// A row is appended between the check and the pin: the pin is judged anew, and
// has it.
func TestPinIsExactUnderRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		f.faults.Add(onAppend(1, func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
			put(t, f.other, "k", "before")
			return perform(ctx)
		}))
		p := pin(t, f.Shard, f.src, "p", time.Hour)
		v, err := f.Shard.Pinned(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got := entriesOf(t, v); got["k"] != "before" {
			t.Errorf("pinned %v", got)
		}
	})
}
