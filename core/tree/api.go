// Package tree is what a handler calls: named, sorted key spaces over shards.
// It keeps the registry of trees, routes keys to shards under a cached,
// self-correcting shard map, and merges the shards' sorted entries into scans.
package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
)

var (
	// ErrTreeNotFound: no tree has the name.
	ErrTreeNotFound = errors.New("tree not found")
	// ErrTreeExists: a tree of the name exists with other settings.
	ErrTreeExists = errors.New("tree exists with other settings")
	// ErrTreeDeleted: the tree is soft-deleted; it can be recovered or purged.
	ErrTreeDeleted = errors.New("tree is deleted")
	// ErrTreeNotDeleted: the operation needs a soft-deleted tree.
	ErrTreeNotDeleted = errors.New("tree is not deleted")
	// ErrRoutingUnstable: the owner of a key could not be found within
	// RoutingRetryBudget; trying again later helps.
	ErrRoutingUnstable = errors.New("routing unstable")
	// ErrTopologyUnstable: the shard map moved more often than MaxScanRetries
	// during a scan or count; trying again later helps.
	ErrTopologyUnstable = errors.New("topology unstable")
)

// ArgumentError is a fault in what the caller asked for.
type ArgumentError struct {
	// Field names the argument in the caller's words: "limit", "pageToken",
	// "operations[3].ttl", "options.LeaseDuration".
	Field string
	// Reason says what is wrong with it.
	Reason string
}

// Error implements error.
func (e *ArgumentError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// limitEntries stands for the number of entries of a chunk.
const limitEntries = "entries"

// LimitError is a key, a value or a chunk beyond its limit.
type LimitError struct {
	// What is "key", "value", "chunk" or "entries".
	What string
	// Key is the key concerned, cut short when it is itself too long.
	Key string
	// Size and Limit are in bytes; of "entries", their number.
	Size, Limit int64
}

// Error implements error.
func (e *LimitError) Error() string {
	if e.What == limitEntries {
		return fmt.Sprintf("the chunk has more than %d entries", e.Limit)
	}
	return fmt.Sprintf("%s of %d bytes is over the limit of %d", e.What, e.Size, e.Limit)
}

// MismatchError says that a condition did not hold.
type MismatchError struct {
	// Current is the version now stored; zero if the key is absent.
	Current clock.Version
}

// Error implements error.
func (e *MismatchError) Error() string {
	if e.Current.IsZero() {
		return "the key does not exist"
	}
	return "the key has version " + e.Current.String()
}

// Item is one live entry with its value at hand.
type Item struct {
	Key   string
	Value []byte
	// Type is the media type, never empty.
	Type    string
	Version clock.Version
	// Expiry is zero if the entry does not expire.
	Expiry time.Time
}

// ReadOptions say how current an answer must be.
type ReadOptions struct {
	// MaxAge accepts a view that was current at most so long ago. Zero demands
	// a linearizable answer.
	MaxAge time.Duration
}

// PutOptions qualify a Put.
type PutOptions struct {
	// Type is the media type of the value.
	Type string
	// TTL is the time to live, rounded up to a millisecond; 0 is for ever.
	// Negative is an ArgumentError.
	TTL time.Duration
	// IfAbsent and IfVersion are conditions; a failed one is a MismatchError.
	IfAbsent  bool
	IfVersion clock.Version
	// GetOrSet writes only if the key is absent, else answers what is there.
	GetOrSet bool
}

// PutResult answers a Put.
type PutResult struct {
	// Created says that the key was absent before and is written now.
	Created bool
	// Version of the new value.
	Version clock.Version
	// Existing is set when GetOrSet found the key; nothing was written then.
	Existing *Item
}

// Bounds is a range of keys: From inclusive, To exclusive; empty is unbounded.
type Bounds struct{ From, To string }

// ScanQuery selects the entries of a scan.
type ScanQuery struct {
	Bounds   Bounds
	Reverse  bool
	KeysOnly bool
	// Limit is the most entries of a page: 1 to MaxPageEntries.
	Limit int
	// MaxBytes ends a page early, after at least one entry, when keys and
	// values exceed it; 0 is the service's bound.
	MaxBytes int64
	// Token continues after an earlier page of the same query.
	Token string
	Read  ReadOptions
}

// ScanPage is one page of a scan.
type ScanPage struct {
	Items []Item
	// NextToken is empty on the last page. A page that is exactly full and
	// exhausts the range has none either.
	NextToken string
}

// Count answers a count.
type Count struct {
	Total      int64
	MapVersion uint64
	PerShard   []ShardCount
}

// ShardCount is the part of one shard.
type ShardCount struct {
	Shard keyspace.ShardID
	Count int64
}

// BatchOp is one operation of a non-atomic batch.
type BatchOp struct {
	// Delete removes the key; otherwise it is set.
	Delete    bool
	Key       string
	Value     []byte
	Type      string
	TTL       time.Duration
	IfAbsent  bool
	IfVersion clock.Version
}

// BatchResult answers one BatchOp. Err is nil, a *MismatchError, or a
// *LimitError: faults of one key do not touch the others. A storage failure
// that leaves a key's outcome open is an error of the whole batch.
type BatchResult struct {
	Version clock.Version
	Existed bool
	Err     error
}

// State is the life of a tree.
type State string

// The states of a tree.
const (
	// StateCreating is a tree whose shards are being made: not there yet.
	// Whoever meets one finishes it.
	StateCreating State = "creating"
	StateActive   State = "active"
	StateDeleted  State = "deleted"
	StatePurging  State = "purging"
)

// Info describes a tree.
type Info struct {
	Name       string
	State      State
	Shards     int
	MapVersion uint64
	Created    time.Time
	// Deleted is set while the tree is soft-deleted.
	Deleted time.Time
	// Options are the settings of the tree alone (those patched).
	Options map[string]json.RawMessage
}

// CreateOptions qualify a Create.
type CreateOptions struct {
	// ShardCount is 1 to 256; 0 is DefaultShardCount.
	ShardCount int
	// Options are the tree's own settings by name.
	Options map[string]json.RawMessage
}
