package api

import (
	"context"
	"encoding/json"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// database is the part of tree.DB that the handlers use.
type database interface {
	Create(ctx context.Context, name string, o tree.CreateOptions) (tree.Info, bool, error)
	Info(ctx context.Context, name string) (tree.Info, error)
	List(ctx context.Context, after string, limit int) ([]tree.Info, string, error)
	SetOptions(ctx context.Context, name string, patch map[string]json.RawMessage) (tree.Info, error)
	Delete(ctx context.Context, name string) error
	Recover(ctx context.Context, name string) error
	Purge(ctx context.Context, name string) error
	Ready(ctx context.Context) error
	SplitActivity(ctx context.Context) (tree.SplitActivity, error)
	open(ctx context.Context, name string) (handle, error)
	openOrCreate(ctx context.Context, name string) (handle, error)
}

// handle is the part of tree.Tree that the handlers use.
type handle interface {
	Get(ctx context.Context, key string, o tree.ReadOptions) (tree.Item, bool, error)
	Put(ctx context.Context, key string, value []byte, o tree.PutOptions) (tree.PutResult, error)
	Delete(ctx context.Context, key string, ifVersion clock.Version) (bool, error)
	GetMany(ctx context.Context, keys []string, o tree.ReadOptions) ([]tree.Item, error)
	Batch(ctx context.Context, ops []tree.BatchOp) ([]tree.BatchResult, error)
	AtomicBatch(ctx context.Context, ops []tree.BatchOp, operation string) ([]tree.BatchResult, error)
	Scan(ctx context.Context, q tree.ScanQuery) (tree.ScanPage, error)
	Stream(ctx context.Context, q tree.ScanQuery, fn func(*tree.Item) error) (int64, error)
	Count(ctx context.Context, b tree.Bounds, o tree.ReadOptions) (tree.Count, error)
	DeleteRange(ctx context.Context, b tree.Bounds) (int64, error)
	ReadShardMap(ctx context.Context) (*keyspace.Map, error)
	Splits(ctx context.Context) (active, done []*split.State, err error)
	Reshard(ctx context.Context, target int) (status tree.ReshardStatus, started bool, err error)
	ReshardStatus(ctx context.Context) (tree.ReshardStatus, error)
	Diagnostics(ctx context.Context, deep bool) (tree.Diagnostics, error)
	cursors
	loader
}

// cursors are bookmarks that the tree keeps.
type cursors interface {
	OpenCursor(ctx context.Context, q tree.CursorQuery) (tree.CursorInfo, error)
	CursorKind(ctx context.Context, id string) (tree.CursorKind, error)
	NextPage(ctx context.Context, id string, q tree.PageQuery) (tree.CursorPage, error)
	CloseCursor(ctx context.Context, id string) error
}

// loader is how a tree takes many entries at once.
type loader interface {
	BulkLoad(ctx context.Context, src tree.BulkSource, o tree.BulkOptions) (tree.BulkResult, error)
	BulkStream(ctx context.Context, src tree.BulkSource, o tree.BulkOptions) (tree.BulkResult, error)
	BeginBulkLoad(ctx context.Context, operationID string) (state tree.BulkState, created bool, err error)
	AppendBulkLoad(ctx context.Context, operationID string, chunk int64, src tree.BulkSource, o tree.BulkOptions) (tree.BulkAck, error)
	CommitBulkLoad(ctx context.Context, operationID string) (tree.BulkState, error)
	ListBulkLoads(ctx context.Context, limit int) ([]tree.BulkState, error)
	BulkLoadState(ctx context.Context, operationID string) (tree.BulkState, error)
	AbortBulkLoad(ctx context.Context, operationID string) (tree.BulkState, error)
}

var _ handle = (*tree.Tree)(nil)

// trees adapts a tree.DB: its handles become the interface.
type trees struct{ *tree.DB }

func (t trees) open(ctx context.Context, name string) (handle, error) {
	h, err := t.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (t trees) openOrCreate(ctx context.Context, name string) (handle, error) {
	h, err := t.OpenOrCreate(ctx, name)
	if err != nil {
		return nil, err
	}
	return h, nil
}
