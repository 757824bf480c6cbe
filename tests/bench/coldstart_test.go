package main

import (
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/tap"
)

func TestColdStartsAreJudged(t *testing.T) {
	const ms = time.Millisecond
	trips := func(n int) []tap.Exchange { return make([]tap.Exchange, n) }
	for name, c := range map[string]struct {
		runs []cold
		want []string
	}{
		"fast":         {[]cold{{ready: 90 * ms, healthy: 95 * ms, answered: 150 * ms, trips: trips(4)}}, []string{"90.0, 90.0", "95.0, 95.0", "150.0, 150.0", "pass"}},
		"one slow":     {[]cold{{ready: 20 * ms, trips: trips(4)}, {ready: 900 * ms, trips: trips(3)}, {ready: 30 * ms, trips: trips(4)}}, []string{"30.0, 900.0", " - ", "pass"}},
		"slow":         {[]cold{{ready: 101 * ms, trips: trips(4)}}, []string{"short"}},
		"much traffic": {[]cold{{ready: ms, trips: trips(4)}, {ready: ms, trips: trips(5)}}, []string{" 5 |", "short"}},
	} {
		var out strings.Builder
		printCold(&out, name, 28_000_000, c.runs)
		for _, want := range append(c.want, "28.0") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %s", name, want, out.String())
			}
		}
	}
}
