package api

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/split"
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
	// activity is that of the cluster.
	activity tree.SplitActivity
	// noCreate stands for AutoCreateTrees off.
	noCreate bool
}

type fakeTree struct {
	db    *fakeDB
	info  tree.Info
	items map[string]tree.Item
	// active and done are its splits.
	active, done []*split.State
	// reshard is the one that runs, if its Target is not 0.
	reshard tree.ReshardStatus
	// streamErr ends a stream after streamed entries.
	streamErr error
	streamed  int
	// loads are its bulk load sessions; portion is how many entries a streamed
	// load applies at once.
	loads   map[string]*fakeLoad
	portion int
	// operations are the named batches, cursors the open ones.
	operations map[string]fakeOperation
	cursors    map[string]*fakeCursor
	// diagnostics are what is answered.
	diagnostics tree.Diagnostics
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

func (db *fakeDB) SplitActivity(ctx context.Context) (tree.SplitActivity, error) {
	if err := db.enter(ctx, "splitActivity"); err != nil {
		return tree.SplitActivity{}, err
	}
	return db.activity, nil
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
