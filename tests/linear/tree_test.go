package linear

import (
	"context"
	"errors"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/tests/history"
)

// treeStore drives a tree in this process. Its errors say exactly what is known.
type treeStore struct {
	db   *tree.DB
	name string
	// complain hears of errors that no fault explains.
	complain func(error)
}

var _ history.Store = treeStore{}

func version(s string) clock.Version {
	v, err := clock.ParseVersion(s)
	if err != nil {
		return clock.Version{}
	}
	return v
}

func text(v clock.Version) string {
	if v.IsZero() {
		return ""
	}
	return v.String()
}

// failed files an error: the outcome is open only if the error says so.
func (s treeStore) failed(op *history.Op, err error) {
	var mismatch *tree.MismatchError
	switch {
	case errors.As(err, &mismatch):
		op.Mismatch, op.Version = true, text(mismatch.Current)
	case errors.Is(err, store.ErrOutcomeUnknown):
		op.Unknown = true
	default:
		op.Void = true
		s.check(err)
	}
}

// check complains of errors other than those of a storage that fails.
func (s treeStore) check(err error) {
	if !store.Transient(err) && !errors.Is(err, store.ErrOutcomeUnknown) && !errors.Is(err, tree.ErrRoutingUnstable) &&
		!errors.Is(err, tree.ErrTopologyUnstable) && !errors.Is(err, context.DeadlineExceeded) {
		s.complain(err)
	}
}

// Do implements history.Store.
func (s treeStore) Do(ctx context.Context, op *history.Op) {
	t, err := s.db.OpenOrCreate(ctx, s.name)
	if err != nil {
		op.Void = true
		s.check(err)
		return
	}
	switch op.Kind {
	case history.Get:
		s.get(ctx, t, op)
	case history.Delete:
		op.Found, err = t.Delete(ctx, op.Key, version(op.IfVersion))
		if err != nil {
			s.failed(op, err)
		}
	default:
		s.put(ctx, t, op)
	}
}

func (s treeStore) get(ctx context.Context, t *tree.Tree, op *history.Op) {
	it, ok, err := t.Get(ctx, op.Key, tree.ReadOptions{})
	if err != nil {
		s.failed(op, err)
		return
	}
	if ok {
		op.Seen, op.Version = string(it.Value), text(it.Version)
	}
}

func (s treeStore) put(ctx context.Context, t *tree.Tree, op *history.Op) {
	r, err := t.Put(ctx, op.Key, []byte(op.Value), tree.PutOptions{
		IfAbsent: op.IfAbsent, IfVersion: version(op.IfVersion), GetOrSet: op.Kind == history.GetOrSet,
	})
	if err != nil {
		s.failed(op, err)
		return
	}
	op.Found, op.Version = !r.Created, text(r.Version)
	if r.Existing != nil {
		op.Seen, op.Version = string(r.Existing.Value), text(r.Existing.Version)
	}
}

// Batch implements history.Store.
func (s treeStore) Batch(ctx context.Context, ops []history.Op) {
	t, err := s.db.OpenOrCreate(ctx, s.name)
	if err != nil {
		for i := range ops {
			ops[i].Void = true
		}
		s.check(err)
		return
	}
	batch := make([]tree.BatchOp, len(ops))
	for i, op := range ops {
		batch[i] = tree.BatchOp{
			Delete: op.Kind == history.Delete, Key: op.Key, Value: []byte(op.Value),
			IfAbsent: op.IfAbsent, IfVersion: version(op.IfVersion),
		}
	}
	results, err := t.Batch(ctx, batch)
	for i := range ops {
		op := &ops[i]
		switch {
		case err != nil:
			op.Unknown = true
		case results[i].Err != nil:
			s.failed(op, results[i].Err)
		default:
			op.Found = results[i].Existed
			if op.Kind != history.Delete {
				op.Version = text(results[i].Version)
			}
		}
	}
	if err != nil {
		s.check(err)
	}
}

// AtomicBatch implements history.AtomicStore.
func (s treeStore) AtomicBatch(ctx context.Context, b *history.Batch) {
	t, err := s.db.OpenOrCreate(ctx, s.name)
	if err != nil {
		b.Void = true
		s.check(err)
		return
	}
	batch := make([]tree.BatchOp, len(b.Ops))
	for i, op := range b.Ops {
		batch[i] = tree.BatchOp{
			Delete: op.Kind == history.Delete, Key: op.Key, Value: []byte(op.Value),
			IfAbsent: op.IfAbsent, IfVersion: version(op.IfVersion),
		}
	}
	results, err := t.AtomicBatch(ctx, batch, b.Operation)
	var mismatch *tree.BatchMismatchError
	switch {
	case errors.As(err, &mismatch):
		b.Mismatch = true
		for _, f := range mismatch.Failed {
			b.Ops[f.Index].Mismatch, b.Ops[f.Index].Version = true, text(f.Current)
		}
	case errors.Is(err, store.ErrOutcomeUnknown), errors.Is(err, tree.ErrOperationInProgress):
		b.Unknown = true
	case err != nil:
		b.Void = true
		s.check(err)
	}
	if err != nil {
		return
	}
	for i, r := range results {
		b.Ops[i].Found = r.Existed
		if b.Ops[i].Kind != history.Delete {
			b.Ops[i].Version = text(r.Version)
		}
	}
}

// Look implements history.Store.
func (s treeStore) Look(ctx context.Context, v *history.Survey) bool {
	t, err := s.db.OpenOrCreate(ctx, s.name)
	if err != nil {
		s.check(err)
		return false
	}
	items, err := t.GetMany(ctx, v.Keys, tree.ReadOptions{})
	if err != nil {
		s.check(err)
		return false
	}
	v.Seen = make([]string, len(v.Keys))
	for i, key := range v.Keys {
		if len(items) > 0 && items[0].Key == key {
			v.Seen[i] = string(items[0].Value)
			items = items[1:]
		}
	}
	return true
}

// Count implements history.Store.
func (s treeStore) Count(ctx context.Context, v *history.Survey) bool {
	t, err := s.db.OpenOrCreate(ctx, s.name)
	if err != nil {
		s.check(err)
		return false
	}
	c, err := t.Count(ctx, tree.Bounds{}, tree.ReadOptions{})
	if err != nil {
		s.check(err)
		return false
	}
	v.Total = int(c.Total)
	return true
}
