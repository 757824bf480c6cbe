package split

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// ErrResharding: a reshard of the tree is recorded already.
var ErrResharding = errors.New("the tree is being resharded")

// Reshard is the record of a change of a tree's shard count that runs. While it
// stands the monitor starts no split.
type Reshard struct {
	ID string `json:"id"`
	// Start and Target are counts of shards that own slots: when the reshard
	// was asked for, and wanted.
	Start  int `json:"start"`
	Target int `json:"target"`
	// Begun counts the splits begun for it.
	Begun int `json:"begun,omitempty"`
	// Started is the Unix millisecond at which it was asked for.
	Started int64 `json:"started"`

	etag store.ETag
}

// reshardKey is the row of a reshard, in the partition of the tree's splits. It
// changes with every split that is begun for it, in the same transaction, so
// that two ticks cannot begin the same one twice.
const reshardKey = "reshard"

var reshardFormat = frame.Format{Magic: "LTRS", Version: 1, MaxSize: 4 << 10}

func decodeReshard(treeID string, row store.Row) (*Reshard, error) {
	where := fmt.Sprintf("row %s of %s", row.Key, partition(treeID))
	r := &Reshard{etag: row.ETag}
	if err := openJSON(reshardFormat, where, row.Data, r); err != nil {
		return nil, err
	}
	if r.Target < 1 || r.Target > keyspace.Slots {
		return nil, store.Corruptf("%s: target of %d shards", where, r.Target)
	}
	return r, nil
}

// beginAttempts bounds the attempts to record a reshard beside a busy monitor.
const beginAttempts = 8

// BeginReshard records that a tree is to grow from start to target shards, and
// turns away the splits that the monitor is about to begin. ErrResharding
// returns the reshard that is recorded. It is durable when BeginReshard returns
// nil.
func (c *Coordinator) BeginReshard(ctx context.Context, treeID string, start, target int) (*Reshard, error) {
	r := &Reshard{ID: fmt.Sprintf("%016x", c.Clock.Uint64()), Start: start, Target: target, Started: c.Clock.Now().Milli()}
	var last error
	for range beginAttempts {
		s, err := c.Survey(ctx, treeID)
		switch {
		case err != nil:
			return nil, errors.Join(err, last)
		case s.Reshard != nil && s.Reshard.ID == r.ID:
			return s.Reshard, nil // the reply was lost
		case s.Reshard != nil:
			return s.Reshard, fmt.Errorf("to %d shards: %w", s.Reshard.Target, ErrResharding)
		}
		if last = c.insertReshard(ctx, treeID, r, s.Monitor); last == nil {
			return r, nil
		}
		if !lost(last) && !errors.Is(last, store.ErrOutcomeUnknown) {
			break
		}
	}
	return nil, fmt.Errorf("record reshard: %w", last)
}

// insertReshard writes the record, and the state of the monitor anew so that a
// pass that has not seen the record can begin nothing.
func (c *Coordinator) insertReshard(ctx context.Context, treeID string, r *Reshard, m *MonitorState) error {
	if m == nil {
		m = &MonitorState{}
	}
	touch, err := m.op()
	if err != nil {
		return err
	}
	data, err := sealJSON(reshardFormat, "reshard", r)
	if err != nil {
		return err
	}
	etags, err := c.Table.Apply(ctx, partition(treeID), []store.Op{store.Insert(reshardKey, data), touch})
	if err != nil {
		return err
	}
	r.etag = etags[0]
	return nil
}

// EndReshard removes the record. That somebody else did, or changed it, is no
// error.
func (c *Coordinator) EndReshard(ctx context.Context, treeID string, r *Reshard) error {
	_, err := c.Table.Apply(ctx, partition(treeID), []store.Op{store.Delete(reshardKey, r.etag)})
	if err != nil && !lost(err) {
		return fmt.Errorf("end reshard: %w", err)
	}
	return nil
}

// Grow begins the splits that a reshard needs next, at most as many as leave
// atOnce migrations in flight, or ends it when the shards are as many as
// wanted. s must have been read before m. It returns the splits begun. When
// another tick is at the same work it leaves it that.
func (c *Coordinator) Grow(ctx context.Context, tree Tree, s Survey, m *keyspace.Map, atOnce int) ([]*State, error) {
	r := *s.Reshard
	if len(m.Shards()) >= r.Target {
		return nil, c.EndReshard(ctx, tree.ID(), &r)
	}
	var begun []*State
	for _, source := range growth(m, s.Active, r.Target, atOnce) {
		r.Begun++
		data, err := sealJSON(reshardFormat, "reshard", &r)
		if err != nil {
			return begun, err
		}
		st, etags, err := c.begin(ctx, tree, source, CauseReshard, store.Replace(reshardKey, data, r.etag))
		switch {
		case errors.Is(err, ErrOutdated) || errors.Is(err, ErrBusy) || errors.Is(err, ErrTooSmall):
			return begun, nil
		case err != nil:
			return begun, err
		}
		if begun = append(begun, st); len(etags) != 1 {
			return begun, nil
		}
		r.etag = etags[0]
	}
	return begun, nil
}

// growth chooses the shards to be split next: those with the most slots that
// take no part in a migration. The active splits must have been read before
// the map, so that each of them is counted in one or the other.
func growth(m *keyspace.Map, active []*State, target, atOnce int) []keyspace.ShardID {
	slots := SlotCounts(m)
	need := min(target-len(slots)-Unborn(m, active), atOnce-len(active))
	for _, s := range active {
		delete(slots, s.Source)
		if s.HasTarget {
			delete(slots, s.Target)
		}
	}
	var ids []keyspace.ShardID
	for id, n := range slots {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b keyspace.ShardID) int {
		return cmp.Or(cmp.Compare(slots[b], slots[a]), cmp.Compare(a, b))
	})
	return ids[:max(0, min(need, len(ids)))]
}

// SlotCounts returns how many slots each owner has.
func SlotCounts(m *keyspace.Map) map[keyspace.ShardID]int {
	n := map[keyspace.ShardID]int{}
	for slot := range uint16(keyspace.Slots) {
		n[m.Owner(slot)]++
	}
	return n
}

// Unborn counts the splits whose target owns no slot yet.
func Unborn(m *keyspace.Map, active []*State) int {
	owners := m.Shards()
	n := 0
	for _, s := range active {
		if !s.HasTarget || !slices.Contains(owners, s.Target) {
			n++
		}
	}
	return n
}
