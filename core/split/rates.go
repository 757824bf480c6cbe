package split

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// Count is how many operations a shard has seen, and when that was asked.
type Count struct {
	Reads  uint64 `json:"r,omitempty"`
	Writes uint64 `json:"w,omitempty"`
	// At is a Unix millisecond.
	At int64 `json:"at"`
}

// MonitorState is what the monitor of a tree remembers from pass to pass. It is
// stored, so that another instance goes on with the same cooldowns.
type MonitorState struct {
	// At is the Unix millisecond of the last pass.
	At int64 `json:"at"`
	// Counts are the last samples of the shards that own slots.
	Counts map[keyspace.ShardID]Count `json:"counts,omitempty"`
	// Rates are the rates, in operations per second, that the last pass saw.
	Rates map[keyspace.ShardID]float64 `json:"rates,omitempty"`
	// Split is the Unix millisecond at which the monitor last split a shard.
	Split map[keyspace.ShardID]int64 `json:"split,omitempty"`
	// Published says that the tree may have a footprint in the cluster's gate.
	Published bool `json:"published,omitempty"`

	etag store.ETag
}

// monitorKey is the row of the state, in the partition of the tree's splits.
// It changes whenever the monitor begins a split, in the same transaction, and
// whenever a reshard is recorded: so none can slip past the other.
const monitorKey = "monitor"

var monitorFormat = frame.Format{Magic: "LTMO", Version: 1, MaxSize: 640 << 10}

func decodeMonitor(treeID string, row store.Row) (*MonitorState, error) {
	where := fmt.Sprintf("row %s of %s", row.Key, partition(treeID))
	m := &MonitorState{etag: row.ETag}
	return m, openJSON(monitorFormat, where, row.Data, m)
}

// openJSON reads a document in its envelope. What it does not know it refuses:
// writing the row back would lose it.
func openJSON(f frame.Format, where string, data []byte, into any) error {
	body, err := f.Open(where, data)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return store.Corruptf("%s: %v", where, err)
	}
	return nil
}

func sealJSON(f frame.Format, what string, doc any) ([]byte, error) {
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	if len(body) > f.MaxSize {
		return nil, fmt.Errorf("encode %s: %d bytes: %w", what, len(body), store.ErrTooLarge)
	}
	return f.Seal(body), nil
}

// op writes the state, provided that nobody else has written it since.
func (m *MonitorState) op() (store.Op, error) {
	data, err := sealJSON(monitorFormat, "monitor", m)
	if err != nil {
		return store.Op{}, err
	}
	if m.etag == "" {
		return store.Insert(monitorKey, data), nil
	}
	return store.Replace(monitorKey, data, m.etag), nil
}

// SaveMonitor stores what a pass has seen, before anything is done about it.
// ErrOutdated if another pass stored its own since the state was read: then
// this one must do nothing.
func (c *Coordinator) SaveMonitor(ctx context.Context, treeID string, m *MonitorState) error {
	op, err := m.op()
	if err != nil {
		return err
	}
	etags, err := c.Table.Apply(ctx, partition(treeID), []store.Op{op})
	if lost(err) {
		return fmt.Errorf("save monitor: %w: %w", ErrOutdated, err)
	}
	if err != nil {
		return fmt.Errorf("save monitor: %w", err)
	}
	m.etag = etags[0]
	return nil
}

// lost reports whether a condition failed.
func lost(err error) bool { return store.LostRace(err) || errors.Is(err, store.ErrNotFound) }

// Due reports whether it is time for another pass: half an interval must have
// gone by since the last one, so that overlapping timers do no harm.
func (m *MonitorState) Due(now int64, interval time.Duration) bool {
	since := now - m.At
	return max(since, -since) >= (interval / 2).Milliseconds()
}

// CoolingDown reports whether the monitor split a shard less than a cooldown
// ago.
func (m *MonitorState) CoolingDown(id keyspace.ShardID, now int64, cooldown time.Duration) bool {
	at, ok := m.Split[id]
	return ok && now-at < cooldown.Milliseconds()
}

// Observe takes the counts of a pass and returns the rates, in operations per
// second, of the shards that were counted before. Shards that are not in next
// are forgotten; one that could not be counted stands there with its old count,
// or with none, and has no rate. A counter that fell has been reset, or lost the share of an
// instance that is gone: it adds nothing to the rate of this pass.
func (m *MonitorState) Observe(now int64, next map[keyspace.ShardID]Count) map[keyspace.ShardID]float64 {
	rates := make(map[keyspace.ShardID]float64, len(next))
	for id, c := range next {
		old, ok := m.Counts[id]
		if elapsed := c.At - old.At; ok && old.At > 0 && elapsed > 0 {
			ops := grown(old.Reads, c.Reads) + grown(old.Writes, c.Writes)
			rates[id] = ops / (time.Duration(elapsed) * time.Millisecond).Seconds()
		}
	}
	m.At, m.Counts, m.Rates = now, next, rates
	for id := range m.Split {
		if _, ok := next[id]; !ok {
			delete(m.Split, id)
		}
	}
	return rates
}

func grown(from, to uint64) float64 {
	if to < from {
		return 0
	}
	return float64(to - from)
}

// BeginAutomatic records a split that the monitor decided on, and in the same
// transaction the beginning of its cooldown. ErrOutdated if the state was
// changed since it was saved, by another pass or by a reshard that was asked
// for; ErrBusy and ErrTooSmall as of Begin.
func (c *Coordinator) BeginAutomatic(ctx context.Context, tree Tree, m *MonitorState, source keyspace.ShardID) error {
	if m.Split == nil {
		m.Split = map[keyspace.ShardID]int64{}
	}
	before, had := m.Split[source]
	m.Split[source] = c.Clock.Now().Milli()
	op, err := m.op()
	if err != nil {
		return err
	}
	_, etags, err := c.begin(ctx, tree, source, CauseMonitor, op)
	switch {
	case err == nil && len(etags) == 1:
		m.etag = etags[0]
		return nil
	case err == nil:
		return c.reload(ctx, tree.ID(), m)
	}
	delete(m.Split, source)
	if had {
		m.Split[source] = before
	}
	return err
}

// CauseMonitor and CauseReshard say who asked for a split.
const (
	CauseMonitor = "monitor"
	CauseReshard = "reshard"
)

// reload takes over the state as it is stored after a transaction.
func (c *Coordinator) reload(ctx context.Context, treeID string, m *MonitorState) error {
	row, err := c.Table.Get(ctx, partition(treeID), monitorKey)
	if err != nil {
		return fmt.Errorf("read monitor: %w", err)
	}
	now, err := decodeMonitor(treeID, row)
	if err != nil {
		return err
	}
	*m = *now
	return nil
}
