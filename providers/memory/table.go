package memory

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/tidwall/btree"

	"github.com/latticekv/lattice/core/store"
)

// maxPageBytes ends a page of Range early, as the service does.
const maxPageBytes = 4 << 20

// Table implements store.Table. Each partition has a lock and an ordered map
// of its own.
type Table struct {
	etags *etagSource
	shape *shaper

	mu         sync.RWMutex
	partitions map[string]*partition
}

var _ store.Table = (*Table)(nil)

type partition struct {
	mu   sync.RWMutex
	rows btree.Map[string, row]
	// gone says that the partition was emptied and left the table: whoever
	// still holds it looks again.
	gone bool
}

// row is immutable: data is never written after it was stored.
type row struct {
	etag store.ETag
	data []byte
}

// Get implements store.Table.
func (t *Table) Get(ctx context.Context, partition, key string) (store.Row, error) {
	if err := store.CheckGet(partition, key); err != nil {
		return store.Row{}, err
	}
	if err := store.CheckContext(ctx); err != nil {
		return store.Row{}, err
	}
	if t.shape == nil {
		return t.get(partition, key)
	}
	if err := t.shape.begin(ctx, kindRead, partition, 1); err != nil {
		return store.Row{}, err
	}
	found, err := t.get(partition, key)
	if lost := t.shape.reply(ctx, kindRead); lost != nil {
		return store.Row{}, lost
	}
	return found, err
}

func (t *Table) get(partition, key string) (store.Row, error) {
	if p := t.lookup(partition); p != nil {
		p.mu.RLock()
		r, ok := p.rows.Get(key)
		p.mu.RUnlock()
		if ok {
			return store.Row{Key: key, ETag: r.etag, Data: bytes.Clone(r.data)}, nil
		}
	}
	return store.Row{}, fmt.Errorf("row %q of partition %q: %w", key, partition, store.ErrNotFound)
}

// Range implements store.Table. A page ends early when its data exceeds 4 MiB.
func (t *Table) Range(ctx context.Context, partition string, q store.RangeQuery) (store.Page, error) {
	if err := store.CheckRange(partition, q); err != nil {
		return store.Page{}, err
	}
	if err := store.CheckContext(ctx); err != nil {
		return store.Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = store.MaxPageRows
	}
	if t.shape == nil {
		return t.page(partition, q), nil
	}
	if err := t.shape.begin(ctx, kindRange, partition, 1); err != nil {
		return store.Page{}, err
	}
	page := t.page(partition, q)
	t.shape.charge(partition, len(page.Rows)-1)
	if lost := t.shape.reply(ctx, kindRange); lost != nil {
		return store.Page{}, lost
	}
	return page, nil
}

func (t *Table) page(partition string, q store.RangeQuery) store.Page {
	var page store.Page
	p := t.lookup(partition)
	if p == nil {
		return page
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	size := 0
	p.rows.Ascend(q.From, func(key string, r row) bool {
		if q.To != "" && key >= q.To {
			return false
		}
		if len(page.Rows) == q.Limit || size > 0 && size+len(r.data) > maxPageBytes {
			page.More = true
			return false
		}
		size += len(r.data)
		page.Rows = append(page.Rows, store.Row{Key: key, ETag: r.etag, Data: bytes.Clone(r.data)})
		return true
	})
	return page
}

// Apply implements store.Table.
func (t *Table) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	if err := store.CheckOps(partition, ops); err != nil {
		return nil, err
	}
	if err := store.CheckContext(ctx); err != nil {
		return nil, err
	}
	if t.shape == nil {
		return t.apply(partition, ops)
	}
	if err := t.shape.begin(ctx, kindApply, partition, len(ops)); err != nil {
		return nil, err
	}
	etags, err := t.apply(partition, ops)
	if lost := t.shape.reply(ctx, kindApply); lost != nil {
		return nil, lost
	}
	return etags, err
}

func (t *Table) apply(name string, ops []store.Op) ([]store.ETag, error) {
	p := t.acquire(name)
	for i := range ops {
		if err := p.check(&ops[i]); err != nil {
			t.release(name, p)
			return nil, &store.OpError{Index: i, Key: ops[i].Key, Err: err}
		}
	}
	etags := t.newETags(ops)
	for i := range ops {
		if op := &ops[i]; op.Kind == store.OpDelete {
			p.rows.Delete(op.Key)
		} else {
			p.rows.Set(op.Key, row{etag: etags[i], data: bytes.Clone(op.Data)})
		}
	}
	t.release(name, p)
	return etags, nil
}

// newETags returns one ETag per operation, empty for a delete. All share one
// allocation.
func (t *Table) newETags(ops []store.Op) []store.ETag {
	first := t.etags.take(len(ops))
	digits := make([]byte, 0, etagBytes*len(ops))
	for i := range ops {
		digits = appendETag(digits, first+uint64(i))
	}
	all := store.ETag(digits)
	etags := make([]store.ETag, len(ops))
	for i := range ops {
		if ops[i].Kind != store.OpDelete {
			etags[i] = all[i*etagBytes : (i+1)*etagBytes]
		}
	}
	return etags
}

// check evaluates the condition of one operation. No row appears twice in a
// transaction, so operations do not influence each other's conditions.
func (p *partition) check(op *store.Op) error {
	r, ok := p.rows.Get(op.Key)
	switch {
	case op.Kind == store.OpInsert && ok:
		return store.ErrExists
	case op.Kind == store.OpInsert:
		return nil
	case op.IfMatch == "" && !ok:
		return store.ErrNotFound
	case op.IfMatch != "" && (!ok || r.etag != op.IfMatch):
		return store.ErrPrecondition
	}
	return nil
}

func (t *Table) lookup(name string) *partition {
	t.mu.RLock()
	p := t.partitions[name]
	t.mu.RUnlock()
	return p
}

// acquire returns the partition, created if need be, locked for writing.
func (t *Table) acquire(name string) *partition {
	for {
		p := t.lookup(name)
		if p == nil {
			p = t.create(name)
		}
		p.mu.Lock()
		if !p.gone {
			return p
		}
		p.mu.Unlock()
	}
}

func (t *Table) create(name string) *partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[name]
	if p == nil {
		p = &partition{}
		t.partitions[name] = p
	}
	return p
}

// release unlocks a partition, and drops it from the table if it is empty. The
// order of locks is partition, then table; nobody waits for a partition while
// holding the table.
func (t *Table) release(name string, p *partition) {
	if p.rows.Len() == 0 {
		p.gone = true
		t.mu.Lock()
		delete(t.partitions, name)
		t.mu.Unlock()
	}
	p.mu.Unlock()
}
