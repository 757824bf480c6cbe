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

// What a pass sees on its way is in its report: sizes, logs that wait for a
// checkpoint, snapshots and how old they are, and how long the oldest split
// takes.
func TestThePassTellsSizesAndAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *options.Options) { o.SnapshotCursorTtl = time.Minute })
		s.still = true
		h := s.plant("busy", 800)
		hot := owned(h, 800, 1)
		s.watch()
		if p := s.latest("busy"); p.Snapshots != 0 || p.OldestSnapshot != 0 || p.OldestSplit != 0 {
			t.Errorf("at rest: %+v", p)
		}
		_, err := h.OpenCursor(t.Context(), tree.CursorQuery{Kind: tree.CursorKeys, Snapshot: true})
		s.ok(err)
		s.play(30*time.Second, func(second int) { s.heat(h, hot, 50, second) })
		_, err = h.OpenCursor(t.Context(), tree.CursorQuery{Kind: tree.CursorKeys, Snapshot: true})
		s.ok(err)
		time.Sleep(sampleEvery)
		s.watch()
		p := s.latest("busy")
		if p.Snapshots != 2 || p.OldestSnapshot < 39*time.Second || p.OldestSnapshot > 41*time.Second {
			t.Errorf("%d snapshots, the oldest of %s", p.Snapshots, p.OldestSnapshot)
		}
		if p.OldestSplit < 10*time.Second || p.OldestSplit > 40*time.Second {
			t.Errorf("the oldest split is of %s", p.OldestSplit)
		}
		var live, bytes int64
		for _, x := range p.Shards {
			live, bytes = live+x.Live, bytes+x.Bytes
		}
		if live != 800 || bytes < 800*int64(len("key-00000")+len("hot")) {
			t.Errorf("%d live keys of %d bytes", live, bytes)
		}
		before := p.Shards[1].TailRows
		_, err = s.db.Checkpoint(t.Context(), time.Minute)
		s.ok(err)
		// The second snapshot has expired by then, and the first long since.
		time.Sleep(2 * time.Minute)
		s.watch()
		if p = s.latest("busy"); before < 400 || p.Shards[1].TailRows > 3 || p.Snapshots != 0 || p.OldestSnapshot != 0 {
			t.Errorf("%d rows of the log before the checkpoint, %d after it, %d snapshots", before, p.Shards[1].TailRows, p.Snapshots)
		}
	})
}

// What callers have begun and not ended, a collection counts: until it ends or
// expires.
func TestACollectionTellsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *options.Options) { o.CursorIdleTtl, o.SnapshotCursorTtl = time.Hour, time.Minute })
		s.plant("idle", 1)
		h := s.loading("busy")
		want := func(cursors, loads int) {
			t.Helper()
			rep, err := s.db.Collect(t.Context(), time.Minute)
			s.ok(err)
			open := map[string]tree.OpenWork{}
			for _, w := range rep.Open {
				open[w.Tree] = w
			}
			if len(open) != 2 || open["busy"] != (tree.OpenWork{Tree: "busy", Cursors: cursors, Loads: loads}) || open["idle"] != (tree.OpenWork{Tree: "idle"}) {
				t.Errorf("open are %+v, want %d cursors and %d loads", rep.Open, cursors, loads)
			}
		}
		want(0, 1)
		for _, snapshot := range []bool{false, false, true} {
			_, err := h.OpenCursor(t.Context(), tree.CursorQuery{Kind: tree.CursorKeys, Snapshot: snapshot})
			s.ok(err)
		}
		want(3, 1)
		time.Sleep(2 * time.Minute)
		want(2, 1)
		want(2, 1)
		_, err := h.AbortBulkLoad(t.Context(), "load")
		s.ok(err)
		time.Sleep(2 * time.Hour)
		want(0, 0)
	})
}
