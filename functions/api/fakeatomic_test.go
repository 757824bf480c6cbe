package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// fakeCursor is a cursor over a fakeTree.
type fakeCursor struct {
	query tree.CursorQuery
	// items are those of a snapshot.
	items      []tree.Item
	page       int64
	prev, last string
	more       bool
	deleted    int64
	expires    time.Time
}

// fakeOperation is what became of a named batch.
type fakeOperation struct {
	keys    []string
	results []tree.BatchResult
	err     error
}

func (t *fakeTree) AtomicBatch(ctx context.Context, ops []tree.BatchOp, operation string) ([]tree.BatchResult, error) {
	if err := t.db.enter(ctx, "atomicBatch"); err != nil {
		return nil, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	var keys []string
	for _, op := range ops {
		if slices.Contains(keys, op.Key) {
			return nil, &tree.ArgumentError{Field: "operations", Reason: "a key twice"}
		}
		keys = append(keys, op.Key)
	}
	slices.Sort(keys)
	if done, ok := t.operations[operation]; ok && operation != "" {
		if !slices.Equal(done.keys, keys) {
			return nil, fmt.Errorf("operation %q: %w", operation, tree.ErrOperationMismatch)
		}
		return done.results, done.err
	}
	results, err := t.allOrNone(ops)
	if operation != "" {
		if t.operations == nil {
			t.operations = map[string]fakeOperation{}
		}
		t.operations[operation] = fakeOperation{keys, results, err}
	}
	return results, err
}

func (t *fakeTree) allOrNone(ops []tree.BatchOp) ([]tree.BatchResult, error) {
	var e tree.BatchMismatchError
	for i, op := range ops {
		item, found := t.live(op.Key)
		if check(item, found, op.IfAbsent, op.IfVersion) != nil {
			e.Failed = append(e.Failed, tree.FailedCondition{Index: i, Key: op.Key, Current: item.Version})
		}
	}
	if len(e.Failed) > 0 {
		return nil, &e
	}
	results := make([]tree.BatchResult, len(ops))
	for i, op := range ops {
		results[i] = t.apply(&op)
	}
	return results, nil
}

func (t *fakeTree) OpenCursor(ctx context.Context, q tree.CursorQuery) (tree.CursorInfo, error) {
	if err := t.db.enter(ctx, "openCursor"); err != nil {
		return tree.CursorInfo{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if q.Kind == tree.CursorDeleteRange && (q.Snapshot || q.Reverse) {
		return tree.CursorInfo{}, &tree.ArgumentError{Field: "snapshot", Reason: "is not for a delete-range"}
	}
	if q.Kind != tree.CursorKeys && q.Kind != tree.CursorEntries && q.Kind != tree.CursorDeleteRange {
		return tree.CursorInfo{}, &tree.ArgumentError{Field: "kind", Reason: "must be keys, entries or delete-range"}
	}
	c := &fakeCursor{query: q, more: true, expires: t.db.clock.Now().Time().Add(time.Hour)}
	info := tree.CursorInfo{ID: fmt.Sprintf("%032x", len(t.cursors)+1), Expires: c.expires}
	if q.Snapshot {
		c.items, info.Snapshot = t.between(q.Bounds), "0000000000000007"+"00000000"
	}
	if t.cursors == nil {
		t.cursors = map[string]*fakeCursor{}
	}
	t.cursors[info.ID] = c
	return info, nil
}

func (t *fakeTree) CursorKind(ctx context.Context, id string) (tree.CursorKind, error) {
	if err := t.db.enter(ctx, "cursorKind"); err != nil {
		return "", err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	c := t.cursors[id]
	if c == nil {
		return "", tree.ErrCursorNotFound
	}
	return c.query.Kind, nil
}

func (t *fakeTree) NextPage(ctx context.Context, id string, q tree.PageQuery) (tree.CursorPage, error) {
	if err := t.db.enter(ctx, "nextPage"); err != nil {
		return tree.CursorPage{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	c := t.cursors[id]
	if c == nil {
		return tree.CursorPage{}, fmt.Errorf("cursor %s: %w", id, tree.ErrCursorNotFound)
	}
	if q.Accept != nil && c.query.Kind != tree.CursorDeleteRange {
		items := t.after(c, c.last, "")
		items = slices.Clone(items[:min(q.Limit, len(items))])
		for i := range items {
			if c.query.Kind == tree.CursorKeys {
				items[i].Value = nil
			}
		}
		if err := q.Accept(items); err != nil {
			return tree.CursorPage{}, err
		}
	}
	switch q.Page {
	case 0, c.page + 1:
		c.page, c.prev = c.page+1, c.last
		t.advance(c, q.Limit)
	case c.page:
	default:
		return tree.CursorPage{}, &tree.ArgumentError{Field: "page", Reason: fmt.Sprintf("page %d is next", c.page+1)}
	}
	p := tree.CursorPage{Kind: c.query.Kind, Page: c.page, HasMore: c.more, Deleted: c.deleted, Expires: c.expires}
	if c.query.Kind != tree.CursorDeleteRange {
		p.Items = t.after(c, c.prev, c.last)
	}
	return p, nil
}

// advance moves the bookmark by up to limit entries.
func (t *fakeTree) advance(c *fakeCursor, limit int) {
	items := t.after(c, c.last, "")
	c.more = len(items) > limit
	items = items[:min(limit, len(items))]
	if len(items) > 0 {
		c.last = items[len(items)-1].Key
	}
	c.deleted = 0
	if c.query.Kind == tree.CursorDeleteRange {
		for _, item := range items {
			delete(t.items, item.Key)
			c.deleted++
		}
	}
}

// after returns what comes after prev, up to last unless that is empty.
func (t *fakeTree) after(c *fakeCursor, prev, last string) []tree.Item {
	items := c.items
	if !c.query.Snapshot {
		items = t.between(c.query.Bounds)
	}
	items = slices.Clone(items)
	if c.query.Reverse {
		slices.Reverse(items)
	}
	before := func(a, b string) bool { return a < b != c.query.Reverse && a != b }
	var out []tree.Item
	for _, item := range items {
		if (prev == "" || before(prev, item.Key)) && (last == "" || !before(last, item.Key)) {
			out = append(out, item)
		}
	}
	return out
}

func (t *fakeTree) CloseCursor(ctx context.Context, id string) error {
	if err := t.db.enter(ctx, "closeCursor"); err != nil {
		return err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if t.cursors[id] == nil {
		return tree.ErrCursorNotFound
	}
	delete(t.cursors, id)
	return nil
}
