package tree_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
	"github.com/latticekv/lattice/tests/chaos"
)

// chaosInMemory is three instances on one store in memory, each of whose calls
// takes a moment of virtual time.
func chaosInMemory(t *testing.T, seed uint64, edit func(i int, o *options.Options)) *chaos.Chaos {
	src := clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src})
	return chaos.New(t, chaos.Config{Seed: seed, Instances: 3, Clock: src, Edit: edit, Open: func(o options.Options) (*tree.DB, *faulty.Instance, error) {
		in := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
		in.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(time.Millisecond, time.Millisecond)})
		db, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: src, Options: o})
		return db, in, err
	}})
}

func TestChaosOfSplits(t *testing.T) {
	modes := map[string]func(i int, o *options.Options){
		"without leases": nil,
		"mixed leases": func(i int, o *options.Options) {
			o.Leases, o.LeaseDuration, o.LeaseContentionBackoff = i == 0, 2*time.Second, time.Second
		},
	}
	for name, edit := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := chaosInMemory(t, 1, edit)
				c.Run(10 * time.Second)
				c.Settle()
			})
		})
	}
}

// The same with storage that fails in every way and instances that are killed:
// errors are tolerated meanwhile, and everything is exact soon after.
func TestChaosOfSplitsUnderFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := chaosInMemory(t, 2, nil)
		c.RunUnderFaults(10*time.Second, 0.1)
		c.Settle()
	})
}
