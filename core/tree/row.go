package tree

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

// partitionRegistry holds a row for each tree, keyed by the tree's name in hex
// so that rows stand in the order of names, and after them the rows of the
// service itself, whose keys begin with '~'.
const (
	partitionRegistry = "registry"
	endOfTrees        = "~"
)

// rowFormat is the envelope of a tree's row; the payload is JSON.
var rowFormat = frame.Format{Magic: "LTTR", Version: 1, MaxSize: store.MaxRowBytes - frame.Overhead}

// maxShards bounds the shards ever allocated to a tree, so that a damaged row
// cannot send an instance through billions of partitions.
const maxShards = 1 << 20

// keptUpdates is how many of the last update ids a row remembers, for those
// who lost the reply to their own.
const keptUpdates = 32

// row is the registry's record of one tree. Every change goes through
// registry.update and is guarded by the ETag.
type row struct {
	Name string `json:"name"`
	// ID is 64 random bits in hex. It names the shards' partitions, so a tree
	// that is purged and created again shares nothing with its former self.
	ID    string `json:"id"`
	State State  `json:"state"`
	// Settled says that the shards have followed into the state. Whoever meets
	// a row that is not settled may finish the work.
	Settled bool `json:"settled"`
	// Epoch grows with every change of state; Revision with every update.
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
	// Created and Deleted are Unix milliseconds; Deleted is 0 for a tree that
	// is not.
	Created int64 `json:"created"`
	Deleted int64 `json:"deleted,omitempty"`
	// ShardCount is the number of shards the tree was created with.
	ShardCount int `json:"shardCount"`
	// Options are the tree's own settings in canonical form.
	Options map[string]json.RawMessage `json:"options,omitempty"`
	// MapVersion and Slots are the shard map; each run is from, to, shard.
	MapVersion uint64      `json:"mapVersion"`
	Slots      [][3]uint32 `json:"slots"`
	// NextShard is the index for the next shard; all below were allocated.
	NextShard uint32 `json:"nextShard"`
	// Updates are the ids of the latest updates, newest last.
	Updates []string `json:"updates"`
}

// stored is a row as it was read or written.
type stored struct {
	row
	etag store.ETag
}

// rowKey is the key of a tree's row.
func rowKey(name string) string { return hex.EncodeToString([]byte(name)) }

func rowWhere(name string) string { return fmt.Sprintf("registry row of tree %q", name) }

// newRow returns the row of a new tree, all but its id.
func newRow(name string, shardCount int, settings map[string]json.RawMessage, now clock.Instant) (row, error) {
	m, err := keyspace.Default(shardCount)
	if err != nil {
		return row{}, err
	}
	r := row{
		Name: name, State: StateCreating, Epoch: 1, Created: now.Milli(),
		ShardCount: shardCount, Options: settings, NextShard: uint32(shardCount),
	}
	r.setMap(m)
	return r, nil
}

func (r *row) setMap(m *keyspace.Map) {
	r.MapVersion, r.Slots = m.Version, nil
	for _, run := range m.Ranges() {
		r.Slots = append(r.Slots, [3]uint32{uint32(run.From), uint32(run.To), uint32(run.Shard)})
	}
}

// shardMap rebuilds the map, and refuses one that is not whole or names a
// shard that was never allocated.
func (r *row) shardMap() (*keyspace.Map, error) {
	runs := make([]keyspace.Range, len(r.Slots))
	for i, s := range r.Slots {
		if s[0] >= keyspace.Slots || s[1] >= keyspace.Slots || s[2] >= r.NextShard {
			return nil, fmt.Errorf("slot run %v is out of range", s)
		}
		runs[i] = keyspace.Range{From: uint16(s[0]), To: uint16(s[1]), Shard: keyspace.ShardID(s[2])}
	}
	return keyspace.FromRanges(r.MapVersion, runs)
}

// partition is the name of a shard's partition, and of its blobs' prefix.
func (r *row) partition(id keyspace.ShardID) string {
	return "s-" + r.ID + "-" + strconv.FormatUint(uint64(id), 16)
}

