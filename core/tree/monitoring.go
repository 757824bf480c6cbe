package tree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/split"
)

// SplitActivity is how much is on the move in the whole service, as the
// monitors last reported it: see DB.SplitActivity.
type SplitActivity struct {
	// InFlight sums the migrations of all trees that report any, including
	// those that have just been granted to a tree and are about to begin.
	InFlight int
	// ReportingTrees is the number of those trees.
	ReportingTrees int
	// ObservedAt is the time of this reading.
	ObservedAt time.Time
	// AnyInFlight says that InFlight is not 0.
	AnyInFlight bool
}

// MonitorReport says what a tick of the monitor did: see DB.Monitor.
type MonitorReport struct {
	// Trees is the number of trees looked at, active or not.
	Trees int
	// Complete says that the walk came round; otherwise the next tick goes on
	// where this one ended.
	Complete bool
	// Started counts the splits begun.
	Started int
	// Passes describe the active trees, in the order visited, the first 1000.
	Passes []MonitorPass
	// Failed counts failures; the first ones are in Failures.
	Failed   int
	Failures []Failure
}

// MonitorPass is what a tick saw and did in one tree.
type MonitorPass struct {
	Tree string
	// Skipped says why the tick did not look at the shards: SkippedEarly or
	// SkippedOvertaken, empty if it did. Then the other fields are unset.
	Skipped string
	// Shards are the samples of the shards that own slots, in order of index.
	Shards []ShardRate
	// Started are the sources of the splits begun; the next tick of migrations
	// carries them out.
	Started []keyspace.ShardID
	// OldestSplit is the age of the split that has been in flight for longest
	// before the pass, OldestSnapshot that of the oldest snapshot that is kept;
	// 0 if there is none. Snapshots counts these: the most that one shard keeps.
	OldestSplit, OldestSnapshot time.Duration
	Snapshots                   int
	// Decision says which shards are hot, and why those of them that are not
	// among Started are not split now.
	split.Decision
}

// Why a tick did not look at a tree.
const (
	// SkippedEarly: less than half of HotShardSampleInterval has passed since
	// the last sample.
	SkippedEarly = "early"
	// SkippedOvertaken: another tick looked at the same time, and was first.
	SkippedOvertaken = "overtaken"
)

// ShardRate is a sample of one shard.
type ShardRate struct {
	split.ShardSample
	// Reads and Writes are operations since the shard was created.
	Reads, Writes uint64
	// Bytes estimates the user data of the live entries.
	Bytes int64
	// TailRows is the number of log rows that no checkpoint holds yet.
	TailRows int64
}

const (
	// parallelSamples is how many shards of a tree are sampled at once.
	parallelSamples = 16
	// maxMonitorPasses bounds the passes that a report describes.
	maxMonitorPasses = 1000
	// footprintIntervals is how many sample intervals a footprint lasts.
	footprintIntervals = 3
)

// SplitActivity tells how many migrations are in flight in all trees, as their
// monitors last reported: one read. The number is refreshed with each pass of a
// monitor; what a tree reported is forgotten after three sample intervals.
func (db *DB) SplitActivity(ctx context.Context) (SplitActivity, error) {
	a, err := db.gate().Activity(ctx)
	if err != nil {
		return SplitActivity{}, err
	}
	return SplitActivity{
		InFlight: a.InFlight, ReportingTrees: a.ReportingTrees,
		ObservedAt: db.clock.Now().Time(), AnyInFlight: a.InFlight > 0,
	}, nil
}

func (db *DB) gate() *split.Gate { return &split.Gate{Table: db.table, Clock: db.clock} }

// Monitor samples the shards of all trees, tree after tree for as long as the
// budget lasts (0 is TickBudget), and begins splits of the hot ones by the rules
// of package split; the next call goes on where this one ended. Calls may
// overlap, and come more often than HotShardSampleInterval: a tree is looked at
// when half an interval has passed. What fails for one tree is in the report
// and does not stop the others; the error is about the walk itself.
func (db *DB) Monitor(ctx context.Context, budget time.Duration) (MonitorReport, error) {
	var (
		walk Report
		rep  MonitorReport
	)
	w := db.walker("~walk-monitor", budget, &walk)
	w.tree = func(ctx context.Context, s stored) (bool, error) {
		w.visited = true
		if s.State != StateActive || !s.Settled {
			return false, nil
		}
		p, err := db.monitorTree(ctx, s, &walk)
		rep.Started += len(p.Started)
		if len(rep.Passes) < maxMonitorPasses {
			rep.Passes = append(rep.Passes, p)
		}
		return false, err
	}
	err := w.run(ctx)
	rep.Trees, rep.Complete, rep.Failed, rep.Failures = walk.Trees, walk.Complete, walk.Failed, walk.Failures
	return rep, err
}

