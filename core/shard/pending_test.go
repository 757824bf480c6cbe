package shard_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/tests/history"
)

func soon(d time.Duration) clock.Version {
	return clock.Version{Time: clock.At(time.Now().Add(d).UnixMilli()), Writer: 5}
}

// Whoever reads a key of an undecided transaction is told of it, with both
// answers at hand.
func TestReadOfAPreparedKeyIsPending(t *testing.T) {
	s := fresh(t, nil)
	put(t, s, "a", "old")
	write(t, s, prepareOf(txA, "a", "new"))
	write(t, s, prepareOf(txA, "b", "new"))
	write(t, s, prepareOf(txA, "gone", ""))
	for key, want := range map[string][2]string{"a": {"old", "new"}, "b": {"", "new"}, "gone": {"", ""}} {
		_, _, err := s.Get(t.Context(), key, shard.ReadOptions{})
		var p *shard.PendingError
		if !errors.As(err, &p) || len(p.Prepared) != 1 || p.Prepared[0].Tx != txA {
			t.Fatalf("get %q: %v", key, err)
		}
		e, ok := p.Settle(nil)
		if string(e.Value) != want[0] && ok || ok != (want[0] != "") {
			t.Errorf("%q, if it is not committed: %q, %v", key, e.Value, ok)
		}
		v := soon(time.Hour)
		e, ok = p.Settle(shard.Outcomes{txA: v})
		if string(e.Value) != want[1] && ok || ok != (want[1] != "") || ok && e.Version != v {
			t.Errorf("%q, if it is: %q of %s, %v", key, e.Value, e.Version, ok)
		}
	}
	if e, ok := get(t, s, "other"); ok {
		t.Errorf("another key is %+v", e)
	}
}

// Every kind of write waits for the transaction, whoever sends it; what arrives
// with a version of its own does not, nor do the transaction's own operations.
func TestWritesOfAPreparedKeyArePending(t *testing.T) {
	first := shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("v")}
	blind, absent, getOrSet, remove := first, first, first, first
	blind.Blind, absent.IfAbsent, getOrSet.Op, remove.Op = true, true, shard.OpGetOrSet, shard.OpDelete
	for name, w := range map[string]shard.Write{
		"put": first, "blind put": blind, "conditional put": absent, "get or set": getOrSet, "delete": remove,
		"prepare of another": prepareOf(txB, "k", "theirs"),
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, nil)
			write(t, s, prepareOf(txA, "k", "mine"))
			if r := write(t, s, w); r.Status != shard.StatusPending || r.Tx != txA {
				t.Fatalf("before the outcome: %+v", r)
			}
			v := soon(time.Minute)
			write(t, s, shard.Write{Op: shard.OpCommit, Tx: txA, Version: v})
			r := write(t, s, w)
			if r.Status == shard.StatusPending {
				t.Fatalf("after the outcome: %+v", r)
			}
			if r.Status == shard.StatusApplied && r.Version.Compare(v) <= 0 {
				t.Errorf("version %s is not above that of the commit", r.Version)
			}
		})
	}
	s := fresh(t, nil)
	write(t, s, prepareOf(txA, "k", "mine"))
	for _, w := range []shard.Write{prepareOf(txA, "k", "mine"), {Op: shard.OpMerge, Key: "k", Version: soon(0)}, {Op: shard.OpAbort, Tx: txA}, first} {
		if r := write(t, s, w); r.Status != shard.StatusApplied {
			t.Errorf("operation %d: %+v", w.Op, r)
		}
	}
}

