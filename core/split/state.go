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

// State is the record of one split: what it moves, and how far it has come. It
// is written before the side effects of each phase, so that any instance can
// go on from it.
type State struct {
	// ID is that of the migration in the heads of both shards.
	ID string `json:"id"`
	// Phase is the phase to be carried out next.
	Phase Phase `json:"phase"`
	// Source and Target are shards of the tree; Target is unset until HasTarget.
	Source    keyspace.ShardID `json:"source"`
	Target    keyspace.ShardID `json:"target,omitempty"`
	HasTarget bool             `json:"hasTarget,omitempty"`
	// Slots is the moved set.
	Slots keyspace.SlotSet `json:"slots"`
	// Cause says who asked: the monitor, a reshard, a test.
	Cause string `json:"cause"`

	// Cursor is the key behind which the drain goes on; Drained says that the
	// walk is over and only the log is left; LogSeq is the last log row that was
	// carried over.
	Cursor  string `json:"cursor,omitempty"`
	Drained bool   `json:"drained,omitempty"`
	LogSeq  uint64 `json:"logSeq,omitempty"`
	// Passes counts the catch-up passes over the log.
	Passes int `json:"passes,omitempty"`

	// Forwarded counts entries sent to the target by the drain, whether it had
	// them already or not.
	Forwarded int64 `json:"forwarded,omitempty"`
	// Retroactive counts prepared mutations that were replayed.
	Retroactive int64 `json:"retroactive,omitempty"`
	// Started is the Unix millisecond of the beginning, Entered that of each
	// phase, Ended that of the end.
	Started int64           `json:"started"`
	Entered map[Phase]int64 `json:"entered"`
	Ended   int64           `json:"ended,omitempty"`
	// MapVersion is the version of the map that moved the slots.
	MapVersion uint64 `json:"mapVersion,omitempty"`

	// Driver is the coordinator at work, and Until the Unix millisecond at which
	// others may take over. It keeps ticks apart; the ETag makes it harmless
	// where that fails.
	Driver uint64 `json:"driver,omitempty"`
	Until  int64  `json:"until,omitempty"`

	etag store.ETag
}

// MarshalText lets a phase be the key of a map.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the key of a map.
func (p *Phase) UnmarshalText(b []byte) error {
	for phase, name := range phaseNames {
		if name == string(b) {
			*p = phase
			return nil
		}
	}
	return fmt.Errorf("unknown phase %q", b)
}

// Durations returns how long each phase took that is over.
func (s *State) Durations() map[string]time.Duration {
	out := make(map[string]time.Duration)
	for p := PhaseBeginShadowWrite; p < PhaseDone; p++ {
		from, ok := s.Entered[p]
		to, over := s.Entered[p+1]
		if ok && over {
			out[p.String()] = time.Duration(to-from) * time.Millisecond
		}
	}
	return out
}

var stateFormat = frame.Format{Magic: "LTSP", Version: 1, MaxSize: 64 << 10}

const (
	activePrefix  = "split-"
	historyPrefix = "done-"
	// keptHistory bounds the splits that a tree remembers.
	keptHistory = 50
)

// partition holds the splits of a tree.
func partition(treeID string) string { return "t-" + treeID }

func activeKey(source keyspace.ShardID) string {
	return fmt.Sprintf("%s%08x", activePrefix, uint32(source))
}

// historyKey sorts the newest first. The id keeps splits apart that end in the
// same millisecond.
func historyKey(s *State) string {
	return fmt.Sprintf("%s%016x-%s", historyPrefix, ^uint64(s.Ended), s.ID)
}

func encodeState(s *State) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode split: %w", err)
	}
	return stateFormat.Seal(body), nil
}

func decodeState(treeID string, row store.Row) (*State, error) {
	where := fmt.Sprintf("row %s of %s", row.Key, partition(treeID))
	body, err := stateFormat.Open(where, row.Data)
	if err != nil {
		return nil, err
	}
	s := &State{etag: row.ETag}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, store.Corruptf("%s: %v", where, err)
	}
	return s, nil
}

// rows keeps the states in the table.
type rows struct{ table store.Table }

// load returns the split of a source, nil if there is none.
func (r rows) load(ctx context.Context, treeID string, source keyspace.ShardID) (*State, error) {
	row, err := r.table.Get(ctx, partition(treeID), activeKey(source))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read split of shard %d: %w", source, err)
	}
	return decodeState(treeID, row)
}

// insert records a new split; store.ErrExists if the source has one. The
// operations of guard are part of the transaction; their new ETags are returned.
func (r rows) insert(ctx context.Context, treeID string, s *State, guard []store.Op) ([]store.ETag, error) {
	data, err := encodeState(s)
	if err != nil {
		return nil, err
	}
	ops := append([]store.Op{store.Insert(activeKey(s.Source), data)}, guard...)
	etags, err := r.table.Apply(ctx, partition(treeID), ops)
	if err != nil {
		return nil, fmt.Errorf("record split of shard %d: %w", s.Source, err)
	}
	s.etag = etags[0]
	return etags[1:], nil
}

// save replaces a state; store.ErrPrecondition if another coordinator was here.
func (r rows) save(ctx context.Context, treeID string, s *State) error {
	data, err := encodeState(s)
	if err != nil {
		return err
	}
	etags, err := r.table.Apply(ctx, partition(treeID), []store.Op{store.Replace(activeKey(s.Source), data, s.etag)})
	if err != nil {
		return fmt.Errorf("save split of shard %d: %w", s.Source, err)
	}
	s.etag = etags[0]
	return nil
}

// finish turns a state into history.
func (r rows) finish(ctx context.Context, treeID string, s *State) error {
	data, err := encodeState(s)
	if err != nil {
		return err
	}
	_, err = r.table.Apply(ctx, partition(treeID), []store.Op{
		store.Delete(activeKey(s.Source), s.etag), store.Insert(historyKey(s), data),
	})
	if err != nil {
		return fmt.Errorf("finish split of shard %d: %w", s.Source, err)
	}
	return nil
}
