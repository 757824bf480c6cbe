package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/latticekv/lattice/core/tree"
)

// fakeLoad is a bulk load session.
type fakeLoad struct {
	state tree.BulkState
	// keys are those of the chunk acknowledged last.
	keys []string
	ack  tree.BulkAck
}

// readEntries reads a source to its end, or up to limit entries.
func (t *fakeTree) readEntries(ctx context.Context, src tree.BulkSource, limit int) (entries []tree.BulkEntry, err error) {
	for limit <= 0 || len(entries) < limit {
		var e tree.BulkEntry
		err := src.Next(ctx, &e)
		if err != nil {
			return entries, err
		}
		if err := t.db.enter(ctx, "entry"); err != nil {
			return entries, err
		}
		e.Value = slices.Clone(e.Value)
		entries = append(entries, e)
	}
	return entries, nil
}

func (t *fakeTree) store(entries []tree.BulkEntry) {
	for _, e := range entries {
		t.set(e.Key, e.Value, cmp.Or(e.Type, defaultType), 0)
		item := t.items[e.Key]
		item.Expiry = e.Expiry
		t.items[e.Key] = item
	}
}

func (t *fakeTree) total() (n int64) {
	for key := range t.items {
		if _, ok := t.live(key); ok {
			n++
		}
	}
	return n
}

func (t *fakeTree) checkOrder(entries []tree.BulkEntry, before string, chunk int64) error {
	for i, e := range entries {
		if e.Key <= before {
			return &tree.OrderError{Tree: t.info.Name, Chunk: chunk, Index: int64(i), Key: e.Key, Previous: before}
		}
		before = e.Key
	}
	return nil
}

// limits counts, or refuses, values over MaxValueSizeBytes.
func (t *fakeTree) limits(entries []tree.BulkEntry, o tree.BulkOptions) (n int64, first *tree.LimitError, err error) {
	for _, e := range entries {
		if most := int64(testOptions().MaxKeyLength); int64(len(e.Key)) > most {
			over := &tree.LimitError{What: "key", Key: e.Key, Size: int64(len(e.Key)), Limit: most}
			if o.EnforceLimits {
				return 0, nil, over
			}
			if n++; first == nil {
				first = over
			}
		}
	}
	return n, first, nil
}

func (t *fakeTree) openLoad() bool {
	for _, l := range t.loads {
		if l.state.Status == tree.BulkOpen {
			return true
		}
	}
	return false
}

