package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// As long as nothing fades, the sketch keeps what its inventors promise: no
// count is too low, none too high by more than it says, and every key with more
// than one in sketchKeys of the stream has one.
func TestSketchBoundsItsErrors(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k, truth := &sketch{}, map[string]uint32{}
		n := rapid.IntRange(1, sketchSamples-1).Draw(rt, "stream")
		keys := rapid.IntRange(1, 4*sketchKeys).Draw(rt, "keys")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		for range n {
			// The square favours the first keys.
			key := fmt.Sprint("key-", int(r.Float64()*r.Float64()*float64(keys)))
			truth[key]++
			k.add(key)
		}
		sum, seen := uint32(0), map[string]bool{}
		for _, c := range k.counters[:k.used] {
			key := string(c.key)
			if c.count < truth[key] || c.count-c.over > truth[key] || seen[key] {
				rt.Fatalf("%q occurred %d times, counted %d less %d, seen before %v", key, truth[key], c.count, c.over, seen[key])
			}
			sum, seen[key] = sum+c.count, true
		}
		for key, count := range truth {
			if !seen[key] && count > uint32(n)/sketchKeys {
				rt.Fatalf("%q occurred %d times of %d and has no counter", key, count, n)
			}
		}
		if sum != k.total || k.total != uint32(n) {
			rt.Fatalf("counts sum up to %d, total %d, want %d", sum, k.total, n)
		}
	})
}

// play sends operations to the heat, each on the key that pick names.
func play(h *heat, n int, pick func(i int) string) {
	for i := range n {
		h.touch(pick(i))
	}
}

func hotKeys(h *heat) map[string]float64 {
	s := &Shard{}
	s.heat.sketch = h.sketch
	out := map[string]float64{}
	for _, k := range s.HotKeys() {
		out[k.Key] = k.Share
	}
	return out
}

func TestHotKeysAreFoundAmongManyOthers(t *testing.T) {
	seed := uint64(20)
	r := rand.New(rand.NewPCG(seed, 2))
	h := &heat{chance: seed}
	play(h, 200_000, func(int) string {
		switch p := r.IntN(100); {
		case p < 40:
			return "first"
		case p < 60:
			return "second"
		}
		return fmt.Sprint("other-", r.IntN(100_000))
	})
	got := hotKeys(h)
	if len(got) != 2 || got["first"] < 0.3 || got["first"] > 0.5 || got["second"] < 0.12 || got["second"] > 0.3 {
		t.Errorf("seed %d: hot are %v, want first with 0.4 and second with 0.2", seed, got)
	}
}

// A rhythm that is that of the samples must not make a key look hot.
func TestSamplesKeepNoRhythm(t *testing.T) {
	for period := sampledOne - 2; period <= 2*sampledOne; period++ {
		h := &heat{chance: uint64(period)}
		play(h, 200_000, func(i int) string { return fmt.Sprint("key-", i%period) })
		if got := hotKeys(h); len(got) > 0 {
			t.Errorf("%d keys in turn: hot are %v", period, got)
		}
	}
}

func TestWhatWasHotIsForgotten(t *testing.T) {
	h := &heat{chance: 7}
	play(h, 300_000, func(int) string { return "old" })
	if got := hotKeys(h); got["old"] != 1 {
		t.Fatalf("hot are %v, want the only key", got)
	}
	play(h, 2_000_000, func(i int) string { return fmt.Sprint("new-", i%5) })
	if got := hotKeys(h); len(got) != 5 || got["old"] != 0 {
		t.Errorf("hot are %v, want the five new keys", got)
	}
}

func TestFewOperationsMakeNothingHot(t *testing.T) {
	h := &heat{chance: 7}
	play(h, minHotSamples*sampledOne/4, func(int) string { return "key" })
	if got := hotKeys(h); len(got) > 0 {
		t.Errorf("hot are %v after a few operations", got)
	}
}

func TestTouchAllocatesNothing(t *testing.T) {
	h := &heat{chance: 7}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%04d", i)
	}
	play(h, 100_000, func(i int) string { return keys[i%1000] })
	allocs := testing.AllocsPerRun(1, func() {
		play(h, 100_000, func(i int) string { return keys[i*7%1000] })
	})
	if allocs > 0 {
		t.Errorf("100,000 operations allocate %v times", allocs)
	}
}

func BenchmarkTouch(b *testing.B) {
	h := &heat{chance: 7}
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%04d", i)
	}
	for i := 0; b.Loop(); i++ {
		h.touch(keys[i%1024])
	}
}
