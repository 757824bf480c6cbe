package tree_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// stage is a store on which time is played, with monitor and migrations.
type stage struct {
	t    *testing.T
	src  clock.Source
	mem  *memory.Store
	edit func(*options.Options)
	db   *tree.DB
	// passes are those of the monitor by tree, the latest last.
	passes map[string][]tree.MonitorPass
	// replaced says that every tick is that of a new instance; still that the
	// splits that were begun are not carried out.
	replaced, still bool
}

func stageKey(i int) string { return fmt.Sprintf("key-%05d", i) }

// sampleEvery is the interval of the monitor on the stage.
const sampleEvery = 10 * time.Second

func newStage(t *testing.T, edit func(*options.Options)) *stage {
	src := clock.NewSystem()
	s := &stage{t: t, src: src, mem: memory.New(memory.Options{Clock: src}), edit: edit, passes: map[string][]tree.MonitorPass{}}
	s.db = s.instance()
	return s
}

func (s *stage) instance() *tree.DB {
	s.t.Helper()
	slow := faulty.New(s.mem.Table(), s.mem.Blobs(), faulty.Options{Clock: s.src})
	slow.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(50*time.Microsecond, 50*time.Microsecond)})
	o := options.Default()
	o.HotShardSampleInterval, o.AutoSplitMinTreeAge, o.HotShardSplitCooldown = sampleEvery, 0, 0
	o.HotShardOpsPerSecondThreshold, o.HotShardMinShardEntries = 20, 0
	s.edit(&o)
	db, err := tree.New(tree.Config{Table: slow.Table(), Blobs: slow.Blobs(), Clock: s.src, Options: o})
	s.ok(err)
	return db
}

func (s *stage) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// plant fills a tree with n keys and returns it.
func (s *stage) plant(name string, n int) *tree.Tree {
	s.t.Helper()
	h, err := s.db.OpenOrCreate(s.t.Context(), name)
	s.ok(err)
	ops := make([]tree.BatchOp, n)
	for i := range ops {
		ops[i] = tree.BatchOp{Key: stageKey(i), Value: []byte("planted")}
	}
	_, err = h.Batch(s.t.Context(), ops)
	s.ok(err)
	return h
}

// owned are the keys among the first n that a shard owns now.
func owned(h *tree.Tree, n int, id keyspace.ShardID) (keys []string) {
	for i := range n {
		if h.ShardMap().OwnerOf(stageKey(i)) == id {
			keys = append(keys, stageKey(i))
		}
	}
	return keys
}

// heat writes so many keys, in turn, as one second's load.
func (s *stage) heat(h *tree.Tree, keys []string, perSecond, second int) {
	s.t.Helper()
	for i := range perSecond {
		_, err := h.Put(s.t.Context(), keys[(second*perSecond+i)%len(keys)], []byte("hot"), tree.PutOptions{})
		s.ok(err)
	}
}

// play lets seconds go by: load is called for each, the migrations tick with
// each, the monitor with every interval.
func (s *stage) play(d time.Duration, load func(second int)) {
	s.t.Helper()
	for second := range int(d / time.Second) {
		if load != nil {
			load(second)
		}
		time.Sleep(time.Second)
		if !s.still {
			s.migrate()
		}
		if (second+1)%int(sampleEvery/time.Second) == 0 {
			s.watch()
		}
	}
}

func (s *stage) ticker() *tree.DB {
	if s.replaced {
		return s.instance()
	}
	return s.db
}

func (s *stage) migrate() {
	s.t.Helper()
	rep, err := s.ticker().Migrations(s.t.Context(), time.Minute)
	s.ok(err)
	for _, f := range rep.Failures {
		s.t.Errorf("migrations: %+v", f)
	}
}

func (s *stage) watch() {
	s.t.Helper()
	rep, err := s.ticker().Monitor(s.t.Context(), time.Minute)
	s.ok(err)
	for _, f := range rep.Failures {
		s.t.Errorf("monitor: %+v", f)
	}
	for _, p := range rep.Passes {
		s.passes[p.Tree] = append(s.passes[p.Tree], p)
	}
}

