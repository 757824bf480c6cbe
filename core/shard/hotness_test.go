package shard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/shard"
)

func hotness(t *testing.T, s *shard.Shard) shard.Hotness {
	t.Helper()
	h, err := s.Hotness(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Writes are counted by the appends they make, and reads go along with them.
func TestHotnessIsCarriedByAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCosted(t, nil)
		put(t, c.Shard, "k", "v")
		before := hotness(t, c.Shard)
		for range 10 {
			get(t, c.Shard, "k")
		}
		got := c.spend(func() { put(t, c.Shard, "k", "v") })
		if got.Calls() != 1 {
			t.Errorf("a put that reports reads costs %+v", got)
		}
		after := hotness(t, c.Shard)
		if after.Writes-before.Writes != 1 || after.Reads-before.Reads != 10 || after.Live != 1 {
			t.Errorf("counted %+v, then %+v", before, after)
		}
		if got := c.spend(func() { hotness(t, c.Shard) }); got.Calls() != 1 || got.Ranges != 1 {
			t.Errorf("a sample costs %+v, not one query", got)
		}
	})
}

// Where there are only reads, a row of each instance counts them, written no
// more than once in an interval.
func TestReadsAloneAreReported(t *testing.T) {
	for name, edit := range map[string]func(*shard.Config){"without lease": withoutLeases, "under the lease": withLeases} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, edit, withoutLeases)
				put(t, p.a, "k", "v")
				writes := hotness(t, p.a).Writes
				for range 40 {
					for range 25 {
						get(t, p.a, "k")
						get(t, p.b, "k")
					}
					_ = p.time.Sleep(t.Context(), time.Second)
				}
				h := hotness(t, p.a)
				if h.Reads < 1200 || h.Reads > 2000 {
					t.Errorf("of 2,000 reads %d are reported after 40 s", h.Reads)
				}
				if name == "without lease" && h.Writes != writes {
					t.Errorf("reads made %d writes", h.Writes-writes)
				}
			})
		})
	}
}

// Rows of instances that are gone are collected after a day.
func TestOldCountersAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, withoutLeases, withoutLeases)
		put(t, p.a, "k", "v")
		for range 3 {
			get(t, p.b, "k")
			_ = p.time.Sleep(t.Context(), 11*time.Second)
		}
		if h := hotness(t, p.a); h.Reads < 1 {
			t.Fatalf("nothing was reported: %+v", h)
		}
		_ = p.time.Sleep(t.Context(), 25*time.Hour)
		rep, err := p.a.Collect(t.Context())
		if err != nil || rep.Rows != 1 {
			t.Errorf("collected %+v, %v", rep, err)
		}
	})
}
