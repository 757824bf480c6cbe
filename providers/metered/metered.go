// Package metered counts the operations that pass through a table and a blob
// store. Tests and benchmarks use it to say what a request costs, services to
// report it.
package metered

import (
	"context"
	"sync/atomic"

	"github.com/latticekv/lattice/core/store"
)

// Snapshot is a reading of all counters. A call counts when it is made,
// whether it succeeds or not.
type Snapshot struct {
	// Gets, Ranges and Applies are the calls on the table.
	Gets, Ranges, Applies int64
	// Entities are the operations in all Applies, RowsRead the rows returned.
	Entities, RowsRead int64
	// BlobPuts to BlobDeletes are the calls on the blob store.
	BlobPuts, BlobGets, BlobRanges, BlobLists, BlobDeletes int64
	// TableBytesWritten and BlobBytesWritten are the payload bytes of Applies
	// and BlobPuts; TableBytesRead and BlobBytesRead those that came back.
	TableBytesWritten, BlobBytesWritten, TableBytesRead, BlobBytesRead int64
	// Conflicts are writes that lost a race: store.LostRace.
	Conflicts int64
	// Failures are calls that ended in any error except a conflict or
	// store.ErrNotFound.
	Failures int64
}

// Calls returns the number of all calls.
func (s Snapshot) Calls() int64 { return s.TableCalls() + s.BlobCalls() }

// TableCalls returns the number of calls on the table.
func (s Snapshot) TableCalls() int64 { return s.Gets + s.Ranges + s.Applies }

// BlobCalls returns the number of calls on the blob store.
func (s Snapshot) BlobCalls() int64 {
	return s.BlobPuts + s.BlobGets + s.BlobRanges + s.BlobLists + s.BlobDeletes
}

// BytesWritten returns the payload bytes written to both.
func (s Snapshot) BytesWritten() int64 { return s.TableBytesWritten + s.BlobBytesWritten }

// Sub returns what was counted since an earlier reading.
func (s Snapshot) Sub(earlier Snapshot) Snapshot {
	return Snapshot{
		Gets: s.Gets - earlier.Gets, Ranges: s.Ranges - earlier.Ranges, Applies: s.Applies - earlier.Applies,
		Entities: s.Entities - earlier.Entities, RowsRead: s.RowsRead - earlier.RowsRead,
		BlobPuts: s.BlobPuts - earlier.BlobPuts, BlobGets: s.BlobGets - earlier.BlobGets,
		BlobRanges: s.BlobRanges - earlier.BlobRanges, BlobLists: s.BlobLists - earlier.BlobLists,
		BlobDeletes:       s.BlobDeletes - earlier.BlobDeletes,
		TableBytesWritten: s.TableBytesWritten - earlier.TableBytesWritten,
		BlobBytesWritten:  s.BlobBytesWritten - earlier.BlobBytesWritten,
		TableBytesRead:    s.TableBytesRead - earlier.TableBytesRead,
		BlobBytesRead:     s.BlobBytesRead - earlier.BlobBytesRead,
		Conflicts:         s.Conflicts - earlier.Conflicts, Failures: s.Failures - earlier.Failures,
	}
}

// Store counts what passes through it. It is safe for concurrent use.
type Store struct {
	table store.Table
	blobs store.BlobStore
	n     counters
}

type counters struct {
	gets, ranges, applies, entities, rowsRead                          atomic.Int64
	blobPuts, blobGets, blobRanges, blobLists, blobDeletes             atomic.Int64
	tableBytesWritten, blobBytesWritten, tableBytesRead, blobBytesRead atomic.Int64
	conflicts, failures                                                atomic.Int64
}

// New wraps a table and a blob store. Either may be nil if it is not used.
func New(table store.Table, blobs store.BlobStore) *Store { return &Store{table: table, blobs: blobs} }

// Table returns the counted table.
func (s *Store) Table() store.Table { return tableMeter{s} }

// Blobs returns the counted blob store.
func (s *Store) Blobs() store.BlobStore { return blobMeter{s} }

// Snapshot reads the counters. Calls that run meanwhile may be counted in part.
func (s *Store) Snapshot() Snapshot {
	n := &s.n
	return Snapshot{
		Gets: n.gets.Load(), Ranges: n.ranges.Load(), Applies: n.applies.Load(),
		Entities: n.entities.Load(), RowsRead: n.rowsRead.Load(),
		BlobPuts: n.blobPuts.Load(), BlobGets: n.blobGets.Load(), BlobRanges: n.blobRanges.Load(),
		BlobLists: n.blobLists.Load(), BlobDeletes: n.blobDeletes.Load(),
		TableBytesWritten: n.tableBytesWritten.Load(), BlobBytesWritten: n.blobBytesWritten.Load(),
		TableBytesRead: n.tableBytesRead.Load(), BlobBytesRead: n.blobBytesRead.Load(),
		Conflicts: n.conflicts.Load(), Failures: n.failures.Load(),
	}
}

// outcome counts an error and passes it on.
func (s *Store) outcome(err error) error {
	switch {
	case err == nil, isNotFound(err):
	case store.LostRace(err):
		s.n.conflicts.Add(1)
	default:
		s.n.failures.Add(1)
	}
	return err
}

type tableMeter struct{ s *Store }

func (t tableMeter) Get(ctx context.Context, partition, key string) (store.Row, error) {
	t.s.n.gets.Add(1)
	row, err := t.s.table.Get(ctx, partition, key)
	if err == nil {
		t.s.n.rowsRead.Add(1)
		t.s.n.tableBytesRead.Add(int64(len(row.Data)))
	}
	return row, t.s.outcome(err)
}

func (t tableMeter) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	t.s.n.ranges.Add(1)
	page, err := t.s.table.Range(ctx, partition, q)
	size := 0
	for i := range page.Rows {
		size += len(page.Rows[i].Data)
	}
	t.s.n.rowsRead.Add(int64(len(page.Rows)))
	t.s.n.tableBytesRead.Add(int64(size))
	return page, t.s.outcome(err)
}

func (t tableMeter) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	size := 0
	for i := range ops {
		size += len(ops[i].Data)
	}
	t.s.n.applies.Add(1)
	t.s.n.entities.Add(int64(len(ops)))
	t.s.n.tableBytesWritten.Add(int64(size))
	etags, err := t.s.table.Apply(ctx, partition, ops)
	return etags, t.s.outcome(err)
}
