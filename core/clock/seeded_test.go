package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

func TestSeededRepeatsItsNumbers(t *testing.T) {
	draw := func(seed uint64) (out [4]uint64) {
		src := clock.NewSeeded(clock.NewSystem(), seed)
		for i := range out {
			out[i] = src.Uint64()
		}
		return out
	}
	if first, again := draw(1), draw(1); first != again {
		t.Error("equal seeds gave different numbers")
	}
	if draw(1) == draw(2) {
		t.Error("different seeds gave equal numbers")
	}
}

func TestSeededHasTheTimeOfItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSeeded(clock.NewSystem(), 1)
		before := src.Now()
		if err := src.Sleep(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if passed := src.Now().Mono - before.Mono; passed != time.Hour {
			t.Errorf("%s passed", passed)
		}
	})
}
