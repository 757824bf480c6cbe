// Package split divides a hot shard in two while it serves, without a moment at
// which a key has two owners or none that answers rightly.
//
// # Why it is safe
//
// The moved slots change owner in one place, the shard map, by one conditional
// write. Before it the source, sealed by an append to its own log, refuses the
// slots through every instance, whatever that remembers: so nothing is written
// to them, or read from them, between the seal and the swap. What the source
// had by the seal is in its log or its leaves, and all of it is carried to the
// target with the original versions before the map moves: the walk takes what
// was there when the log row Since was appended, and the rows after Since, which
// the collector keeps, are read to the seal. Mirrors only make that last part
// short. The target takes entries of this migration alone, and only while its
// own head says so; so a mirror that was delayed for hours is refused there.
// Entries meet by version, and the later wins, in whatever order they come.
//
// Every phase may be repeated, by anybody, at any time: its effects are
// conditional appends that change nothing the second time. The state row is
// written before a phase begins, and guarded by its ETag.
package split

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/trace"
)

var (
	// ErrBusy: a split of the source is recorded already.
	ErrBusy = errors.New("the shard is being split")
	// ErrTooSmall: the shard owns fewer than two slots.
	ErrTooSmall = errors.New("the shard cannot be divided further")
	// ErrDriven: another coordinator is at work on the split.
	ErrDriven = errors.New("another coordinator drives the split")
	// ErrOutdated: what the decision to split was based on has changed.
	ErrOutdated = errors.New("another tick was first")
	// errOvertaken: another coordinator has saved a newer state.
	errOvertaken = fmt.Errorf("overtaken: %w", ErrDriven)
)

// Tree is what a coordinator needs of the tree whose shard it splits.
type Tree interface {
	// Name is what callers call the tree.
	Name() string
	// ID names the tree's partitions.
	ID() string
	// Map reads the live shard map.
	Map(ctx context.Context) (*keyspace.Map, error)
	// Allocate returns a shard index that was never used.
	Allocate(ctx context.Context) (keyspace.ShardID, error)
	// Move gives those of the slots that from owns under the live map to to,
	// under a fresh version, by re-reading the map and a conditional write, and
	// returns the version. check is called after the map was read; its error
	// ends the move. Moving what has moved changes nothing.
	Move(ctx context.Context, from, to keyspace.ShardID, slots *keyspace.SlotSet, check func(context.Context) error) (uint64, error)
	// Partition returns the partition of a shard.
	Partition(id keyspace.ShardID) string
	// Shard returns a shard.
	Shard(id keyspace.ShardID) *shard.Shard
	// Options are the tree's own.
	Options() Options
}

// Options are the tunables of a split.
type Options struct {
	// SplitDrainBatchSize is the most entries the drain holds in memory.
	SplitDrainBatchSize int
	// BackgroundDrainLeavesPerPass bounds the leaves a pass of the drain visits
	// before it saves its cursor; 0 or less is no bound.
	BackgroundDrainLeavesPerPass int
	// BackgroundDrainMaxDuration bounds a pass in time; 0 is no bound.
	BackgroundDrainMaxDuration time.Duration
	// LeafBytes is the size of a leaf.
	LeafBytes int64
}

// Coordinator carries splits out. It is safe for concurrent use and keeps
// nothing: all state is in the table.
type Coordinator struct {
	Table store.Table
	Clock clock.Source
	// Driver identifies this coordinator, random and not 0.
	Driver uint64
	// Events are told what happens; any may be nil.
	Events Events
	// Trace follows the work on phases; nil is nobody.
	Trace trace.Hook
}

// Events are functions that observe splits.
type Events struct {
	// Phase is called when a phase is over.
	Phase func(ctx context.Context, tree Tree, s *State, p Phase, took time.Duration)
	// Forwarded is called with the number of entries that the drain sent.
	Forwarded func(tree Tree, n int)
}

