package tree

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
)

// ErrReshardInProgress: a reshard to another number of shards is running.
var ErrReshardInProgress = errors.New("a reshard to another shard count is in progress")

// ReshardStatus is how far the change of a tree's shard count has come.
type ReshardStatus struct {
	// Complete says that no reshard is running.
	Complete bool
	// Start is the number of shards when the reshard was asked for, Current the
	// number that own slots now, Target the number wanted. When no reshard is
	// running all three are the current number.
	Start, Current, Target int
}

// emptyReshardBudget bounds what a request does to reshard an empty tree at
// once; the ticks of migrations do the rest.
const emptyReshardBudget = 10 * time.Second

// Reshard asks for the tree to grow to target shards, 1 to 4096. The request is
// durable on return, and the ticks of migrations carry it out while the tree
// serves, at most MaxConcurrentMigrations splits at once; an empty tree is
// divided before Reshard returns. started is false if there was nothing to
// begin: the tree has so many shards, or the same reshard is running.
//
// A target out of bounds, or below the current count, is an ArgumentError: a
// tree cannot shrink yet. ErrReshardInProgress if a reshard to another target is
// running.
func (t *Tree) Reshard(ctx context.Context, target int) (status ReshardStatus, started bool, err error) {
	if target < 1 || target > keyspace.Slots {
		return status, false, &ArgumentError{Field: "shardCount", Reason: fmt.Sprintf("must be 1 to %d", keyspace.Slots)}
	}
	m, survey, err := t.surveyed(ctx)
	if err != nil {
		return status, false, err
	}
	if survey.Reshard == nil {
		switch current := len(m.owners); {
		case target == current:
			return t.reshardStatus(m, nil), false, nil
		case target < current:
			reason := fmt.Sprintf("the tree has %d shards; it can grow, and shrinking is not supported yet", current)
			return status, false, &ArgumentError{Field: "shardCount", Reason: reason}
		}
		survey.Reshard, err = t.db.splits.BeginReshard(ctx, m.ID, len(m.owners), target)
		started = err == nil
		if err != nil && !errors.Is(err, split.ErrResharding) {
			return status, false, err
		}
	}
	if r := survey.Reshard; r.Target != target {
		return t.reshardStatus(m, r), false, fmt.Errorf("tree %q grows to %d shards: %w", t.name, r.Target, ErrReshardInProgress)
	}
	if started {
		return t.reshardEmpty(ctx, m, survey.Reshard)
	}
	return t.reshardStatus(m, survey.Reshard), false, nil
}

// surveyed reads what is recorded about the splits of the tree, and then the
// tree.
func (t *Tree) surveyed(ctx context.Context) (*meta, split.Survey, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return nil, split.Survey{}, err
	}
	survey, err := t.db.splits.Survey(ctx, m.ID)
	if err != nil {
		return nil, split.Survey{}, err
	}
	m, err = t.refresh(ctx)
	return m, survey, err
}

func (t *Tree) reshardStatus(m *meta, r *split.Reshard) ReshardStatus {
	current := len(m.owners)
	if r == nil {
		return ReshardStatus{Complete: true, Start: current, Current: current, Target: current}
	}
	return ReshardStatus{Start: r.Start, Current: current, Target: r.Target}
}

// ReshardStatus tells how far the reshard of the tree has come.
func (t *Tree) ReshardStatus(ctx context.Context) (ReshardStatus, error) {
	m, survey, err := t.surveyed(ctx)
	if err != nil {
		return ReshardStatus{}, err
	}
	return t.reshardStatus(m, survey.Reshard), nil
}

// reshardEmpty carries out a reshard that was just begun if the tree is empty.
// What cannot be done now is left to the ticks: the request stands.
func (t *Tree) reshardEmpty(ctx context.Context, m *meta, r *split.Reshard) (ReshardStatus, bool, error) {
	status := t.reshardStatus(m, r)
	if !t.empty(ctx, m) {
		return status, true, nil
	}
	budget := min(emptyReshardBudget, t.db.opts.RequestTimeout/3)
	t.db.migrate(ctx, m.stored, t.db.clock.Now().Mono+budget, &MigrationReport{})
	now, err := t.ReshardStatus(ctx)
	if err != nil {
		return status, true, nil
	}
	if now.Complete {
		now.Start, now.Target = r.Start, r.Target
	}
	return now, true, nil
}

// empty reports whether the tree is known to hold no live entry.
func (t *Tree) empty(ctx context.Context, m *meta) bool {
	x := &splitTree{t: t, id: m.ID}
	var occupied atomic.Bool
	inParallel(parallelSamples, len(m.owners), func(i int) {
		h, err := x.Shard(m.owners[i]).Hotness(ctx)
		if err != nil || h.Live != 0 {
			occupied.Store(true)
		}
	})
	return !occupied.Load()
}

// grow begins the splits that the reshard of a tree needs next.
func (db *DB) grow(ctx context.Context, x *splitTree, s stored, survey split.Survey) ([]*split.State, error) {
	opts, err := db.opts.ForTree(s.Options)
	if err != nil {
		opts = db.opts
	}
	m, err := x.Map(ctx)
	if err != nil {
		return nil, err
	}
	return db.splits.Grow(ctx, x, survey, m, opts.MaxConcurrentMigrations)
}
