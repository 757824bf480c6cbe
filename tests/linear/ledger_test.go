package linear

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/tests/history"
)

// ledger is the plan of a history of atomic batches and operations on single
// keys, short enough for one order of all of them to be looked for.
func ledger(leases func(place int) bool) plan {
	return plan{instances: 3, clients: 6, each: 13, keys: 5, shards: 3, storm: 0.1, leases: leases, atomic: true}
}

// strict holds a history against one order of everything.
func strict(t *testing.T, name string, c *cluster) {
	t.Helper()
	v := history.CheckLedger(c.Ops(), c.Batches(), looks(c), checkLimit)
	explain(t, name, v)
	if !v.OK() {
		path := filepath.Join(t.ArtifactDir(), name+".txt")
		if err := os.WriteFile(path, []byte(history.Describe(c.Ops(), c.Batches())), 0o600); err != nil {
			t.Error(err)
		}
		t.Log("the history is in", path)
	}
	for _, s := range c.Contradictions() {
		t.Errorf("%s: two outcomes of one operation: %s", name, s)
	}
}

// looks are the surveys of a history in which all keys are looked at as of one
// moment: nobody but batches writes.
func looks(c *cluster) []history.Survey {
	if !c.batches {
		return nil
	}
	return c.Surveys()
}

// strictly runs a plan with every seed.
func strictly(t *testing.T, p plan) {
	var known, failed, kills, completed, undecided, batches int
	for seed := range uint64(history.Seeds()) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var c *cluster
			synctest.Test(t, func(t *testing.T) {
				c = newCluster(t, seed, p)
				if p.batches {
					c.Wide = spans(t, p.shards)
				}
				c.run()
			})
			ok, bad := c.Outcomes()
			known, failed, kills, completed = known+ok, failed+bad, kills+c.kills, completed+c.completed
			for _, b := range c.Batches() {
				batches++
				if b.Unknown {
					undecided++
				}
			}
			strict(t, fmt.Sprintf("ledger-%d", seed), c)
		})
	}
	t.Logf("%d operations with a known outcome, %d without; %d batches done, %d of them open; %d instances killed, %d splits completed",
		known, failed, batches, undecided, kills, completed)
	if batches < history.Seeds() || p.storm > 0 && (kills == 0 || failed == 0 || undecided == 0) || failed > known || p.splits && completed == 0 {
		t.Error("too little or too much went wrong: that shows nothing")
	}
}

// spans tells whether keys are on more than one of so many shards.
func spans(t *testing.T, shards int) func([]string) bool {
	m, err := keyspace.Default(shards)
	if err != nil {
		t.Fatal(err)
	}
	return func(keys []string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return m.OwnerOf(k) != m.OwnerOf(keys[0]) })
	}
}

// Atomic batches together with operations on single keys are strictly
// serializable: one order explains all that all clients saw, and respects who
// heard of what before doing the next thing.
func TestBatchesAreStrictlySerializable(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) { strictly(t, ledger(mode.leases)) })
	}
}

// The same while shards are split and the tree grows.
func TestBatchesAreStrictlySerializableWhileShardsSplit(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			p := ledger(mode.leases)
			p.splits, p.shards = true, 2
			strictly(t, p)
		})
	}
}

// Where all writes are batches that span shards, and clocks agree, looks at many
// keys are strictly serializable with them. A batch of one shard is seen whole as
// well, but as with any write there, two looks may differ in whether it or a
// write of another shard came first.
func TestLooksAreStrictlySerializableWithBatches(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			p := ledger(mode.leases)
			p.batches, p.honest = true, true
			strictly(t, p)
		})
	}
}

// piecemeal does atomic batches one operation after the other.
type piecemeal struct{ history.AtomicStore }

// AtomicBatch implements history.AtomicStore.
func (s piecemeal) AtomicBatch(ctx context.Context, b *history.Batch) {
	for i := range b.Ops {
		op := &b.Ops[i]
		s.Do(ctx, op)
		if op.Unknown || op.Void {
			b.Unknown = true
		}
		b.Mismatch = b.Mismatch || op.Mismatch
	}
}

// forgetful says that batches were done which were not.
type forgetful struct{ history.AtomicStore }

// AtomicBatch implements history.AtomicStore.
func (s forgetful) AtomicBatch(ctx context.Context, b *history.Batch) {
	dropped := false
	every(4, func() { dropped = b.Operation == "" })
	if !dropped {
		s.AtomicStore.AtomicBatch(ctx, b)
		return
	}
	for i := range b.Ops {
		b.Ops[i].FoundUnset = true
	}
}

// twice does named batches again when they are repeated.
type twice struct{ history.AtomicStore }

// AtomicBatch implements history.AtomicStore.
func (s twice) AtomicBatch(ctx context.Context, b *history.Batch) {
	named := *b
	named.Operation = ""
	s.AtomicStore.AtomicBatch(ctx, &named)
	named.Operation = b.Operation
	*b = named
}

// The check that finds nothing elsewhere finds batches that are not atomic, not
// done, or done twice.
func TestPlantedViolationsOfBatchesAreFound(t *testing.T) {
	for name, wrap := range map[string]func(history.AtomicStore) history.Store{
		"honest":                    func(s history.AtomicStore) history.Store { return s },
		"done piece by piece":       func(s history.AtomicStore) history.Store { return piecemeal{s} },
		"acknowledged and not done": func(s history.AtomicStore) history.Store { return forgetful{s} },
		"done twice":                func(s history.AtomicStore) history.Store { return twice{s} },
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for seed := range uint64(3) {
				var c *cluster
				synctest.Test(t, func(t *testing.T) {
					p := ledger(func(int) bool { return false })
					p.storm, p.each = 0, 20
					c = newCluster(t, seed, p)
					c.wrap = func(s history.Store) history.Store { return wrap(s.(history.AtomicStore)) }
					c.run()
				})
				v := history.CheckLedger(c.Ops(), c.Batches(), nil, 10*time.Second)
				if !v.OK() || len(c.Contradictions()) > 0 {
					found++
				}
			}
			if found > 0 != (name != "honest") {
				t.Errorf("violations found in %d of 3 histories", found)
			}
		})
	}
}