// The same within one append: a lock that the group itself makes, or ends.
func TestLocksWithinOneAppend(t *testing.T) {
	s := fresh(t, nil)
	rs, err := s.Write(t.Context(), []shard.Write{
		prepareOf(txA, "a", "1"),
		prepareOf(txB, "a", "2"),
		{Op: shard.OpPut, Key: "b", Value: []byte("free")},
		{Op: shard.OpAbort, Tx: txA},
		{Op: shard.OpPut, Key: "a", Value: []byte("after")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []shard.Status
	for _, r := range rs {
		got = append(got, r.Status)
	}
	want := []shard.Status{shard.StatusApplied, shard.StatusPending, shard.StatusApplied, shard.StatusApplied, shard.StatusApplied}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	sameContents(t, "afterwards", contentsOf(t, s), map[string]string{"a": "after", "b": "free"})
}

// What follows a pending write in a request is not tried in a later append: the
// lock may be gone by then, and two writes of one key would change places.
func TestNothingOvertakesAPendingWrite(t *testing.T) {
	s := fresh(t, func(c *shard.Config) { c.GroupMaxRecords = 1 })
	write(t, s, prepareOf(txA, "k", "mine"))
	rs, err := s.Write(t.Context(), []shard.Write{
		{Op: shard.OpPut, Key: "other", Value: []byte("1")},
		{Op: shard.OpPut, Key: "k", Value: []byte("1")},
		{Op: shard.OpPut, Key: "k", Value: []byte("2")},
	})
	if err != nil || rs[0].Status != shard.StatusApplied || rs[1].Status != shard.StatusPending || rs[2].Status != 0 {
		t.Errorf("results %+v, %v", rs, err)
	}
}

func TestAtomicWriteIsAllOrNothing(t *testing.T) {
	s := fresh(t, nil)
	old := put(t, s, "a", "old")
	set := func(key string) shard.Write { return shard.Write{Op: shard.OpPut, Key: key, Value: []byte("new")} }
	failing := map[string]shard.Write{
		"absent":  {Op: shard.OpPut, Key: "a", Value: []byte("new"), IfAbsent: true},
		"version": {Op: shard.OpDelete, Key: "b", IfVersion: old.Version},
	}
	for name, w := range failing {
		rs, err := s.WriteAtomic(t.Context(), []shard.Write{set("x"), w, set("y")})
		if err != nil || rs[0].Status != 0 || rs[1].Status != shard.StatusMismatch || rs[2].Status != 0 {
			t.Errorf("%s: %+v, %v", name, rs, err)
		}
	}
	write(t, s, prepareOf(txA, "locked", "1"))
	if rs, err := s.WriteAtomic(t.Context(), []shard.Write{set("x"), set("locked")}); err != nil || rs[1].Status != shard.StatusPending || rs[1].Tx != txA {
		t.Errorf("locked: %+v, %v", rs, err)
	}
	sameContents(t, "after refusals", contentsOf(t, s), map[string]string{"a": "old"})
	rs, err := s.WriteAtomic(t.Context(), []shard.Write{set("x"), {Op: shard.OpDelete, Key: "a", IfVersion: old.Version}, set("y")})
	if err != nil || !rs[1].Existed || rs[0].Status != shard.StatusApplied || rs[2].Status != shard.StatusApplied {
		t.Errorf("%+v, %v", rs, err)
	}
	sameContents(t, "afterwards", contentsOf(t, s), map[string]string{"x": "new", "y": "new"})
	small := fresh(t, func(c *shard.Config) { c.GroupMaxRecords = 2 })
	if _, err := small.WriteAtomic(t.Context(), []shard.Write{set("x"), set("y"), set("z")}); !errors.Is(err, shard.ErrNotAtomic) {
		t.Errorf("too many for one append: %v", err)
	}
}

// A view under outcomes shows committed mutations at their place, forward and in
// reverse, in lookups and counts, whatever stands underneath: the greater version
// wins. Compared with a map.
func TestSettledViews(t *testing.T) {
	for i := range history.Seeds() {
		seed := uint64(i + 1)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { settledViews(t, rand.New(rand.NewPCG(seed, 5))) })
		})
	}
}

func settledViews(t *testing.T, rng *rand.Rand) {
	s := fresh(t, quick)
	want := map[string]string{}
	key := func() string { return fmt.Sprintf("k%02d", rng.IntN(30)) }
	for range 20 {
		k, v := key(), fmt.Sprint("v", rng.IntN(1000))
		put(t, s, k, v)
		want[k] = v
		if rng.IntN(5) == 0 {
			if _, err := s.Checkpoint(t.Context(), force()); err != nil {
				t.Fatal(err)
			}
		}
	}
	outcomes, taken := shard.Outcomes{}, map[string]bool{}
	for n := range byte(6) {
		tx := record.ID{n + 1}
		committed := rng.IntN(2) == 0
		if committed {
			outcomes[tx] = soon(time.Duration(n+1) * time.Minute)
		}
		for range 1 + rng.IntN(4) {
			k, v := key(), fmt.Sprint("tx", n)
			if taken[k] {
				continue
			}
			taken[k] = true
			if rng.IntN(4) == 0 {
				v = ""
			}
			write(t, s, prepareOf(tx, k, v))
			newer := rng.IntN(4) == 0
			if newer { // what a migration may have brought meanwhile
				write(t, s, shard.Write{Op: shard.OpMerge, Key: k, Value: []byte("newer"), Version: soon(time.Hour)})
				want[k] = "newer"
			} else if committed {
				want[k] = v
			}
		}
	}
	maps.DeleteFunc(want, func(_, v string) bool { return v == "" })
	v, err := s.View(t.Context(), shard.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checkSettled(t, v.Settle(outcomes), want, rng)
}

func checkSettled(t *testing.T, v *shard.View, want map[string]string, rng *rand.Rand) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		from, to := fmt.Sprintf("k%02d", rng.IntN(15)), fmt.Sprintf("k%02d", 15+rng.IntN(16))
		var got, expect strings.Builder
		c := v.Entries(shard.Bounds{From: from, To: to}, reverse)
		n := int64(0)
		for ; c.Next(t.Context()); n++ {
			fmt.Fprintf(&got, "%s=%s ", c.Entry().Key, c.Entry().Value)
		}
		for i := range 31 {
			k := fmt.Sprintf("k%02d", i)
			if reverse {
				k = fmt.Sprintf("k%02d", 30-i)
			}
			if value, ok := want[k]; ok && k >= from && k < to {
				fmt.Fprintf(&expect, "%s=%s ", k, value)
			}
		}
		if c.Err() != nil || got.String() != expect.String() {
			t.Errorf("%s to %s, reverse %v:\ngot  %s\nwant %s\n%v", from, to, reverse, got.String(), expect.String(), c.Err())
		}
		if m, err := v.Count(t.Context(), shard.Bounds{From: from, To: to}, nil); err != nil || m != n {
			t.Errorf("count %d, %v, of %d", m, err, n)
		}
	}
	for i := range 31 {
		k := fmt.Sprintf("k%02d", i)
		e, ok, err := v.Get(t.Context(), k)
		if value, exists := want[k]; err != nil || ok != exists || ok && !bytes.Equal(e.Value, []byte(value)) {
			t.Errorf("get %s: %q, %v, %v; want %q", k, e.Value, ok, err, value)
		}
	}
}