func (t *fakeTree) BulkLoad(ctx context.Context, src tree.BulkSource, o tree.BulkOptions) (tree.BulkResult, error) {
	if err := t.vacant(ctx, "bulkLoad"); err != nil {
		return tree.BulkResult{}, err
	}
	entries, err := t.readEntries(ctx, src, 0)
	if !errors.Is(err, io.EOF) {
		return tree.BulkResult{}, err
	}
	slices.SortStableFunc(entries, func(a, b tree.BulkEntry) int { return cmp.Compare(a.Key, b.Key) })
	if err := t.checkOrder(entries, "", -1); err != nil {
		return tree.BulkResult{}, err
	}
	n, first, err := t.limits(entries, o)
	if err != nil {
		return tree.BulkResult{}, err
	}
	if err := t.db.enter(ctx, "apply"); err != nil {
		return tree.BulkResult{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	t.store(entries)
	return tree.BulkResult{Accepted: int64(len(entries)), OverLimit: n, FirstOverLimit: first, TotalLiveKeys: t.total()}, nil
}

func (t *fakeTree) vacant(ctx context.Context, call string) error {
	if err := t.db.enter(ctx, call); err != nil {
		return err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if t.openLoad() {
		return tree.ErrOperationInProgress
	}
	if len(t.items) > 0 {
		return tree.ErrTreeNotEmpty
	}
	return nil
}

// BulkStream applies portions of t.portion entries.
func (t *fakeTree) BulkStream(ctx context.Context, src tree.BulkSource, o tree.BulkOptions) (res tree.BulkResult, err error) {
	if err := t.db.enter(ctx, "bulkStream"); err != nil {
		return res, err
	}
	last := ""
	for {
		entries, end := t.readEntries(ctx, src, cmp.Or(t.portion, 100))
		if end != nil && !errors.Is(end, io.EOF) {
			return res, end
		}
		if err := t.checkOrder(entries, last, -1); err != nil {
			var o *tree.OrderError
			if errors.As(err, &o) {
				o.Index += res.Accepted
			}
			return res, err
		}
		n, first, err := t.limits(entries, o)
		if err != nil {
			return res, err
		}
		if len(entries) > 0 {
			last = entries[len(entries)-1].Key
		}
		t.db.mu.Lock()
		t.store(entries)
		res.Accepted, res.OverLimit, res.FirstOverLimit = res.Accepted+int64(len(entries)), res.OverLimit+n, cmp.Or(res.FirstOverLimit, first)
		res.TotalLiveKeys = t.total()
		t.db.mu.Unlock()
		if end != nil {
			return res, nil
		}
	}
}

func (t *fakeTree) BeginBulkLoad(ctx context.Context, id string) (tree.BulkState, bool, error) {
	if l := t.loads[id]; l != nil {
		return l.state, false, t.db.enter(ctx, "begin")
	}
	if err := t.vacant(ctx, "begin"); err != nil {
		return tree.BulkState{}, false, err
	}
	if t.loads == nil {
		t.loads = map[string]*fakeLoad{}
	}
	now := t.db.clock.Now().Time()
	t.loads[id] = &fakeLoad{state: tree.BulkState{OperationID: id, Status: tree.BulkOpen, Started: now, Updated: now}}
	return t.loads[id].state, true, nil
}

func (t *fakeTree) load(ctx context.Context, id, call string) (*fakeLoad, error) {
	if err := t.db.enter(ctx, call); err != nil {
		return nil, err
	}
	l := t.loads[id]
	if l == nil {
		return nil, tree.ErrOperationNotFound
	}
	return l, nil
}

func (t *fakeTree) AppendBulkLoad(ctx context.Context, id string, chunk int64, src tree.BulkSource, o tree.BulkOptions) (tree.BulkAck, error) {
	l, err := t.load(ctx, id, "append")
	if err != nil {
		return tree.BulkAck{}, err
	}
	replay := chunk == l.state.NextChunk-1
	switch {
	case l.state.Status != tree.BulkOpen:
		return tree.BulkAck{}, tree.ErrOperationMismatch
	case chunk != l.state.NextChunk && !replay:
		return tree.BulkAck{}, &tree.SequenceError{Index: chunk, Expected: l.state.NextChunk}
	}
	entries, err := t.readEntries(ctx, src, 0)
	if !errors.Is(err, io.EOF) {
		return tree.BulkAck{}, err
	}
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	if replay && !slices.Equal(keys, l.keys) {
		return tree.BulkAck{}, tree.ErrOperationMismatch
	}
	if replay {
		return l.ack, nil
	}
	if err := t.checkOrder(entries, l.state.LastKey, chunk); err != nil {
		return tree.BulkAck{}, err
	}
	n, first, err := t.limits(entries, o)
	if err != nil {
		return tree.BulkAck{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	t.store(entries)
	l.ack = tree.BulkAck{Chunk: chunk, NextChunk: chunk + 1, Accepted: int64(len(entries)), OverLimit: n, FirstOverLimit: first}
	l.keys = keys
	l.state.NextChunk, l.state.Accepted, l.state.OverLimit = chunk+1, l.state.Accepted+l.ack.Accepted, l.state.OverLimit+n
	if len(keys) > 0 {
		l.state.LastKey = keys[len(keys)-1]
	}
	return l.ack, nil
}

func (t *fakeTree) end(ctx context.Context, id, call string, as tree.BulkStatus) (tree.BulkState, error) {
	l, err := t.load(ctx, id, call)
	if err != nil {
		return tree.BulkState{}, err
	}
	if l.state.Status != tree.BulkOpen && l.state.Status != as {
		return tree.BulkState{}, tree.ErrOperationMismatch
	}
	l.state.Status = as
	return l.state, nil
}

func (t *fakeTree) CommitBulkLoad(ctx context.Context, id string) (tree.BulkState, error) {
	state, err := t.end(ctx, id, "commit", tree.BulkCommitted)
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	state.TotalLiveKeys = t.total()
	return state, err
}

func (t *fakeTree) ListBulkLoads(ctx context.Context, limit int) ([]tree.BulkState, error) {
	if err := t.db.enter(ctx, "listLoads"); err != nil {
		return nil, err
	}
	var all []tree.BulkState
	for _, l := range t.loads {
		all = append(all, l.state)
	}
	slices.SortFunc(all, func(x, y tree.BulkState) int { return y.Updated.Compare(x.Updated) })
	return all[:min(limit, len(all))], nil
}

func (t *fakeTree) BulkLoadState(ctx context.Context, id string) (tree.BulkState, error) {
	l, err := t.load(ctx, id, "loadState")
	if err != nil {
		return tree.BulkState{}, err
	}
	return l.state, nil
}

func (t *fakeTree) AbortBulkLoad(ctx context.Context, id string) (tree.BulkState, error) {
	return t.end(ctx, id, "abort", tree.BulkAborted)
}

func (t *fakeTree) Diagnostics(ctx context.Context, deep bool) (tree.Diagnostics, error) {
	if err := t.db.enter(ctx, "diagnostics"); err != nil {
		return tree.Diagnostics{}, err
	}
	d := t.diagnostics
	d.Deep = deep
	return d, nil
}