// driverLease is how long a coordinator that has saved a state has it to
// itself. It is short: whoever meets sealed slots waits for it at most.
const driverLease = time.Second

// Begin records a split of the source: the upper half of the slots that it owns
// moves. ErrBusy returns the one that is recorded. Nothing else is done yet;
// the record is durable when Begin returns nil.
func (c *Coordinator) Begin(ctx context.Context, tree Tree, source keyspace.ShardID, cause string) (*State, error) {
	s, _, err := c.begin(ctx, tree, source, cause)
	return s, err
}

// begin records a split in one transaction with guard, a change of other rows
// of the tree's partition, and returns the new ETags of those. When a condition
// of guard fails nothing is recorded and the error is ErrOutdated. No ETags and
// no error: it is recorded, but the reply was lost.
func (c *Coordinator) begin(ctx context.Context, tree Tree, source keyspace.ShardID, cause string, guard ...store.Op) (*State, []store.ETag, error) {
	m, err := tree.Map(ctx)
	if err != nil {
		return nil, nil, err
	}
	slots, err := upperHalf(m, source)
	if err != nil {
		return nil, nil, err
	}
	now := c.Clock.Now().Milli()
	s := &State{
		ID: fmt.Sprintf("%016x", c.Clock.Uint64()), Phase: PhaseBeginShadowWrite, Source: source, Slots: slots,
		Cause: cause, Started: now, Entered: map[Phase]int64{PhaseBeginShadowWrite: now},
	}
	etags, err := rows{c.Table}.insert(ctx, tree.ID(), s, guard)
	if err == nil {
		return s, etags, nil
	}
	have, lerr := rows{c.Table}.load(ctx, tree.ID(), source)
	switch {
	case lerr == nil && have == nil && lost(err):
		return nil, nil, fmt.Errorf("shard %d: %w: %w", source, ErrOutdated, err)
	case lerr != nil || have == nil:
		return nil, nil, errors.Join(err, lerr)
	case have.ID == s.ID:
		return have, nil, nil
	}
	return have, nil, fmt.Errorf("shard %d: %w", source, ErrBusy)
}

// upperHalf returns the upper half of the slots that a shard owns.
func upperHalf(m *keyspace.Map, source keyspace.ShardID) (keyspace.SlotSet, error) {
	var owned []uint16
	for slot := range uint16(keyspace.Slots) {
		if m.Owner(slot) == source {
			owned = append(owned, slot)
		}
	}
	var half keyspace.SlotSet
	if len(owned) < 2 {
		return half, fmt.Errorf("shard %d owns %d slots: %w", source, len(owned), ErrTooSmall)
	}
	for _, slot := range owned[(len(owned)+1)/2:] {
		half.Add(slot)
	}
	return half, nil
}

// Find returns the split of a source, nil if none is recorded.
func (c *Coordinator) Find(ctx context.Context, treeID string, source keyspace.ShardID) (*State, error) {
	return rows{c.Table}.load(ctx, treeID, source)
}

// Advance carries the split of a source on until it is over or the budget is
// spent, whichever comes first, and returns its state; PhaseDone if there was
// none. At least one step is done. ErrDriven says that another coordinator is
// at work. It may be called by anybody at any time.
func (c *Coordinator) Advance(ctx context.Context, tree Tree, source keyspace.ShardID, budget time.Duration) (*State, error) {
	start := c.Clock.Now().Mono
	s, err := rows{c.Table}.load(ctx, tree.ID(), source)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return &State{Source: source, Phase: PhaseDone}, nil
	}
	if s.Driver != c.Driver && s.Driver != 0 && c.Clock.Now().Milli() < s.Until {
		return s, fmt.Errorf("shard %d: %w", source, ErrDriven)
	}
	w := &worker{c: c, tree: tree, s: s, rows: rows{c.Table}, deadline: start + budget}
	for s.Phase != PhaseDone {
		spent, err := w.phase(ctx)
		if err != nil || spent {
			return s, err
		}
	}
	return s, nil
}
