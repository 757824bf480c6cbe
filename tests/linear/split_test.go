package linear

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/tests/history"
)

// divide has random shards split through random instances, and once the whole
// tree resharded. What comes of it is not its business: instances die, and two
// may ask for the same.
func (c *cluster) divide(stop context.Context) {
	for n := 0; c.pause(stop, 1500); n++ {
		in := c.at(c.Draw(c.instances))
		ctx, end := in.Context(stop)
		if t, err := in.db.Open(ctx, treeName); err == nil {
			owners := t.ShardMap().Shards()
			if n == 3 {
				_, _, _ = t.Reshard(ctx, len(owners)+2)
			} else {
				_, _ = t.BeginSplit(ctx, owners[c.Draw(len(owners))], "test")
			}
		}
		end()
	}
}

// Histories stay linearizable, and counts exact, while shards are split and the
// tree grows, under faults and kills, whoever takes leases.
func TestTreesAreLinearizableWhileShardsSplit(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			var known, failed, completed int
			for seed := range uint64(history.Seeds()) {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					var c *cluster
					synctest.Test(t, func(t *testing.T) {
						p := plan{instances: 3, clients: 12, each: 40, keys: 6, shards: 2, storm: 0.1, leases: mode.leases, splits: true}
						c = newCluster(t, seed, p)
						c.run()
					})
					ok, bad := c.Outcomes()
					known, failed, completed = known+ok, failed+bad, completed+c.completed
					verify(t, fmt.Sprintf("split-%d", seed), c.Ops(), c.Surveys())
				})
			}
			t.Logf("%d operations with a known outcome, %d without, %d splits completed", known, failed, completed)
			if completed == 0 || failed > known {
				t.Error("too little happened: that shows nothing")
			}
		})
	}
}
