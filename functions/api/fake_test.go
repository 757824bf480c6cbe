package api

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/tree"
)

// fakeDB is a database of sorted slices, with a switch for every failure.
type fakeDB struct {
	mu    sync.Mutex
	clock clock.Source
	trees map[string]*fakeTree
	last  clock.HLC
	// fail is answered by every call while it is set.
	fail error
	// hook runs at the start of every call, outside the lock.
	hook func(ctx context.Context, call string)
	// noCreate stands for AutoCreateTrees off.
	noCreate bool
}

type fakeTree struct {
	db    *fakeDB
	info  tree.Info
	items map[string]tree.Item
	// streamErr ends a stream after streamed entries.
	streamErr error
	streamed  int
}

func newFakeDB() *fakeDB {
	return &fakeDB{clock: clock.NewSystem(), trees: map[string]*fakeTree{}}
}

func (db *fakeDB) enter(ctx context.Context, call string) error {
	db.mu.Lock()
	hook, fail := db.hook, db.fail
	db.mu.Unlock()
	if hook != nil {
		hook(ctx, call)
	}
	if fail != nil {
		return fail
	}
	return context.Cause(ctx)
}

func (db *fakeDB) setFail(err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fail = err
}

func (db *fakeDB) setHook(hook func(context.Context, string)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.hook = hook
}

func (db *fakeDB) get(name string, deletedToo bool) (*fakeTree, error) {
	t, ok := db.trees[name]
	if !ok {
		return nil, tree.ErrTreeNotFound
	}
	if t.info.State == tree.StateDeleted && !deletedToo {
		return nil, tree.ErrTreeDeleted
	}
	return t, nil
}

func (db *fakeDB) create(name string, shards int, own map[string]json.RawMessage) *fakeTree {
	t := &fakeTree{db: db, items: map[string]tree.Item{}, info: tree.Info{
		Name: name, State: tree.StateActive, Shards: shards, Created: db.clock.Now().Time(), Options: own,
	}}
	db.trees[name] = t
	return t
}

func (db *fakeDB) Create(ctx context.Context, name string, o tree.CreateOptions) (tree.Info, bool, error) {
	if err := db.enter(ctx, "create"); err != nil {
		return tree.Info{}, false, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if o.ShardCount == 0 {
		o.ShardCount = 4
	}
	if t, ok := db.trees[name]; ok {
		if t.info.State != tree.StateActive {
			return tree.Info{}, false, tree.ErrTreeDeleted
		}
		same := t.info.Shards == o.ShardCount && maps.EqualFunc(t.info.Options, o.Options, func(a, b json.RawMessage) bool { return string(a) == string(b) })
		if !same {
			return tree.Info{}, false, tree.ErrTreeExists
		}
		return t.info, false, nil
	}
	return db.create(name, o.ShardCount, o.Options).info, true, nil
}

func (db *fakeDB) Info(ctx context.Context, name string) (tree.Info, error) {
	if err := db.enter(ctx, "info"); err != nil {
		return tree.Info{}, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	t, err := db.get(name, true)
	if err != nil {
		return tree.Info{}, err
	}
	return t.info, nil
}

func (db *fakeDB) List(ctx context.Context, after string, limit int) ([]tree.Info, string, error) {
	if err := db.enter(ctx, "list"); err != nil {
		return nil, "", err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	var infos []tree.Info
	for _, name := range slices.Sorted(maps.Keys(db.trees)) {
		if name <= after {
			continue
		}
		if len(infos) == limit {
			return infos, infos[limit-1].Name, nil
		}
		infos = append(infos, db.trees[name].info)
	}
	return infos, "", nil
}

func (db *fakeDB) SetOptions(ctx context.Context, name string, patch map[string]json.RawMessage) (tree.Info, error) {
	if err := db.enter(ctx, "setOptions"); err != nil {
		return tree.Info{}, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	t, err := db.get(name, false)
	if err != nil {
		return tree.Info{}, err
	}
	merged, err := testOptions().Patch(t.info.Options, patch)
	if err != nil {
		return tree.Info{}, err
	}
	t.info.Options = merged
	return t.info, nil
}

func (db *fakeDB) Delete(ctx context.Context, name string) error {
	return db.setState(ctx, name, "delete", tree.StateActive, tree.StateDeleted)
}

func (db *fakeDB) Recover(ctx context.Context, name string) error {
	return db.setState(ctx, name, "recover", tree.StateDeleted, tree.StateActive)
}

func (db *fakeDB) Purge(ctx context.Context, name string) error {
	return db.setState(ctx, name, "purge", tree.StateDeleted, tree.StatePurging)
}

func (db *fakeDB) setState(ctx context.Context, name, call string, from, to tree.State) error {
	if err := db.enter(ctx, call); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	t, ok := db.trees[name]
	switch {
	case !ok:
		return tree.ErrTreeNotFound
	case t.info.State != from && from == tree.StateActive:
		return tree.ErrTreeDeleted
	case t.info.State != from:
		return tree.ErrTreeNotDeleted
	}
	t.info.State, t.info.Deleted = to, time.Time{}
	if to == tree.StateDeleted {
		t.info.Deleted = db.clock.Now().Time()
	}
	if to == tree.StatePurging && len(t.items) == 0 {
		delete(db.trees, name)
	}
	return nil
}

func (db *fakeDB) Ready(ctx context.Context) error { return db.enter(ctx, "ready") }

func (db *fakeDB) open(ctx context.Context, name string) (handle, error) {
	if err := db.enter(ctx, "open"); err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.handle(name)
}

func (db *fakeDB) handle(name string) (handle, error) {
	t, err := db.get(name, false)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (db *fakeDB) openOrCreate(ctx context.Context, name string) (handle, error) {
	if err := db.enter(ctx, "openOrCreate"); err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if _, ok := db.trees[name]; !ok && !db.noCreate {
		return db.create(name, 4, nil), nil
	}
	return db.handle(name)
}

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

func (t *fakeTree) ShardMap() *keyspace.Map { return t.shardMap() }

func (t *fakeTree) shardMap() *keyspace.Map {
	m, err := keyspace.Default(t.info.Shards)
	if err != nil {
		panic(err)
	}
	return m
}
