package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

func TestPredicates(t *testing.T) {
	apply := &faulty.Call{N: 3, Kind: faulty.Apply, Partition: "tree-1", Ops: []store.Op{store.Insert("row7", nil), store.Replace("~head", nil, "x")}}
	get := &faulty.Call{N: 4, Kind: faulty.Get, Partition: "tree-2", Key: "~head"}
	blob := &faulty.Call{N: 5, Kind: faulty.BlobPut, Key: "leaf/1"}
	for _, c := range []struct {
		name             string
		match            faulty.Match
		apply, get, blob bool
	}{
		{"any", faulty.Any, true, true, true},
		{"writes", faulty.Writes, true, false, true},
		{"reads", faulty.Reads, false, true, false},
		{"kinds", faulty.Kinds(faulty.Get, faulty.BlobPut), false, true, true},
		{"partition", faulty.InPartition("tree-1"), true, false, false},
		{"every partition", faulty.InPartition(""), true, true, false},
		{"key of an operation", faulty.OnKey("~head"), true, true, false},
		{"blob name", faulty.OnKey("leaf/"), false, false, true},
		{"nth", faulty.Nth(4), false, true, false},
		{"all", faulty.All(faulty.Writes, faulty.OnKey("row")), true, false, false},
		{"all of none", faulty.All(), true, true, true},
		{"either", faulty.Either(faulty.Nth(3), faulty.Nth(5)), true, false, true},
		{"either of none", faulty.Either(), false, false, false},
		{"not", faulty.Not(faulty.Writes), false, true, false},
	} {
		if a, g, b := c.match(apply), c.match(get), c.match(blob); a != c.apply || g != c.get || b != c.blob {
			t.Errorf("%s matches apply %v, get %v, blob %v", c.name, a, g, b)
		}
	}
}

func TestRuleSkipsThenFiresATime(t *testing.T) {
	inner, in := world(faulty.Options{})
	rule := in.Add(faulty.Rule{When: faulty.Writes, Skip: 2, Times: 3, Do: faulty.Fail(store.ErrUnavailable)})
	outcome := ""
	for i := range 7 {
		if err := insert(t, in.Table(), "row"+strconv.Itoa(i)); err != nil {
			outcome += "x"
		} else {
			outcome += "."
		}
		if exists(t, inner, "row"+strconv.Itoa(i)) != (outcome[i] == '.') {
			t.Errorf("call %d: error and effect disagree", i)
		}
	}
	if outcome != "..xxx.." || rule.Seen() != 7 || rule.Fired() != 3 {
		t.Errorf("outcomes are %s, seen %d, fired %d", outcome, rule.Seen(), rule.Fired())
	}
	in.Clear()
	if len(in.Rules()) != 0 {
		t.Error("rules are left")
	}
}

func TestEarlierRuleIsAroundTheLater(t *testing.T) {
	inner, in := world(faulty.Options{})
	in.Add(faulty.Rule{Do: faulty.Lose()}, faulty.Rule{Do: faulty.Fail(store.ErrThrottled)})
	if err := insert(t, in.Table(), "a"); !errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, store.ErrThrottled) {
		t.Errorf("got %v", err)
	}
	if exists(t, inner, "a") {
		t.Error("the inner fault did not stop the call")
	}
}

// TestChanceIsRepeatable runs the same calls under the same seed twice.
func TestChanceIsRepeatable(t *testing.T) {
	run := func(seed uint64) (outcomes string, fired int) {
		inner := memory.New(memory.Options{})
		in := faulty.New(inner.Table(), nil, faulty.Options{Clock: clock.NewSeeded(clock.NewSystem(), seed)})
		rule := in.Add(faulty.Rule{Chance: 0.3, Do: faulty.Fail(store.ErrUnavailable)})
		for i := range 1000 {
			outcomes += fmt.Sprint(insert(t, in.Table(), "row"+strconv.Itoa(i)) == nil)
		}
		return outcomes, rule.Fired()
	}
	first, fired := run(7)
	if again, _ := run(7); again != first {
		t.Error("equal seeds gave different faults")
	}
	if other, _ := run(8); other == first {
		t.Error("different seeds gave equal faults")
	}
	// Six standard deviations around the mean of 300.
	if fired < 213 || fired > 387 {
		t.Errorf("a chance of 0.3 fired %d times in 1000", fired)
	}
}

// TestCounterSurvivesAStorm lets several instances with all faults count on
// one row. Each increment carries a mark of its own, so that an instance can
// tell after a lost reply whether it was applied; none may count twice or not
// at all.
func TestCounterSurvivesAStorm(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const instances, each = 4, 50
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New(memory.Options{})
		if _, err := inner.Table().Apply(t.Context(), "p", []store.Op{store.Insert("n", []byte("0"))}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		all := make([]*faulty.Instance, instances)
		for i := range all {
			src := clock.NewSeeded(clock.NewSystem(), seed+uint64(i))
			all[i] = faulty.New(inner.Table(), inner.Blobs(), faulty.Options{Clock: src})
			all[i].Add(faulty.Storm(0.5, 10*time.Millisecond)...)
			wg.Go(func() {
				for k := range each {
					countOnce(t, all[i].Table(), fmt.Sprintf("mark-%d-%d", i, k), src)
				}
			})
		}
		wg.Wait()
		fired := map[string]int{}
		for _, in := range all {
			in.Wait()
			for _, rule := range in.Rules() {
				fired[rule.Name()] += rule.Fired()
			}
		}
		for name, times := range fired {
			if times == 0 {
				t.Errorf("%q never fired", name)
			}
		}
		row, err := inner.Table().Get(t.Context(), "p", "n")
		if err != nil || string(row.Data) != strconv.Itoa(instances*each) {
			t.Errorf("counted to %s, want %d, error %v", row.Data, instances*each, err)
		}
	})
}

// countOnce increments the counter and inserts the mark in one transaction,
// until the mark is there.
func countOnce(t *testing.T, table store.Table, mark string, src clock.Source) {
	ctx := t.Context()
	for range 10_000 {
		if _, err := table.Get(ctx, "p", mark); err == nil {
			return
		} else if !errors.Is(err, store.ErrNotFound) {
			continue
		}
		row, err := table.Get(ctx, "p", "n")
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(string(row.Data))
		if err != nil {
			t.Error(err)
			return
		}
		ops := []store.Op{store.Insert(mark, nil), store.Replace("n", []byte(strconv.Itoa(n+1)), row.ETag)}
		if _, err := table.Apply(ctx, "p", ops); err != nil {
			if cause := src.Sleep(ctx, time.Millisecond); cause != nil {
				t.Error(context.Cause(ctx))
				return
			}
		}
	}
	t.Errorf("%s was not counted", mark)
}
