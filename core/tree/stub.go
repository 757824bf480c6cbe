package tree

import (
	"context"
	"encoding/json"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
)

// DB is the set of trees of one store, as one instance sees it.
type DB struct{}

// Tree is a handle of one active tree.
type Tree struct{}

func (db *DB) Create(ctx context.Context, name string, o CreateOptions) (Info, bool, error) {
	panic("unbuilt")
}
func (db *DB) Info(ctx context.Context, name string) (Info, error) { panic("unbuilt") }
func (db *DB) List(ctx context.Context, after string, limit int) (infos []Info, next string, err error) {
	panic("unbuilt")
}
func (db *DB) SetOptions(ctx context.Context, name string, patch map[string]json.RawMessage) (Info, error) {
	panic("unbuilt")
}
func (db *DB) Delete(ctx context.Context, name string) error  { panic("unbuilt") }
func (db *DB) Recover(ctx context.Context, name string) error { panic("unbuilt") }
func (db *DB) Purge(ctx context.Context, name string) error   { panic("unbuilt") }

// Open returns a handle for reading: ErrTreeNotFound, ErrTreeDeleted.
func (db *DB) Open(ctx context.Context, name string) (*Tree, error) { panic("unbuilt") }

// OpenOrCreate creates the tree if AutoCreateTrees allows.
func (db *DB) OpenOrCreate(ctx context.Context, name string) (*Tree, error) { panic("unbuilt") }

// Ready reports whether the storage answers.
func (db *DB) Ready(ctx context.Context) error { panic("unbuilt") }
func (t *Tree) Get(ctx context.Context, key string, o ReadOptions) (Item, bool, error) {
	panic("unbuilt")
}
func (t *Tree) Put(ctx context.Context, key string, value []byte, o PutOptions) (PutResult, error) {
	panic("unbuilt")
}

// Delete removes a key and reports whether it existed. ifVersion zero is no condition.
func (t *Tree) Delete(ctx context.Context, key string, ifVersion clock.Version) (bool, error) {
	panic("unbuilt")
}
func (t *Tree) GetMany(ctx context.Context, keys []string, o ReadOptions) ([]Item, error) {
	panic("unbuilt")
}
func (t *Tree) Batch(ctx context.Context, ops []BatchOp) ([]BatchResult, error) { panic("unbuilt") }
func (t *Tree) Scan(ctx context.Context, q ScanQuery) (ScanPage, error)         { panic("unbuilt") }

// Stream calls fn with every entry of the range in order and returns how many; Limit and Token of q are ignored.
func (t *Tree) Stream(ctx context.Context, q ScanQuery, fn func(*Item) error) (int64, error) {
	panic("unbuilt")
}
func (t *Tree) Count(ctx context.Context, b Bounds, o ReadOptions) (Count, error) { panic("unbuilt") }
func (t *Tree) DeleteRange(ctx context.Context, b Bounds) (int64, error)          { panic("unbuilt") }
func (t *Tree) ShardMap() *keyspace.Map                                           { panic("unbuilt") }
