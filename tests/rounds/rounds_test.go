package rounds_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/history"
	"github.com/latticekv/lattice/tests/rounds"
)

// skewed is a clock whose wall runs ahead of the machine's.
type skewed struct {
	clock.Source
	by time.Duration
}

// Now implements clock.Source.
func (s skewed) Now() clock.Instant {
	now := s.Source.Now()
	now.Wall += int64(s.by)
	return now
}

// inMemory is instances on one store in memory, each of whose calls takes a moment
// of virtual time, and whose clocks disagree.
func inMemory(t *testing.T, cfg rounds.Config) *rounds.Rounds {
	src := clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src})
	ahead := time.Duration(0)
	cfg.Clock, cfg.Instances = src, 3
	cfg.Open = func(o options.Options) (*tree.DB, *faulty.Instance, error) {
		in := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
		in.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
		ahead = (ahead + 130*time.Millisecond) % (400 * time.Millisecond)
		db, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: skewed{src, ahead}, Options: o})
		return db, in, err
	}
	return rounds.New(t, cfg)
}

// modes are who takes leases.
var modes = []func(i int, o *options.Options){
	func(_ int, o *options.Options) { o.Leases = false },
	func(_ int, o *options.Options) { o.Leases = true },
	func(i int, o *options.Options) { o.Leases = i%2 == 0 },
}

func run(t *testing.T, storm float64) {
	var written, seen, splits int64
	for seed := range uint64(history.Seeds()) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, rounds.Config{Seed: seed, Edit: modes[seed%3], Storm: storm, Readers: 6, Writers: 2})
				r.Run(3 * time.Second)
				w, s, d := r.Figures()
				written, seen, splits = written+w, seen+s, splits+d
			})
		})
	}
	if written < 20 || seen < 200 || splits == 0 {
		t.Errorf("%d rounds, %d looks, %d splits: that shows nothing", written, seen, splits)
	}
}

// Every atomic batch is seen whole or not at all, by every kind of read, while
// shards are split.
func TestEveryLookSeesOneRound(t *testing.T) { run(t, 0) }

// The same with storage that fails in every way and instances that die.
func TestEveryLookSeesOneRoundUnderFaults(t *testing.T) { run(t, 0.05) }
