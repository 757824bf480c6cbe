package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/split"
)

// splitTree is a tree as package split sees it.
type splitTree struct {
	t *Tree
	// id is that of the tree at hand: one that was purged and created again
	// under the same name is another.
	id string
}

var _ split.Tree = (*splitTree)(nil)

// ID implements split.Tree.
func (x *splitTree) ID() string { return x.id }

// Name implements split.Tree.
func (x *splitTree) Name() string { return x.t.name }

// Map implements split.Tree.
func (x *splitTree) Map(ctx context.Context) (*keyspace.Map, error) {
	m, err := x.t.refresh(ctx)
	if err != nil {
		return nil, err
	}
	if m.ID != x.id {
		return nil, x.replaced()
	}
	return m.shardMap, nil
}

func (x *splitTree) replaced() error {
	return fmt.Errorf("tree %q was purged and created again: %w", x.t.name, ErrTreeNotFound)
}

// Allocate implements split.Tree. An index is given out once.
func (x *splitTree) Allocate(ctx context.Context) (keyspace.ShardID, error) {
	s, err := x.update(ctx, func(r *row) error {
		r.NextShard++
		return nil
	})
	if err != nil {
		return 0, err
	}
	return keyspace.ShardID(s.NextShard - 1), nil
}

// Move implements split.Tree.
func (x *splitTree) Move(ctx context.Context, from, to keyspace.ShardID, slots *keyspace.SlotSet, check func(context.Context) error) (uint64, error) {
	s, err := x.update(ctx, func(r *row) error {
		m, err := r.shardMap()
		if err != nil {
			return err
		}
		if err := check(ctx); err != nil {
			return err
		}
		next, moved := m.Reassign(from, to, slots)
		if moved == 0 {
			return errUnchanged
		}
		r.setMap(next)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if m, err := newMeta(s, x.t.db.opts, x.t.db.clock.Now()); err == nil {
		x.t.entry.remember(m)
	}
	return s.MapVersion, nil
}

// update changes the row of this very tree, active or deleted.
func (x *splitTree) update(ctx context.Context, change func(*row) error) (stored, error) {
	return x.t.db.reg.update(ctx, x.t.name, func(r *row) error {
		if r.ID != x.id || r.State == StatePurging {
			return x.replaced()
		}
		return change(r)
	})
}

// Partition implements split.Tree.
func (x *splitTree) Partition(id keyspace.ShardID) string {
	r := row{ID: x.id}
	return r.partition(id)
}

// Shard implements split.Tree.
func (x *splitTree) Shard(id keyspace.ShardID) *shard.Shard {
	tuning := tuningOf(x.t.name, &x.t.db.opts)
	if m := x.t.entry.cur.Load(); m != nil {
		tuning = m.tuning
	}
	return x.t.db.shard(x.Partition(id), tuning).(log).Shard
}

// Options implements split.Tree.
func (x *splitTree) Options() split.Options {
	o := x.t.db.opts
	if m := x.t.entry.cur.Load(); m != nil {
		o = m.opts
	}
	return split.Options{
		SplitDrainBatchSize:          o.SplitDrainBatchSize,
		BackgroundDrainLeavesPerPass: o.BackgroundDrainLeavesPerPass,
		BackgroundDrainMaxDuration:   o.BackgroundDrainMaxDuration,
		LeafBytes:                    o.LeafTargetBytes,
	}
}

// helpBudget bounds what a request does for a split that stands in its way.
const helpBudget = time.Second

// help drives on the splits of the tree that have sealed their slots, when the
// map has not followed: their coordinator may have died, and requests must not
// wait for a timer. A coordinator that is at work is left alone.
func (t *Tree) help(ctx context.Context, m *meta) error {
	if !t.entry.helping.CompareAndSwap(false, true) {
		return nil // one request at a time
	}
	defer t.entry.helping.Store(false)
	active, err := t.db.splits.InFlight(ctx, m.ID)
	if err != nil {
		return err
	}
	for _, s := range active {
		if s.Phase < split.PhaseSwap {
			continue
		}
		_, err := t.db.splits.Advance(ctx, &splitTree{t: t, id: m.ID}, s.Source, helpBudget)
		if err != nil && !errors.Is(err, split.ErrDriven) {
			return fmt.Errorf("complete the split of shard %d: %w", s.Source, err)
		}
	}
	return nil
}

// Splits returns the splits of the tree in flight and the latest that are over,
// newest first.
func (t *Tree) Splits(ctx context.Context) (active, done []*split.State, err error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	return t.db.splits.List(ctx, m.ID)
}

// BeginSplit records a split of a shard, which the next tick of migrations
// carries out. There is no public way to it: the monitor and a reshard decide.
func (t *Tree) BeginSplit(ctx context.Context, source keyspace.ShardID, cause string) (*split.State, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return nil, err
	}
	return t.db.splits.Begin(ctx, &splitTree{t: t, id: m.ID}, source, cause)
}

// MigrationReport says what a tick of migrations did.
type MigrationReport struct {
	// Trees and Splits are the numbers visited; Completed are splits that ended.
	Trees, Splits, Completed int
	// Complete says that the walk came round; otherwise the next tick goes on
	// where this one ended.
	Complete bool
	// Begun counts the splits that reshards began.
	Begun int
	// Failed counts failures; the first ones are in Failures.
	Failed   int
	Failures []Failure
}

// Migrations carries the splits of all trees on, tree after tree for as long as
// the budget lasts (0 is TickBudget); the next call goes on where this one ended.
// Calls may overlap, and may be cut off at any moment.
func (db *DB) Migrations(ctx context.Context, budget time.Duration) (MigrationReport, error) {
	var (
		walk Report
		rep  MigrationReport
	)
	w := db.walker("~walk-migrations", budget, &walk)
	w.tree = func(ctx context.Context, s stored) (bool, error) {
		if s.State == StateActive {
			rep.Trees++
			// A share for each, so that one that has much to do leaves time to
			// those that follow.
			now := db.clock.Now().Mono
			db.migrate(ctx, s, now+max((w.deadline-now)/2, 1), &rep)
		}
		return false, nil
	}
	err := w.run(ctx)
	rep.Complete = walk.Complete
	return rep, err
}

// migrate carries the splits of one tree on, and begins those that a reshard
// needs, round by round until nothing moves or the time is up.
func (db *DB) migrate(ctx context.Context, s stored, deadline time.Duration, rep *MigrationReport) {
	x := &splitTree{t: &db.entryOf(s.Name).reader, id: s.ID}
	for more := true; more && db.clock.Now().Mono < deadline; {
		var err error
		if more, err = db.migrateRound(ctx, x, s, deadline, rep); err != nil {
			rep.fail(s.Name, 0, err)
			return
		}
	}
}

// migrateRound carries every split of a tree on once. It reports whether
// another round has something to do that this one has made possible.
func (db *DB) migrateRound(ctx context.Context, x *splitTree, s stored, deadline time.Duration, rep *MigrationReport) (bool, error) {
	survey, err := db.splits.Survey(ctx, s.ID)
	if err != nil {
		return false, err
	}
	active := survey.Active
	if survey.Reshard != nil {
		begun, err := db.grow(ctx, x, s, survey)
		active = append(active, begun...)
		rep.Begun += len(begun)
		if err != nil {
			return false, err
		}
	}
	slices.SortStableFunc(active, func(a, b *split.State) int { return cmp.Compare(b.Phase, a.Phase) })
	completed := db.advanceAll(ctx, x, active, deadline, rep)
	return survey.Reshard != nil && completed > 0, nil
}

// parallelSplits is how many splits of a tree a tick carries on at once.
const parallelSplits = 8

// advanceAll carries splits on, those closest to their end first, and returns
// how many came to it.
func (db *DB) advanceAll(ctx context.Context, x *splitTree, active []*split.State, deadline time.Duration, rep *MigrationReport) int {
	var (
		mu        sync.Mutex
		completed int
	)
	inParallel(parallelSplits, len(active), func(i int) {
		left := deadline - db.clock.Now().Mono
		if left <= 0 {
			return
		}
		now, err := db.splits.Advance(ctx, x, active[i].Source, left)
		mu.Lock()
		defer mu.Unlock()
		rep.Splits++
		switch {
		case err == nil && now.Phase == split.PhaseDone:
			completed++
		case err != nil && !errors.Is(err, split.ErrDriven):
			rep.fail(x.t.name, active[i].Source, err)
		}
	})
	rep.Completed += completed
	return completed
}

// inParallel calls f for 0 to n-1, at most limit at once, and waits for all.
func inParallel(limit, n int, f func(i int)) {
	var wg sync.WaitGroup
	places := make(chan struct{}, limit)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	wg.Wait()
}

func (r *MigrationReport) fail(tree string, id keyspace.ShardID, err error) {
	if r.Failed++; len(r.Failures) < maxFailures {
		r.Failures = append(r.Failures, Failure{Tree: tree, Shard: id, Err: err})
	}
}
