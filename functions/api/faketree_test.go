package api

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// live returns the item if it is there and has not expired.
func (t *fakeTree) live(key string) (tree.Item, bool) {
	item, ok := t.items[key]
	if ok && !item.Expiry.IsZero() && !t.db.clock.Now().Time().Before(item.Expiry) {
		return tree.Item{}, false
	}
	return item, ok
}

func (t *fakeTree) Get(ctx context.Context, key string, _ tree.ReadOptions) (tree.Item, bool, error) {
	if err := t.db.enter(ctx, "get"); err != nil {
		return tree.Item{}, false, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	item, ok := t.live(key)
	return item, ok, nil
}

func check(item tree.Item, found, ifAbsent bool, ifVersion clock.Version) error {
	if ifAbsent && found || !ifVersion.IsZero() && (!found || item.Version != ifVersion) {
		return &tree.MismatchError{Current: item.Version}
	}
	return nil
}

func (t *fakeTree) Put(ctx context.Context, key string, value []byte, o tree.PutOptions) (tree.PutResult, error) {
	if err := t.db.enter(ctx, "put"); err != nil {
		return tree.PutResult{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	item, found := t.live(key)
	if o.GetOrSet && found {
		return tree.PutResult{Version: item.Version, Existing: &item}, nil
	}
	if err := check(item, found, o.IfAbsent, o.IfVersion); err != nil {
		return tree.PutResult{}, err
	}
	return tree.PutResult{Created: !found, Version: t.set(key, value, o.Type, o.TTL)}, nil
}

func (t *fakeTree) set(key string, value []byte, mediaType string, ttl time.Duration) clock.Version {
	now := t.db.clock.Now()
	t.db.last = clock.Next(t.db.last, now)
	item := tree.Item{Key: key, Value: slices.Clone(value), Type: mediaType, Version: clock.Version{Time: t.db.last, Writer: 7}}
	if ttl > 0 {
		item.Expiry = now.Time().Add(ttl)
	}
	t.items[key] = item
	return item.Version
}

func (t *fakeTree) Delete(ctx context.Context, key string, ifVersion clock.Version) (bool, error) {
	if err := t.db.enter(ctx, "deleteKey"); err != nil {
		return false, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	item, found := t.live(key)
	if err := check(item, found, false, ifVersion); err != nil {
		return false, err
	}
	delete(t.items, key)
	return found, nil
}

func (t *fakeTree) GetMany(ctx context.Context, keys []string, _ tree.ReadOptions) ([]tree.Item, error) {
	if err := t.db.enter(ctx, "getMany"); err != nil {
		return nil, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	var items []tree.Item
	for _, k := range keys {
		if item, ok := t.live(k); ok {
			items = append(items, item)
		}
	}
	return items, nil
}

func (t *fakeTree) Batch(ctx context.Context, ops []tree.BatchOp) ([]tree.BatchResult, error) {
	if err := t.db.enter(ctx, "batch"); err != nil {
		return nil, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	results := make([]tree.BatchResult, len(ops))
	for i, op := range ops {
		results[i] = t.apply(&op)
	}
	return results, nil
}

func (t *fakeTree) apply(op *tree.BatchOp) tree.BatchResult {
	if limit := testOptions().MaxKeyLength; len(op.Key) > limit {
		return tree.BatchResult{Err: &tree.LimitError{What: "key", Key: op.Key, Size: int64(len(op.Key)), Limit: int64(limit)}}
	}
	item, found := t.live(op.Key)
	if err := check(item, found, op.IfAbsent, op.IfVersion); err != nil {
		return tree.BatchResult{Err: err}
	}
	if op.Delete {
		delete(t.items, op.Key)
		return tree.BatchResult{Existed: found}
	}
	return tree.BatchResult{Existed: found, Version: t.set(op.Key, op.Value, op.Type, op.TTL)}
}

func (t *fakeTree) between(b tree.Bounds) []tree.Item {
	var items []tree.Item
	for _, key := range slices.Sorted(maps.Keys(t.items)) {
		if key >= b.From && (b.To == "" || key < b.To) {
			if item, ok := t.live(key); ok {
				items = append(items, item)
			}
		}
	}
	return items
}

func (t *fakeTree) Scan(ctx context.Context, q tree.ScanQuery) (tree.ScanPage, error) {
	if err := t.db.enter(ctx, "scan"); err != nil {
		return tree.ScanPage{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	last, ok := strings.CutPrefix(q.Token, "t:")
	if q.Token != "" && !ok {
		return tree.ScanPage{}, &tree.ArgumentError{Field: "pageToken", Reason: "not a token"}
	}
	var page tree.ScanPage
	for _, item := range t.ordered(q) {
		if ok && (!q.Reverse && item.Key <= last || q.Reverse && item.Key >= last) {
			continue
		}
		if len(page.Items) == q.Limit {
			page.NextToken = "t:" + page.Items[q.Limit-1].Key
			break
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

func (t *fakeTree) ordered(q tree.ScanQuery) []tree.Item {
	items := t.between(q.Bounds)
	if q.Reverse {
		slices.Reverse(items)
	}
	return items
}

func (t *fakeTree) Stream(ctx context.Context, q tree.ScanQuery, fn func(*tree.Item) error) (int64, error) {
	if err := t.db.enter(ctx, "stream"); err != nil {
		return 0, err
	}
	t.db.mu.Lock()
	items, streamErr, after := t.ordered(q), t.streamErr, t.streamed
	t.db.mu.Unlock()
	n := int64(0)
	for i := range items {
		if streamErr != nil && i == after {
			return n, streamErr
		}
		if err := t.db.enter(ctx, "step"); err != nil {
			return n, err
		}
		if err := fn(&items[i]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (t *fakeTree) Count(ctx context.Context, b tree.Bounds, _ tree.ReadOptions) (tree.Count, error) {
	if err := t.db.enter(ctx, "count"); err != nil {
		return tree.Count{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	m := t.shardMap()
	c := tree.Count{MapVersion: m.Version}
	perShard := map[keyspace.ShardID]int64{}
	for _, item := range t.between(b) {
		c.Total++
		perShard[m.OwnerOf(item.Key)]++
	}
	for _, id := range m.Shards() {
		c.PerShard = append(c.PerShard, tree.ShardCount{Shard: id, Count: perShard[id]})
	}
	return c, nil
}

func (t *fakeTree) DeleteRange(ctx context.Context, b tree.Bounds) (int64, error) {
	if err := t.db.enter(ctx, "deleteRange"); err != nil {
		return 0, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	items := t.between(b)
	for _, item := range items {
		delete(t.items, item.Key)
	}
	return int64(len(items)), nil
}

func (t *fakeTree) Splits(ctx context.Context) (active, done []*split.State, err error) {
	if err := t.db.enter(ctx, "splits"); err != nil {
		return nil, nil, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	return t.active, t.done, nil
}

func (t *fakeTree) Reshard(ctx context.Context, target int) (tree.ReshardStatus, bool, error) {
	if err := t.db.enter(ctx, "reshard"); err != nil {
		return tree.ReshardStatus{}, false, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	switch {
	case target < t.info.Shards:
		return tree.ReshardStatus{}, false, &tree.ArgumentError{Field: "shardCount", Reason: "is less than now"}
	case t.reshard.Target != 0 && t.reshard.Target != target:
		return tree.ReshardStatus{}, false, tree.ErrReshardInProgress
	case target > t.info.Shards:
		t.reshard = tree.ReshardStatus{Start: t.info.Shards, Current: t.info.Shards, Target: target}
	}
	return t.status(), target > t.info.Shards, nil
}

func (t *fakeTree) status() tree.ReshardStatus {
	if t.reshard.Target == 0 {
		return tree.ReshardStatus{Complete: true, Start: t.info.Shards, Current: t.info.Shards, Target: t.info.Shards}
	}
	return t.reshard
}

func (t *fakeTree) ReshardStatus(ctx context.Context) (tree.ReshardStatus, error) {
	if err := t.db.enter(ctx, "reshardStatus"); err != nil {
		return tree.ReshardStatus{}, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	return t.status(), nil
}

func (t *fakeTree) ReadShardMap(ctx context.Context) (*keyspace.Map, error) {
	if err := t.db.enter(ctx, "shardMap"); err != nil {
		return nil, err
	}
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	return t.shardMap(), nil
}

func (t *fakeTree) shardMap() *keyspace.Map {
	m, err := keyspace.Default(t.info.Shards)
	if err != nil {
		panic(err)
	}
	return m
}
