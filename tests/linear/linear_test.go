// Package linear holds histories of many clients on several instances of the
// service against the order that they must have: in one process under faults,
// and of real processes on real storage.
package linear

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/tests/history"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) {
	history.UseOneCore()
	running.Main(m)
}

// checkLimit bounds the search for an order of one key.
const checkLimit = 60 * time.Second

// modes are who takes leases.
var modes = []struct {
	name   string
	leases func(place int) bool
}{
	{"without leases", func(int) bool { return false }},
	{"with leases", func(int) bool { return true }},
	{"mixed", func(place int) bool { return place%2 == 0 }},
}

// verify holds a history against the order it must have.
func verify(t *testing.T, name string, ops []history.Op, surveys []history.Survey) {
	t.Helper()
	explain(t, name, history.Check(withLooks(ops, surveys), checkLimit))
	for i := range surveys {
		s := &surveys[i]
		if s.Seen != nil {
			continue
		}
		if least, most := history.Bounds(ops, s); s.Total < least || s.Total > most {
			t.Errorf("%s: client %d counted %d of %v between %d and %d, where there were %d to %d",
				name, s.Client, s.Total, s.Keys, s.Call, s.Return, least, most)
		}
	}
}

// withLooks adds what surveys saw, key by key.
func withLooks(ops []history.Op, surveys []history.Survey) []history.Op {
	all := ops[:len(ops):len(ops)]
	for i := range surveys {
		all = append(all, surveys[i].Gets()...)
	}
	return all
}

func explain(t *testing.T, name string, v history.Verdict) {
	t.Helper()
	if v.OK() {
		return
	}
	path := filepath.Join(t.ArtifactDir(), name+".html")
	if v.Key != "" {
		if err := v.Draw(path); err != nil {
			t.Error(err)
		}
	}
	t.Errorf("%s: no order explains %q (undecided %v), see %s", name, v.Key, v.Undecided, path)
}

// eachSeed runs one schedule for each seed in virtual time, and hands on its
// history.
func eachSeed(t *testing.T, p plan, check func(t *testing.T, name string, ops []history.Op, surveys []history.Survey)) {
	var known, failed, kills int
	for seed := range uint64(history.Seeds()) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var c *cluster
			synctest.Test(t, func(t *testing.T) {
				c = newCluster(t, seed, p)
				c.run()
			})
			ok, bad := c.Outcomes()
			known, failed, kills = known+ok, failed+bad, kills+c.kills
			check(t, fmt.Sprintf("seed-%d", seed), c.Ops(), c.Surveys())
		})
	}
	t.Logf("%d operations with a known outcome, %d without, %d instances killed", known, failed, kills)
	if kills == 0 || failed == 0 || failed > known/2 {
		t.Error("too little or too much went wrong: that shows nothing")
	}
}

func TestTreesAreLinearizableUnderFaultsAndKills(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			eachSeed(t, plan{instances: 3, clients: 12, each: 40, keys: 6, shards: 3, storm: 0.15, leases: mode.leases}, verify)
		})
	}
}

// TestOneShardIsLinearizableAsAWhole holds counts and batch reads of a tree of
// one shard to a single moment each.
func TestOneShardIsLinearizableAsAWhole(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			p := plan{instances: 2, clients: 5, each: 16, keys: 3, shards: 1, storm: 0.15, leases: mode.leases}
			eachSeed(t, p, func(t *testing.T, name string, ops []history.Op, surveys []history.Survey) {
				verify(t, name, ops, surveys)
				explain(t, name+"-whole", history.CheckTogether(ops, surveys, checkLimit))
			})
		})
	}
}
