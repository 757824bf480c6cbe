package tree_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// What the monitor saw, diagnostics tell: rates, splits by source and target,
// and after minutes without a sample no rate any more.
func TestDiagnosticsTellWhatTheMonitorSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *options.Options) { o.DiagnosticsCacheTtl = 0 })
		s.still = true
		h := s.plant("busy", 800)
		hot := owned(h, 800, 1)
		diagnose := func() []tree.ShardDiagnostics {
			d, err := h.Diagnostics(t.Context(), false)
			s.ok(err)
			return d.Shards
		}
		if x := diagnose()[1]; x.RateKnown || x.Splitting != nil {
			t.Errorf("before the first sample: %+v", x)
		}
		s.play(30*time.Second, func(second int) { s.heat(h, hot, 50, second) })
		shards := diagnose()
		if x := shards[1]; !x.RateKnown || x.Rate < 45 || x.Rate > 55 || x.HotKeys != nil {
			t.Errorf("the hot shard: %+v", x)
		}
		if x := shards[1].Splitting; x == nil || x.Target || x.PeerKnown || x.Phase != split.PhaseBeginShadowWrite.String() {
			t.Errorf("a split that was begun: %+v", x)
		}
		if x := shards[0]; !x.RateKnown || x.Rate > 1 || x.Splitting != nil {
			t.Errorf("a cold shard: %+v", x)
		}
		time.Sleep(10 * time.Minute)
		if x := diagnose()[1]; x.RateKnown {
			t.Errorf("a rate of ten minutes ago: %+v", x)
		}
	})
}

// isolated checks that diagnostics name the key that has a shard for itself.
func (s *stage) isolated(h *tree.Tree, owner keyspace.ShardID, key string) {
	s.t.Helper()
	for _, db := range []*tree.DB{s.db, s.instance()} {
		own, err := db.Open(s.t.Context(), h.Name())
		s.ok(err)
		d, err := own.Diagnostics(s.t.Context(), false)
		s.ok(err)
		for _, x := range d.Shards {
			named := len(x.HotKeys) == 1 && x.HotKeys[0].Key == key && x.HotKeys[0].Certain > 0.9
			if want := x.Shard == owner && db == s.db; named != want || !want && x.HotKeys != nil {
				s.t.Errorf("the instance that serves %v, shard %d of %d slots: hot keys %+v", db == s.db, x.Shard, x.Slots, x.HotKeys)
			}
		}
	}
}