// monitorPass is one pass of the monitor over one tree at work.
type monitorPass struct {
	db     *DB
	x      *splitTree
	m      *meta
	opts   *options.Options
	survey split.Survey
	// loading says that a bulk load of the tree is under way.
	loading bool
	state   *split.MonitorState
	now     int64
	walk    *Report
	out     MonitorPass
}

// monitorTree makes a pass over a tree.
func (db *DB) monitorTree(ctx context.Context, s stored, walk *Report) (MonitorPass, error) {
	p := &monitorPass{db: db, x: &splitTree{t: &db.entryOf(s.Name).reader, id: s.ID}, walk: walk, now: db.clock.Now().Milli()}
	p.out.Tree = s.Name
	var err error
	if p.survey, err = db.splits.Survey(ctx, s.ID); err != nil {
		return p.out, err
	}
	if p.state = p.survey.Monitor; p.state == nil {
		p.state = &split.MonitorState{}
	}
	if !p.state.Due(p.now, db.opts.HotShardSampleInterval) {
		p.out.Skipped = SkippedEarly
		return p.out, nil
	}
	if p.loading, err = db.bulkPending(ctx, s.ID); err != nil {
		return p.out, err
	}
	// The map is read after the splits, so that the target of each of them is
	// counted in one or the other.
	if s, err = db.reg.read(ctx, s.Name); err != nil {
		return p.out, err
	}
	if s.ID != p.x.id {
		return p.out, p.x.replaced()
	}
	if p.m, err = newMeta(s, db.opts, db.clock.Now()); err != nil {
		return p.out, err
	}
	p.opts = &p.m.opts
	return p.out, p.run(ctx)
}

// run samples, decides, notes what it saw, and only then acts.
func (p *monitorPass) run(ctx context.Context) error {
	sample := p.sample(ctx)
	p.out.Decision = split.Decide(rulesOf(p.opts), sample)
	want := len(p.out.Chosen())
	published := p.state.Published
	p.state.Published = p.out.InFlight+want > 0
	switch err := p.db.splits.SaveMonitor(ctx, p.x.id, p.state); {
	case errors.Is(err, split.ErrOutdated):
		p.out = MonitorPass{Tree: p.out.Tree, Skipped: SkippedOvertaken}
		return nil
	case err != nil:
		p.out.Fail()
		return err
	}
	if published || p.state.Published {
		if err := p.admit(ctx, want); err != nil {
			return err
		}
	}
	return p.begin(ctx)
}

func rulesOf(o *options.Options) split.Rules {
	return split.Rules{
		AutoSplitEnabled:              o.AutoSplitEnabled,
		AutoSplitMinTreeAge:           o.AutoSplitMinTreeAge,
		HotShardOpsPerSecondThreshold: o.HotShardOpsPerSecondThreshold,
		HotShardMinSkewRatio:          o.HotShardMinSkewRatio,
		HotShardMinShardEntries:       o.HotShardMinShardEntries,
		MaxConcurrentAutoSplits:       o.MaxConcurrentAutoSplits,
		MaxPhysicalShardsPerTree:      o.MaxPhysicalShardsPerTree,
	}
}

// admit reports to the cluster, and defers what it does not admit. A tree that
// has set no ceiling asks for nothing: its splits do not depend on the report.
func (p *monitorPass) admit(ctx context.Context, want int) error {
	ceiling := p.opts.MaxClusterConcurrentAutoSplits
	granted, err := p.db.gate().Report(ctx, split.Request{
		Tree: p.x.id, InFlight: p.out.InFlight, Want: want, Ceiling: ceiling,
		TTL: footprintIntervals * p.db.opts.HotShardSampleInterval,
	})
	switch {
	case err == nil:
		p.out.Limit(granted)
	case ceiling > 0:
		p.out.Fail()
		return err
	default:
		p.walk.fail(p.out.Tree, 0, err)
	}
	return nil
}

