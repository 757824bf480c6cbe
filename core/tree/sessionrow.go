package tree

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/store"
)

// The bulk loads of a tree have a partition of their own: a row for each
// session, and one row that says which load is under way. That one is never
// deleted, so that whoever found the tree empty knows by its ETag that no load
// has begun since.
const (
	sessionPrefix = "op-"
	currentKey    = "current"
)

var (
	sessionFormat = frame.Format{Magic: "LTBS", Version: 1, MaxSize: 192 << 10}
	currentFormat = frame.Format{Magic: "LTBC", Version: 1, MaxSize: 8 << 10}
)

// bulkPartition holds the bulk loads of a tree.
func bulkPartition(treeID string) string { return "bulk-" + treeID }

func sessionKey(operation string) string {
	return sessionPrefix + hex.EncodeToString([]byte(operation))
}

// checkOperation refuses what cannot be the id of a bulk load session.
func checkOperation(id string) error {
	if validOperation(id) {
		return nil
	}
	return &ArgumentError{Field: "operationId", Reason: "must be 1 to 128 letters, digits, '.', '_' or '-'"}
}

func validOperation(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// session is the record of one bulk load session. A chunk is written into it
// before any shard is touched, and again when all of it is durable.
type session struct {
	Operation string     `json:"operation"`
	Status    BulkStatus `json:"status"`
	// NextChunk is the chunk that is expected.
	NextChunk int64 `json:"nextChunk"`
	// Accepted and OverLimit count the entries of all chunks before, LastKey is
	// their greatest key.
	Accepted  int64  `json:"accepted"`
	OverLimit int64  `json:"overLimit,omitempty"`
	LastKey   string `json:"lastKey,omitempty"`
	// Last is the last chunk that was acknowledged, Pending one that was begun.
	Last    *chunkRow `json:"last,omitempty"`
	Pending *chunkRow `json:"pending,omitempty"`
	// Started and Updated are Unix milliseconds.
	Started int64 `json:"started"`
	Updated int64 `json:"updated"`
	// Began is the random id of the call that began the session. Everything that
	// changes it later is recognised by what it says.
	Began string `json:"began"`

	etag store.ETag
}

// chunkRow is what a session remembers of a chunk.
type chunkRow struct {
	Chunk int64 `json:"chunk"`
	// Version is that of all entries of the chunk, whoever writes them.
	Version string `json:"version"`
	// Digest identifies the contents.
	Digest    string    `json:"digest"`
	Accepted  int64     `json:"accepted"`
	OverLimit int64     `json:"overLimit,omitempty"`
	First     *limitRow `json:"firstOverLimit,omitempty"`
	FirstKey  string    `json:"firstKey,omitempty"`
	LastKey   string    `json:"lastKey,omitempty"`
}

// limitRow is a LimitError at rest.
type limitRow struct {
	What  string `json:"what"`
	Key   string `json:"key"`
	Size  int64  `json:"size"`
	Limit int64  `json:"limit"`
}

func limitRowOf(e *LimitError) *limitRow {
	if e == nil {
		return nil
	}
	r := limitRow(*e)
	return &r
}

func (r *limitRow) err() *LimitError {
	if r == nil {
		return nil
	}
	e := LimitError(*r)
	return &e
}

// current is the load of a tree that is under way, if that is not over.
type current struct {
	// Session is the operation id of a session; whether it is open, its own row
	// says.
	Session string `json:"session,omitempty"`
	// Load is a random id of a load in one request, which ends at Until, a Unix
	// millisecond, unless it is renewed.
	Load  string `json:"load,omitempty"`
	Until int64  `json:"until,omitempty"`
	// Updated is a Unix millisecond.
	Updated int64 `json:"updated"`

	etag store.ETag
}

// state is what a caller is told.
func (s *session) state() BulkState {
	return BulkState{
		OperationID: s.Operation, Status: s.Status, NextChunk: s.NextChunk,
		Accepted: s.Accepted, OverLimit: s.OverLimit, LastKey: s.LastKey, Pending: s.Pending != nil,
		Started: time.UnixMilli(s.Started).UTC(), Updated: time.UnixMilli(s.Updated).UTC(),
	}
}

// ack is the acknowledgement of a chunk.
func (c *chunkRow) ack() BulkAck {
	return BulkAck{
		Chunk: c.Chunk, NextChunk: c.Chunk + 1,
		Accepted: c.Accepted, OverLimit: c.OverLimit, FirstOverLimit: c.First.err(),
	}
}

func sessionWhere(treeID, operation string) string {
	return fmt.Sprintf("bulk load %q in %s", operation, bulkPartition(treeID))
}

func (s *session) encode() ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode bulk load %q: %w", s.Operation, err)
	}
	return sessionFormat.Seal(body), nil
}

