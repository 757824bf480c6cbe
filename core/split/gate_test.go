package split_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

const ttl = 90 * time.Second

func newGate() (*split.Gate, *memory.Store) {
	src := clock.NewSystem()
	m := memory.New(memory.Options{Clock: src})
	return &split.Gate{Table: m.Table(), Clock: src}, m
}

// report asks for one tree.
func report(t *testing.T, g *split.Gate, tree string, inFlight, want, ceiling int) int {
	t.Helper()
	n, err := g.Report(t.Context(), split.Request{Tree: tree, InFlight: inFlight, Want: want, Ceiling: ceiling, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func activity(t *testing.T, g *split.Gate) split.Activity {
	t.Helper()
	a, err := g.Activity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheGateGrantsWhatTheOthersLeave(t *testing.T) {
	type ask struct {
		tree                    string
		inFlight, want, ceiling int
		grant                   int
	}
	tests := []struct {
		name string
		asks []ask
		want split.Activity
	}{
		{"alone, up to the ceiling", []ask{{"a", 0, 5, 3, 3}}, split.Activity{InFlight: 3, ReportingTrees: 1}},
		{"never more than wanted", []ask{{"a", 0, 2, 9, 2}}, split.Activity{InFlight: 2, ReportingTrees: 1}},
		{"its own count", []ask{{"a", 2, 2, 3, 1}}, split.Activity{InFlight: 3, ReportingTrees: 1}},
		{"two trees share", []ask{{"a", 0, 2, 3, 2}, {"b", 0, 2, 3, 1}}, split.Activity{InFlight: 3, ReportingTrees: 2}},
		{"no room", []ask{{"a", 3, 0, 3, 0}, {"b", 0, 1, 3, 0}}, split.Activity{InFlight: 3, ReportingTrees: 1}},
		{"over the ceiling", []ask{{"a", 7, 0, 3, 0}, {"b", 0, 1, 3, 0}}, split.Activity{InFlight: 7, ReportingTrees: 1}},
		{"each by its own ceiling", []ask{{"a", 0, 2, 2, 2}, {"b", 0, 2, 2, 0}, {"c", 0, 2, 4, 2}}, split.Activity{InFlight: 4, ReportingTrees: 2}},
		{"a new report replaces the last", []ask{{"a", 0, 2, 2, 2}, {"a", 1, 0, 2, 0}, {"b", 0, 2, 2, 1}}, split.Activity{InFlight: 2, ReportingTrees: 2}},
		{"a grant counts as in flight until the next report", []ask{{"a", 1, 1, 2, 1}, {"b", 0, 1, 2, 0}}, split.Activity{InFlight: 2, ReportingTrees: 1}},
		{"one without a ceiling is not held back", []ask{{"a", 2, 0, 2, 0}, {"b", 1, 4, 0, 4}}, split.Activity{InFlight: 7, ReportingTrees: 2}},
		{"and takes nothing of the others'", []ask{{"b", 9, 4, 0, 4}, {"a", 0, 2, 2, 2}}, split.Activity{InFlight: 15, ReportingTrees: 2}},
		{"nothing in flight leaves no footprint", []ask{{"a", 0, 0, 2, 0}, {"b", 0, 0, 0, 0}}, split.Activity{}},
		{"and removes the last one", []ask{{"a", 2, 0, 2, 0}, {"a", 0, 0, 2, 0}, {"b", 0, 2, 2, 2}}, split.Activity{InFlight: 2, ReportingTrees: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, _ := newGate()
			for i, a := range tt.asks {
				if got := report(t, g, a.tree, a.inFlight, a.want, a.ceiling); got != a.grant {
					t.Errorf("%d: granted %d, want %d", i, got, a.grant)
				}
			}
			if got := activity(t, g); got != tt.want {
				t.Errorf("activity %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestWhatADeadTreeHeldComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGate()
		report(t, g, "dead", 2, 0, 2)
		time.Sleep(ttl - time.Millisecond)
		if n := report(t, g, "alive", 0, 2, 2); n != 0 {
			t.Fatalf("granted %d while the other may live", n)
		}
		if a := activity(t, g); a.InFlight != 2 {
			t.Fatalf("activity %+v", a)
		}
		time.Sleep(time.Millisecond)
		if a := activity(t, g); a != (split.Activity{}) {
			t.Fatalf("activity %+v of the dead", a)
		}
		if n := report(t, g, "alive", 0, 2, 2); n != 2 {
			t.Fatalf("granted %d after the footprint expired, want 2", n)
		}
	})
}

func TestTheCeilingHoldsWhenManyAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := newGate()
		slow := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: g.Clock})
		slow.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
		g.Table = slow.Table()
		var mu sync.Mutex
		sum, failed := 0, 0
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				n, err := g.Report(t.Context(), split.Request{Tree: fmt.Sprint("tree", i), Want: 2, Ceiling: 5, TTL: ttl})
				mu.Lock()
				defer mu.Unlock()
				sum += n
				if err != nil {
					failed++
				}
			})
		}
		wg.Wait()
		if sum != 5 || failed != 0 {
			t.Errorf("granted %d to 12 trees, want 5; %d gave up", sum, failed)
		}
	})
}

func TestALostReplyOfTheGateIsNotCountedTwice(t *testing.T) {
	g, m := newGate()
	lossy := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: g.Clock})
	lossy.Add(faulty.Rule{When: faulty.Writes, Do: faulty.Lose(), Times: 2})
	bad := &split.Gate{Table: lossy.Table(), Clock: g.Clock}
	if n := report(t, bad, "a", 0, 2, 3); n != 2 {
		t.Errorf("granted %d, want 2", n)
	}
	if a := activity(t, g); a.InFlight != 2 {
		t.Errorf("activity %+v", a)
	}
}

func TestAGateThatCannotBeReachedGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m := newGate()
		down := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: g.Clock})
		down.Add(faulty.Rule{When: faulty.Any, Do: faulty.Fail(store.ErrUnavailable)})
		g.Table = down.Table()
		n, err := g.Report(t.Context(), split.Request{Tree: "a", Want: 2, Ceiling: 3, TTL: ttl})
		if n != 0 || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("granted %d, %v", n, err)
		}
		if _, err := g.Activity(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("activity: %v", err)
		}
	})
}