// begin records the splits that were decided on, the hottest first.
func (p *monitorPass) begin(ctx context.Context) error {
	var failed error
	for i := range p.out.Candidates {
		c := &p.out.Candidates[i]
		if c.Reason != "" {
			continue
		}
		err := failed
		if err == nil {
			err = p.db.splits.BeginAutomatic(ctx, p.x, p.state, c.Shard)
		}
		switch {
		case err == nil:
			p.out.Started = append(p.out.Started, c.Shard)
		case errors.Is(err, split.ErrBusy):
			c.Reason = split.ReasonSplitting
		case errors.Is(err, split.ErrTooSmall):
			c.Reason = split.ReasonSingleSlot
		case errors.Is(err, split.ErrOutdated):
			c.Reason, failed = split.ReasonOutdated, err
		default:
			c.Reason, failed = split.ReasonFailed, err
		}
	}
	if errors.Is(failed, split.ErrOutdated) {
		return nil
	}
	return failed
}

// sample asks every shard that owns slots. One that does not answer has no rate
// in this pass.
func (p *monitorPass) sample(ctx context.Context) split.Sample {
	counts := map[keyspace.ShardID]split.Count{}
	rates := make([]ShardRate, len(p.m.owners))
	var mu sync.Mutex
	inParallel(parallelSamples, len(rates), func(i int) {
		id := p.m.owners[i]
		h, err := p.db.shard(p.m.partitions[id], p.m.tuning).(log).Hotness(ctx)
		at := p.db.clock.Now().Milli()
		mu.Lock()
		defer mu.Unlock()
		rates[i] = p.rateOf(id, h)
		p.noteAges(h)
		counts[id] = split.Count{Reads: h.Reads, Writes: h.Writes, At: at}
		if err != nil {
			counts[id] = p.state.Counts[id]
			p.walk.fail(p.out.Tree, id, fmt.Errorf("sample: %w", err))
		}
	})
	perSecond := p.state.Observe(p.now, counts)
	slots := split.SlotCounts(p.m.shardMap)
	out := split.Sample{
		Age:         time.Duration(p.now-p.m.Created) * time.Millisecond,
		Resharding:  p.survey.Reshard != nil,
		BulkPending: p.loading,
		Unborn:      split.Unborn(p.m.shardMap, p.survey.Active),
		InFlight:    len(p.survey.Active),
	}
	for i := range rates {
		r := &rates[i]
		r.Rate, r.Known = perSecond[r.Shard]
		r.Slots = slots[r.Shard]
		if r.Splitting && !p.recorded(r.Shard) {
			out.InFlight++
		}
		out.Shards = append(out.Shards, r.ShardSample)
	}
	p.out.Shards = rates
	for _, s := range p.survey.Active {
		p.out.OldestSplit = max(p.out.OldestSplit, p.since(s.Started))
	}
	return out
}

// noteAges takes over what a shard keeps for snapshots. Each snapshot pins every
// shard that owned slots when it was opened.
func (p *monitorPass) noteAges(h shard.Hotness) {
	p.out.Snapshots = max(p.out.Snapshots, h.Pins)
	if h.OldestPin != 0 {
		p.out.OldestSnapshot = max(p.out.OldestSnapshot, p.since(h.OldestPin))
	}
}

// since is how long before the pass a Unix millisecond was.
func (p *monitorPass) since(milli int64) time.Duration {
	return time.Duration(p.now-milli) * time.Millisecond
}

func (p *monitorPass) rateOf(id keyspace.ShardID, h shard.Hotness) ShardRate {
	return ShardRate{Reads: h.Reads, Writes: h.Writes, Bytes: h.Bytes, TailRows: h.TailRows, ShardSample: split.ShardSample{
		Shard: id, Live: h.Live, Incoming: h.Incoming, Splitting: h.Outgoing || p.recorded(id),
		CoolingDown: p.state.CoolingDown(id, p.now, p.opts.HotShardSplitCooldown),
	}}
}

// recorded reports whether a split of the shard is recorded.
func (p *monitorPass) recorded(id keyspace.ShardID) bool {
	return slices.ContainsFunc(p.survey.Active, func(s *split.State) bool { return s.Source == id })
}