// decodeSession reads the row of a session. A field that this version does not
// know is refused: writing the row back would lose it.
func decodeSession(treeID, operation string, data []byte) (*session, error) {
	where := sessionWhere(treeID, operation)
	s := &session{}
	if err := openRow(sessionFormat, where, data, s); err != nil {
		return nil, err
	}
	if err := s.check(operation); err != nil {
		return nil, store.Corruptf("%s: %v", where, err)
	}
	return s, nil
}

// openRow opens the envelope of a row and reads the JSON inside.
func openRow(f frame.Format, where string, data []byte, into any) error {
	body, err := f.Open(where, data)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return store.Corruptf("%s: %v", where, err)
	}
	if dec.More() {
		return store.Corruptf("%s: more than one value", where)
	}
	return nil
}

func (s *session) check(operation string) error {
	if s.Operation != operation || !validOperation(s.Operation) {
		return fmt.Errorf("it is of operation %q", s.Operation)
	}
	switch s.Status {
	case BulkOpen, BulkCommitted, BulkAborted:
	default:
		return fmt.Errorf("unknown status %q", s.Status)
	}
	if s.NextChunk < 0 || s.NextChunk == math.MaxInt64 || s.Accepted < 0 || s.OverLimit < 0 || s.OverLimit > s.Accepted {
		return errors.New("a count is out of range")
	}
	if (s.Last == nil) != (s.NextChunk == 0) {
		return errors.New("the last chunk does not fit the next one")
	}
	if err := s.Last.check(s.NextChunk - 1); err != nil {
		return fmt.Errorf("last chunk: %w", err)
	}
	if err := s.Pending.check(s.NextChunk); err != nil {
		return fmt.Errorf("pending chunk: %w", err)
	}
	return checkStoredKey(s.LastKey)
}

func (c *chunkRow) check(index int64) error {
	if c == nil {
		return nil
	}
	if c.Chunk != index {
		return fmt.Errorf("index %d where %d belongs", c.Chunk, index)
	}
	if c.Accepted < 0 || c.OverLimit < 0 || c.OverLimit > c.Accepted {
		return errors.New("a count is out of range")
	}
	if v, err := clock.ParseVersion(c.Version); err != nil || v.IsZero() {
		return fmt.Errorf("version %q", c.Version)
	}
	if _, err := hex.DecodeString(c.Digest); err != nil || len(c.Digest) != bulk.DigestLength {
		return fmt.Errorf("digest %q", c.Digest)
	}
	return errors.Join(checkStoredKey(c.FirstKey), checkStoredKey(c.LastKey))
}

func checkStoredKey(key string) error {
	if len(key) > hardKeyBytes || !utf8.ValidString(key) {
		return errors.New("a key that cannot be one")
	}
	return nil
}

func (c *current) encode() ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode current bulk load: %w", err)
	}
	return currentFormat.Seal(body), nil
}

func decodeCurrent(treeID string, data []byte) (*current, error) {
	where := fmt.Sprintf("row %s of %s", currentKey, bulkPartition(treeID))
	c := &current{}
	if err := openRow(currentFormat, where, data, c); err != nil {
		return nil, err
	}
	if c.Session != "" && (!validOperation(c.Session) || c.Load != "") {
		return nil, store.Corruptf("%s does not name a bulk load", where)
	}
	return c, nil
}