// latest is the last pass over a tree.
func (s *stage) latest(name string) tree.MonitorPass {
	s.t.Helper()
	p := s.passes[name]
	if len(p) == 0 {
		s.t.Fatalf("the monitor never looked at %s", name)
	}
	return p[len(p)-1]
}

// told gathers the reasons for which hot shards were not split.
func (s *stage) told(name string) map[split.Reason]int {
	out := map[split.Reason]int{}
	for _, p := range s.passes[name] {
		for _, c := range p.Candidates {
			out[c.Reason]++
		}
	}
	return out
}

// splits are all splits of a tree, oldest first.
func (s *stage) splits(h *tree.Tree) []*split.State {
	s.t.Helper()
	active, done, err := h.Splits(s.t.Context())
	s.ok(err)
	all := append(active, done...)
	slices.SortFunc(all, func(a, b *split.State) int { return int(a.Started - b.Started) })
	return all
}

func (s *stage) counts(h *tree.Tree, want int64) {
	s.t.Helper()
	c, err := h.Count(s.t.Context(), tree.Bounds{}, tree.ReadOptions{})
	s.ok(err)
	if c.Total != want {
		s.t.Errorf("count %d, want %d", c.Total, want)
	}
}

func TestTheMonitorSplitsAHotShardByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 1500
		s := newStage(t, func(o *options.Options) { o.HotShardMinShardEntries = 20 })
		h := s.plant("busy", keys)
		hot := owned(h, keys, 0)
		s.play(3*time.Minute, func(second int) {
			s.heat(h, hot, 60, second)
			s.counts(h, keys)
		})
		splits := s.splits(h)
		if len(splits) < 2 {
			t.Fatalf("%d splits: %v", len(splits), s.told("busy"))
		}
		if splits[0].Source != 0 || splits[0].Cause != split.CauseMonitor {
			t.Errorf("the first split is of shard %d, for %s", splits[0].Source, splits[0].Cause)
		}
		for _, x := range splits {
			if x.Source >= 1 && x.Source <= 3 {
				t.Errorf("shard %d is cold, and was split", x.Source)
			}
		}
		for _, r := range s.latest("busy").Shards {
			if r.Rate > 31 {
				t.Errorf("shard %d still has %.0f operations a second", r.Shard, r.Rate)
			}
		}
		t.Logf("%d splits, told %v", len(splits), s.told("busy"))
	})
}

func TestASingleHotKeyEndsInIsolationOfItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(o *options.Options) { o.DefaultShardCount = 1 })
		h := s.plant("single", 50)
		hot := []string{stageKey(7)}
		load := func(second int) { s.heat(h, hot, 40, second) }
		s.play(8*time.Minute, load)
		before := len(s.splits(h))
		if before < 11 || before > 13 {
			t.Errorf("%d splits to isolate one slot of %d", before, keyspace.Slots)
		}
		owner := h.ShardMap().OwnerOf(hot[0])
		if n := split.SlotCounts(h.ShardMap())[owner]; n != 1 {
			t.Errorf("the owner of the hot key has %d slots", n)
		}
		s.play(3*time.Minute, load)
		if after := len(s.splits(h)); after != before {
			t.Errorf("%d splits more although no slot is left to divide", after-before)
		}
		p := s.latest("single")
		if len(p.Candidates) != 1 || p.Candidates[0].Shard != owner || p.Candidates[0].Reason != split.ReasonSingleSlot {
			t.Errorf("told %+v, want shard %d with a single slot", p.Candidates, owner)
		}
		s.isolated(h, owner, hot[0])
	})
}

