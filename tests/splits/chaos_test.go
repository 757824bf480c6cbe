package splits

import (
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/tests/chaos"
)

// chaosOnAzurite is three instances on one emulator, in real time.
func chaosOnAzurite(t *testing.T, seed uint64) *chaos.Chaos {
	w, src := newWorld(t), clock.NewSystem()
	return chaos.New(t, chaos.Config{Seed: seed, Instances: 3, Clock: src, Open: func(o options.Options) (*tree.DB, *faulty.Instance, error) {
		table, blobs, err := w.stores(t.Context())
		if err != nil {
			return nil, nil, err
		}
		in := faulty.New(table, blobs, faulty.Options{Clock: src})
		db, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: src, Options: o})
		return db, in, err
	}})
}

// The same as on memory, where time is virtual: see package tree.
func TestChaosOfSplitsOnAzurite(t *testing.T) {
	c := chaosOnAzurite(t, 3)
	c.Run(10 * time.Second)
	c.Settle()
}

func TestChaosOfSplitsUnderFaultsOnAzurite(t *testing.T) {
	c := chaosOnAzurite(t, 4)
	c.RunUnderFaults(5*time.Second, 0.05)
	c.Settle()
}