// enter changes the state; the shards have yet to follow.
func (r *row) enter(s State) {
	r.State, r.Settled = s, false
	r.Epoch++
}

// carries reports whether an update is among the latest.
func (r *row) carries(update string) bool { return slices.Contains(r.Updates, update) }

// stamp notes an update.
func (r *row) stamp(update string) {
	r.Revision++
	r.Updates = append(slices.Clone(r.Updates), update)
	if n := len(r.Updates); n > keptUpdates {
		r.Updates = r.Updates[n-keptUpdates:]
	}
}

func (r *row) info() Info {
	i := Info{
		Name: r.Name, State: r.State, MapVersion: r.MapVersion,
		Created: time.UnixMilli(r.Created).UTC(), Options: r.Options,
	}
	if m, err := r.shardMap(); err == nil {
		i.Shards = len(m.Shards())
	}
	if r.Deleted != 0 {
		i.Deleted = time.UnixMilli(r.Deleted).UTC()
	}
	return i
}

func encodeTreeRow(r *row) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", rowWhere(r.Name), err)
	}
	return rowFormat.Seal(body), nil
}

// decodeTreeRow reads the row stored for a name. A field that this version does
// not know is refused: writing the row back would lose it.
func decodeTreeRow(name string, data []byte) (row, error) {
	body, err := rowFormat.Open(rowWhere(name), data)
	if err != nil {
		return row{}, err
	}
	var r row
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return row{}, store.Corruptf("%s: %v", rowWhere(name), err)
	}
	if err := r.check(name); err != nil {
		return row{}, store.Corruptf("%s: %v", rowWhere(name), err)
	}
	return r, nil
}

func (r *row) check(name string) error {
	if r.Name != name {
		return fmt.Errorf("it is of tree %q", r.Name)
	}
	if id, err := hex.DecodeString(r.ID); err != nil || len(id) != 8 {
		return fmt.Errorf("id %q is not 16 hexadecimal digits", r.ID)
	}
	switch r.State {
	case StateCreating, StateActive, StateDeleted, StatePurging:
	default:
		return fmt.Errorf("unknown state %q", r.State)
	}
	if r.NextShard == 0 || r.NextShard > maxShards {
		return fmt.Errorf("next shard %d, 1 to %d expected", r.NextShard, maxShards)
	}
	if len(r.Updates) > keptUpdates {
		return errors.New("too many update ids")
	}
	_, err := r.shardMap()
	return err
}

// meta is what an instance needs to know of a tree to serve it: an immutable,
// worked-out form of the row.
type meta struct {
	stored
	shardMap   *keyspace.Map
	owners     []keyspace.ShardID // shards that own slots, ascending
	opts       options.Options
	tuning     shard.Tuning
	partitions []string // by shard index
	readAt     clock.Instant
}

func newMeta(s stored, service options.Options, now clock.Instant) (*meta, error) {
	opts, err := service.ForTree(s.Options)
	if err != nil {
		return nil, fmt.Errorf("settings of tree %q do not fit those of the service: %w", s.Name, err)
	}
	m, err := s.row.shardMap()
	if err != nil {
		return nil, store.Corruptf("%s: %v", rowWhere(s.Name), err)
	}
	out := &meta{stored: s, shardMap: m, owners: m.Shards(), opts: opts, tuning: tuningOf(s.Name, &opts), readAt: now}
	for id := range keyspace.ShardID(s.NextShard) {
		out.partitions = append(out.partitions, s.partition(id))
	}
	return out, nil
}

func tuningOf(tree string, o *options.Options) shard.Tuning {
	return shard.Tuning{
		Tree:                 tree,
		InlineValueBytes:     int(o.InlineValueBytes),
		CheckpointTailBytes:  o.CheckpointTailBytes,
		CheckpointTailRows:   o.CheckpointTailRows,
		TombstoneGracePeriod: o.TombstoneGracePeriod,
	}
}