func TestLoadThatNoSplitCanRelieveSplitsNothing(t *testing.T) {
	const keys = 400
	tests := []struct {
		name   string
		edit   func(*options.Options)
		hot    func(h *tree.Tree) []string
		reason split.Reason
	}{
		{"a bulk load heats every shard", func(*options.Options) {}, func(h *tree.Tree) []string {
			var all []string
			for i := range 80 {
				for id := range keyspace.ShardID(4) {
					all = append(all, owned(h, keys, id)[i])
				}
			}
			return all
		}, split.ReasonUniformLoad},
		{"a tiny shard", func(o *options.Options) { o.HotShardMinShardEntries = keys }, func(h *tree.Tree) []string { return owned(h, keys, 2) }, split.ReasonLowOccupancy},
		{"the ceiling", func(o *options.Options) { o.MaxPhysicalShardsPerTree = 4 }, func(h *tree.Tree) []string { return owned(h, keys, 2) }, split.ReasonShardCeiling},
		{"switched off", func(o *options.Options) { o.AutoSplitEnabled = false }, func(h *tree.Tree) []string { return owned(h, keys, 2) }, split.ReasonDisabled},
		{"too young", func(o *options.Options) { o.AutoSplitMinTreeAge = time.Hour }, func(h *tree.Tree) []string { return owned(h, keys, 2) }, split.ReasonTreeAge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, tt.edit)
				h := s.plant("idle", keys)
				hot := tt.hot(h)
				s.play(time.Minute, func(second int) { s.heat(h, hot, 160, second) })
				if n := len(s.splits(h)); n != 0 {
					t.Errorf("%d splits", n)
				}
				if told := s.told("idle"); len(told) != 1 || told[tt.reason] == 0 {
					t.Errorf("told %v, want %s alone", told, tt.reason)
				}
				a, err := s.db.SplitActivity(t.Context())
				s.ok(err)
				if a.AnyInFlight || a.ReportingTrees != 0 {
					t.Errorf("activity %+v", a)
				}
			})
		})
	}
}

// TestCooldownAndAgeSurviveTheInstance makes every tick that of an instance that
// knows nothing but what is stored.
func TestCooldownAndAgeSurviveTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, age, cooldown = 800, time.Minute, 2 * time.Minute
		s := newStage(t, func(o *options.Options) { o.AutoSplitMinTreeAge, o.HotShardSplitCooldown = age, cooldown })
		s.replaced = true
		created := s.src.Now().Milli()
		h := s.plant("tree", keys)
		hot := owned(h, keys, 0)
		s.play(6*time.Minute, func(second int) { s.heat(h, hot, 100, second) })
		last, again := map[keyspace.ShardID]int64{}, 0
		for _, x := range s.splits(h) {
			if x.Started-created < age.Milliseconds() {
				t.Errorf("a split after %d ms", x.Started-created)
			}
			if at, ok := last[x.Source]; ok {
				if again++; x.Started-at < cooldown.Milliseconds() {
					t.Errorf("shard %d is split again after %d ms", x.Source, x.Started-at)
				}
			}
			last[x.Source] = x.Started
		}
		told := s.told("tree")
		if again == 0 || told[split.ReasonCooldown] == 0 || told[split.ReasonTreeAge] == 0 {
			t.Errorf("%d repeated splits, told %v", again, told)
		}
	})
}

func TestTwoTreesShareTheCeilingOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		s := newStage(t, func(o *options.Options) { o.MaxClusterConcurrentAutoSplits = 1 })
		s.still = true
		a, b := s.plant("a", keys), s.plant("b", keys)
		hotA, hotB := owned(a, keys, 0), owned(b, keys, 0)
		load := func(second int) {
			s.heat(a, hotA, 50, second)
			s.heat(b, hotB, 50, second)
		}
		s.play(time.Minute, load)
		if na, nb := len(s.splits(a)), len(s.splits(b)); na != 1 || nb != 0 {
			t.Fatalf("%d and %d splits begun under a ceiling of 1", na, nb)
		}
		if told := s.told("b"); told[split.ReasonClusterCap] == 0 || told[""] != 0 {
			t.Errorf("told %v", told)
		}
		act, err := s.db.SplitActivity(t.Context())
		s.ok(err)
		if act.InFlight != 1 || act.ReportingTrees != 1 || !act.AnyInFlight || act.ObservedAt.IsZero() {
			t.Errorf("activity %+v", act)
		}
		// Once it is carried out, and no more wanted by a, the place is b's.
		s.still = false
		s.play(time.Minute, func(second int) { s.heat(b, hotB, 50, second) })
		if n := len(s.splits(b)); n == 0 {
			t.Errorf("no split although the place is free: %v", s.told("b"))
		}
	})
}

func TestTheFootprintOfADeadTreeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		s := newStage(t, func(o *options.Options) { o.MaxClusterConcurrentAutoSplits = 2 })
		h := s.plant("alive", keys)
		hot := owned(h, keys, 0)
		g := &split.Gate{Table: s.mem.Table(), Clock: s.src}
		_, err := g.Report(t.Context(), split.Request{Tree: "dead", InFlight: 2, Ceiling: 2, TTL: 3 * sampleEvery})
		s.ok(err)
		load := func(second int) { s.heat(h, hot, 50, second) }
		s.play(29*time.Second, load)
		if n := len(s.splits(h)); n != 0 || s.told("alive")[split.ReasonClusterCap] == 0 {
			t.Fatalf("%d splits, told %v", n, s.told("alive"))
		}
		s.play(20*time.Second, load)
		if len(s.splits(h)) == 0 {
			t.Errorf("no split after the footprint expired: %v", s.told("alive"))
		}
	})
}

func TestATreeWithoutACeilingIsSeenAndTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		s := newStage(t, func(*options.Options) {})
		s.still = true
		h := s.plant("free", keys)
		hot := owned(h, keys, 0)
		s.play(30*time.Second, func(second int) { s.heat(h, hot, 50, second) })
		a, err := s.db.SplitActivity(t.Context())
		s.ok(err)
		if a.InFlight != 1 || a.ReportingTrees != 1 {
			t.Errorf("activity %+v", a)
		}
		g := &split.Gate{Table: s.mem.Table(), Clock: s.src}
		n, err := g.Report(t.Context(), split.Request{Tree: "other", Want: 1, Ceiling: 1, TTL: time.Minute})
		s.ok(err)
		if n != 1 {
			t.Error("a tree without a ceiling held back one that has set it")
		}
		s.still = false
		s.play(40*time.Second, nil)
		a, err = s.db.SplitActivity(t.Context())
		s.ok(err)
		if a.InFlight != 1 { // that of the other tree alone
			t.Errorf("activity %+v after the split is over", a)
		}
	})
}

func TestOverlappingTicksCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		s := newStage(t, func(*options.Options) {})
		s.still = true
		h := s.plant("tree", keys)
		hot := owned(h, keys, 0)
		s.watch()
		for second := range 10 {
			s.heat(h, hot, 50, second)
			time.Sleep(time.Second)
		}
		var (
			wg      sync.WaitGroup
			mu      sync.Mutex
			started int
			skipped = map[string]int{}
		)
		for range 6 {
			db := s.instance()
			wg.Go(func() {
				rep, err := db.Monitor(context.Background(), time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(rep.Failures) > 0 {
					t.Error(err, rep.Failures)
				}
				for _, p := range rep.Passes {
					started += len(p.Started)
					skipped[p.Skipped]++
				}
			})
		}
		wg.Wait()
		if started != 1 || skipped[""] != 1 || skipped[tree.SkippedOvertaken] != 5 {
			t.Errorf("%d started, %v", started, skipped)
		}
		time.Sleep(sampleEvery/2 - time.Second)
		s.watch()
		if p := s.latest("tree"); p.Skipped != tree.SkippedEarly || len(p.Shards) != 0 {
			t.Errorf("a tick that comes early: %+v", p)
		}
	})
}

func TestReadsAreHeatToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 400
		s := newStage(t, func(*options.Options) {})
		h := s.plant("read", keys)
		hot := owned(h, keys, 3)
		s.play(2*time.Minute, func(second int) {
			for i := range 50 {
				_, _, err := h.Get(t.Context(), hot[(second*50+i)%len(hot)], tree.ReadOptions{})
				s.ok(err)
			}
		})
		if all := s.splits(h); len(all) == 0 || all[0].Source != 3 {
			t.Errorf("%d splits, told %v", len(all), s.told("read"))
		}
	})
}

func TestTheMonitorGoesOnWhereItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(*options.Options) {})
		for i := range 5 {
			s.plant(fmt.Sprint("tree", i), 4)
		}
		seen := map[string]int{}
		for range 5 {
			rep, err := s.db.Monitor(t.Context(), time.Nanosecond)
			s.ok(err)
			if rep.Complete || len(rep.Passes) != 1 {
				t.Fatalf("a tick without time: %+v", rep)
			}
			seen[rep.Passes[0].Tree]++
		}
		if len(seen) != 5 {
			t.Errorf("visited %v", slices.Sorted(maps.Keys(seen)))
		}
	})
}
