package txn

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

// State is what is known of an attempt.
type State string

// The states of an attempt.
const (
	Pending   State = "pending"
	Committed State = "committed"
	Aborted   State = "aborted"
)

// Row is the record of one batch.
type Row struct {
	// ID names the row: 12 bytes.
	ID ID `json:"id"`
	// First is the number of the first attempt, Attempt that of the present one,
	// State how that stands.
	First   uint32 `json:"first"`
	Attempt uint32 `json:"attempt"`
	State   State  `json:"state"`
	// Start is when the batch first began: the earlier, the stronger in a
	// conflict.
	Start clock.HLC `json:"start"`
	// Deadline is the Unix millisecond after which anybody may abort a pending
	// attempt.
	Deadline int64 `json:"deadline"`
	// Floor is a time that the version must be above: a snapshot has looked.
	Floor clock.HLC `json:"floor,omitempty"`
	// Version is that of all entries, once committed.
	Version clock.Version `json:"version"`
	// Shards are those that were asked to prepare, Slots those of the keys: who
	// owns them later has to be told as well.
	Shards []keyspace.ShardID `json:"shards"`
	Slots  keyspace.SlotSet   `json:"slots"`
	// Keys is the number of keys.
	Keys int `json:"keys"`
	// Operation is the caller's id of the batch, empty if there is none, and
	// Fingerprint condenses its sorted keys.
	Operation   string `json:"operation,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Final says that an aborted batch will not be tried again: a condition did
	// not hold, and Results say which.
	Final bool `json:"final,omitempty"`
	// Results are kept for a caller who asks again, in order of keys.
	Results []Result `json:"results,omitempty"`
	// Told says that every shard knows the decision.
	Told bool `json:"told,omitempty"`
	// Updated is the Unix millisecond of the last change, Nonce its mark.
	Updated int64  `json:"updated"`
	Nonce   string `json:"nonce"`

	etag store.ETag
}

// Result is what became of one key.
type Result struct {
	// Existed says that the key was live before.
	Existed bool `json:"e,omitempty"`
	// Mismatch says that its condition did not hold, and Current is the version
	// it had then, empty if it was absent.
	Mismatch bool   `json:"m,omitempty"`
	Current  string `json:"c,omitempty"`
}

// ID names the row of a batch.
type ID [12]byte

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(id) {
		return errors.New("an id has 24 hexadecimal digits")
	}
	_, err := hex.Decode(id[:], b)
	return err
}

// Tx is the id of the present attempt, as the logs of shards have it.
func (r *Row) Tx() record.ID { return txOf(r.ID, r.Attempt) }

// maxVoid bounds the earlier attempts that anybody is told of.
const maxVoid = 128

// Void returns the ids of earlier attempts, all of them aborted.
func (r *Row) Void() (txs []record.ID) {
	for a := r.Attempt; a != r.First && len(txs) < maxVoid; a-- {
		txs = append(txs, txOf(r.ID, a-1))
	}
	return txs
}

func txOf(id ID, attempt uint32) (tx record.ID) {
	copy(tx[:], id[:])
	binary.BigEndian.PutUint32(tx[len(id):], attempt)
	return tx
}

// split takes the id of an attempt apart.
func split(tx record.ID) (id ID, attempt uint32) {
	copy(id[:], tx[:])
	return id, binary.BigEndian.Uint32(tx[len(id):])
}

// Age is how long ago the row was changed last.
func (r *Row) Age(now clock.Instant) time.Duration {
	return time.Duration(now.Milli()-r.Updated) * time.Millisecond
}

var rowFormat = frame.Format{Magic: "LTTX", Version: 1, MaxSize: store.MaxRowBytes - frame.Overhead}

// partitions is over how many partitions the rows of a tree are spread, so that
// batches are not held up by what one takes.
const partitions = 4

// partition returns where a row of a tree lies.
func partition(treeID string, id ID) string { return partitionAt(treeID, int(id[0]%partitions)) }

func partitionAt(treeID string, n int) string { return fmt.Sprintf("x-%s-%x", treeID, n) }

func rowKey(id ID) string { return hex.EncodeToString(id[:]) }

func where(treeID string, id ID) string {
	return fmt.Sprintf("transaction %s of %s", rowKey(id), partition(treeID, id))
}

func encode(treeID string, r *Row) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", where(treeID, r.ID), err)
	}
	if len(body) > store.MaxRowBytes-frame.Overhead {
		return nil, fmt.Errorf("%s takes %d bytes: %w", where(treeID, r.ID), len(body), store.ErrTooLarge)
	}
	return rowFormat.Seal(body), nil
}

// decode reads a stored row. A field that this version does not know is refused:
// writing the row back would lose it.
func decode(treeID string, id ID, row store.Row) (*Row, error) {
	body, err := rowFormat.Open(where(treeID, id), row.Data)
	if err != nil {
		return nil, err
	}
	r := &Row{etag: row.ETag}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		return nil, store.Corruptf("%s: %v", where(treeID, id), err)
	}
	if err := r.check(id); err != nil {
		return nil, store.Corruptf("%s: %v", where(treeID, id), err)
	}
	return r, nil
}

func (r *Row) check(id ID) error {
	switch {
	case r.ID != id:
		return fmt.Errorf("it is of transaction %s", rowKey(r.ID))
	case r.State != Pending && r.State != Committed && r.State != Aborted:
		return fmt.Errorf("unknown state %q", r.State)
	case r.State == Committed && r.Version.IsZero():
		return errors.New("committed without a version")
	case r.Final && r.State != Aborted:
		return errors.New("final and not aborted")
	}
	return nil
}
