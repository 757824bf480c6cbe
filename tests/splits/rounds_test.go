package splits

import (
	"os"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/tests/rounds"
)

// Atomic batches are seen whole or not at all on a real table too, while shards
// are split: see package rounds, which has the same in virtual time.
func TestEveryLookSeesOneRoundOnAzurite(t *testing.T) {
	d := 6 * time.Second
	if os.Getenv("LATTICE_SOAK") != "" {
		d = time.Minute
	}
	for name, storm := range map[string]float64{"healthy": 0, "under faults": 0.02} {
		t.Run(name, func(t *testing.T) {
			w, src := newWorld(t), clock.NewSystem()
			r := rounds.New(t, rounds.Config{
				Seed: 5, Instances: 3, Clock: src, Storm: storm, Readers: 6, Writers: 2,
				Open: func(o options.Options) (*tree.DB, *faulty.Instance, error) {
					o.TxTimeout = 5 * time.Second
					table, blobs, err := w.stores(t.Context())
					if err != nil {
						return nil, nil, err
					}
					in := faulty.New(table, blobs, faulty.Options{Clock: src})
					db, err := tree.New(tree.Config{Table: in.Table(), Blobs: in.Blobs(), Clock: src, Options: o})
					return db, in, err
				},
			})
			r.Run(d)
			if written, seen, _ := r.Figures(); written < 3 || seen < 20 {
				t.Errorf("%d rounds, %d looks: that shows nothing", written, seen)
			}
		})
	}
}
