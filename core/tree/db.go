package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/trace"
	"github.com/latticekv/lattice/core/txn"
)

const (
	// maxCachedTrees bounds the trees whose rows an instance remembers.
	maxCachedTrees = 4096
	// metaMaxAge is after how long Open reads the row again though nothing
	// contradicted it: that is how settings changed by another instance arrive.
	metaMaxAge = time.Minute
	// maxListed bounds a page of List.
	maxListed = 1000
)

// Config is what a DB needs.
type Config struct {
	// Table and Blobs hold the state.
	Table store.Table
	Blobs store.BlobStore
	// Clock tells time and draws chance.
	Clock clock.Source
	// Options are those of the service.
	Options options.Options
	// Instance identifies this process among all; 0 draws one.
	Instance uint64
	// Exclusive says that no other process can have the store open, so that a
	// lease of another owner is that of a process that died.
	Exclusive bool
	// Trace follows appends and splits; nil is nobody. Appended hears how every
	// append ended, likewise.
	Trace    trace.Hook
	Appended func(context.Context, trace.Append, trace.Appended)
	// Splits observe the splits that this instance works on; any may be nil.
	Splits split.Events
}

// DB is the set of trees of one store, as one instance sees it. It is safe for
// concurrent use.
type DB struct {
	opts   options.Options
	clock  clock.Source
	table  store.Table
	blobs  store.BlobStore
	reg    registry
	shards shards
	splits *split.Coordinator
	txns   *txn.Registry
	tokens tokenKey
	// instance identifies this process among all.
	instance uint64
	// writer stands in the versions that the instance gives to bulk loads, and
	// bulks holds a place for each that it works on.
	writer uint32
	bulks  chan struct{}

	mu    sync.RWMutex
	trees map[string]*entry
}

// entry is what an instance remembers of one name.
type entry struct {
	// cur is the row of an active, settled tree as last seen, or nil.
	cur atomic.Pointer[meta]
	// last is the newest row ever remembered, of a tree in whatever state.
	last atomic.Pointer[meta]
	// helping says that a request looks after a split.
	helping atomic.Bool
	// shallow, deep and usage are what was last found out about what it holds.
	shallow, deep  shared[diagnosed]
	usage          shared[usage]
	reader, writer Tree
}

// Tree is a handle of one active tree. It follows the tree of its name: when
// that is purged and created again, the handle serves the new one. It is safe
// for concurrent use and costs nothing to keep.
type Tree struct {
	db   *DB
	name string
	// auto says that a write may create the tree.
	auto  bool
	entry *entry
}

// New returns a DB over a store, or every fault of the configuration. It does
// no I/O.
func New(c Config) (*DB, error) {
	if c.Table == nil || c.Blobs == nil || c.Clock == nil {
		return nil, errors.New("table, blobs and clock are required")
	}
	if err := c.Options.Validate(); err != nil {
		return nil, err
	}
	if c.Instance == 0 {
		c.Instance = c.Clock.Uint64() | 1
	}
	pool, err := newPool(&c)
	if err != nil {
		return nil, err
	}
	return newDB(c, pool), nil
}

func newDB(c Config, s shards) *DB {
	return &DB{
		opts: c.Options, clock: c.Clock, table: c.Table, blobs: c.Blobs,
		reg: registry{table: c.Table, clock: c.Clock}, shards: s,
		splits:   &split.Coordinator{Table: c.Table, Clock: c.Clock, Driver: c.Clock.Uint64() | 1, Events: c.Splits, Trace: c.Trace},
		txns:     txn.New(c.Table, c.Clock),
		trees:    map[string]*entry{},
		instance: c.Instance,
		writer:   writerID(c.Instance),
		bulks:    make(chan struct{}, max(c.Options.MaxBulkLoads, 1)),
	}
}

// Close gives back the leases that the instance holds, so that others need not
// wait until they expire. The DB still serves, without leases.
func (db *DB) Close(ctx context.Context) error {
	if held, ok := db.shards.(interface{ Close(context.Context) error }); ok {
		return held.Close(ctx)
	}
	return nil
}

// Options returns the options of the service.
func (db *DB) Options() options.Options { return db.opts }

// CheckName refuses what may not be the name of a tree, with an ArgumentError.
func CheckName(name string) error {
	if validName(name) {
		return nil
	}
	reason := "must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit"
	if strings.HasPrefix(name, "_") {
		reason = "names that begin with '_' are reserved"
	}
	return &ArgumentError{Field: "tree", Reason: reason}
}

func validName(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// entryOf returns what is remembered of a name, making room if need be.
func (db *DB) entryOf(name string) *entry {
	db.mu.RLock()
	e := db.trees[name]
	db.mu.RUnlock()
	if e != nil {
		return e
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if e := db.trees[name]; e != nil {
		return e
	}
	for other := range db.trees {
		if len(db.trees) < maxCachedTrees {
			break
		}
		delete(db.trees, other)
	}
	e = &entry{}
	e.reader = Tree{db: db, name: name, entry: e}
	e.writer = Tree{db: db, name: name, entry: e, auto: db.opts.AutoCreateTrees}
	db.trees[name] = e
	return e
}

// remember keeps the row of an active tree, unless a newer one is known.
func (e *entry) remember(m *meta) {
	for {
		old := e.cur.Load()
		if old != nil && old.ID == m.ID && old.Revision > m.Revision {
			return
		}
		if e.cur.CompareAndSwap(old, m) {
			e.last.Store(m)
			return
		}
	}
}

// fresh returns the remembered row unless it has aged.
func (db *DB) fresh(e *entry) *meta {
	m := e.cur.Load()
	if m == nil {
		return nil
	}
	now := db.clock.Now()
	if now.Mono-m.readAt.Mono > metaMaxAge || time.Duration(now.Wall-m.readAt.Wall) > metaMaxAge {
		return nil
	}
	return m
}

// Open returns a handle for reading. ErrTreeNotFound and ErrTreeDeleted as of
// some moment during the call, unless the tree is remembered as active: then
// the first operation finds out.
func (db *DB) Open(ctx context.Context, name string) (*Tree, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return db.open(ctx, name, false)
}

// OpenOrCreate returns a handle for writing, and creates the tree if there is
// none and AutoCreateTrees allows it.
func (db *DB) OpenOrCreate(ctx context.Context, name string) (*Tree, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return db.open(ctx, name, db.opts.AutoCreateTrees)
}

func (db *DB) open(ctx context.Context, name string, auto bool) (*Tree, error) {
	e := db.entryOf(name)
	t := &e.reader
	if auto {
		t = &e.writer
	}
	if db.fresh(e) != nil {
		return t, nil
	}
	if _, err := t.refresh(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// refresh reads the row of the tree again, finishes what is unfinished about
// it, and remembers it. A handle for writing creates a tree that is missing.
func (t *Tree) refresh(ctx context.Context) (*meta, error) {
	s, err := t.db.reg.read(ctx, t.name)
	switch {
	case err != nil:
	case s.State == StatePurging:
		// Readers do not wait for the end of a purge.
		err = fmt.Errorf("tree %q is being purged: %w", t.name, ErrTreeNotFound)
	default:
		s, err = t.db.settled(ctx, s)
	}
	if t.auto && errors.Is(err, ErrTreeNotFound) {
		s, _, err = t.db.create(ctx, t.name, CreateOptions{})
	}
	if err != nil {
		return nil, t.unknown(err)
	}
	if s.State == StateDeleted {
		return nil, t.unknown(fmt.Errorf("tree %q: %w", t.name, ErrTreeDeleted))
	}
	m, err := newMeta(s, t.db.opts, t.db.clock.Now())
	if err != nil {
		return nil, t.unknown(err)
	}
	t.entry.remember(m)
	return m, nil
}

// unknown forgets the row when the error says that there is no active tree.
func (t *Tree) unknown(err error) error {
	if errors.Is(err, ErrTreeNotFound) || errors.Is(err, ErrTreeDeleted) {
		t.entry.cur.Store(nil)
	}
	return err
}

// Name returns the name of the tree.
func (t *Tree) Name() string { return t.name }

// Info describes a tree, deleted or not, as its row says now.
func (db *DB) Info(ctx context.Context, name string) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	s, err := db.reg.read(ctx, name)
	if err != nil {
		return Info{}, err
	}
	if s.State == StateCreating {
		if s, err = db.settled(ctx, s); err != nil {
			return Info{}, err
		}
	}
	return s.info(), nil
}

// Settings returns every option as it applies to the tree that i describes,
// with its origin.
func (db *DB) Settings(i Info) ([]options.Value, error) {
	o, err := db.opts.ForTree(i.Options)
	if err != nil {
		return nil, argumentError(err)
	}
	return o.Values(), nil
}

// List returns up to limit trees after a name, in order of names, and the name
// to continue after, empty at the end. Deleted trees are listed.
func (db *DB) List(ctx context.Context, after string, limit int) (infos []Info, next string, err error) {
	if limit < 1 || limit > maxListed {
		return nil, "", &ArgumentError{Field: "limit", Reason: fmt.Sprintf("must be 1 to %d", maxListed)}
	}
	from := ""
	if after != "" {
		from = store.NextKey(rowKey(after))
	}
	for more := true; more; {
		var rows []stored
		if rows, more, err = db.reg.list(ctx, from, limit+1); err != nil {
			return nil, "", err
		}
		if len(rows) == 0 {
			break
		}
		for _, s := range rows {
			from = store.NextKey(rowKey(s.Name))
			if s.State == StateCreating {
				continue
			}
			if len(infos) == limit {
				return infos, infos[limit-1].Name, nil
			}
			infos = append(infos, s.info())
		}
	}
	return infos, "", nil
}

// SetOptions changes the settings of one tree: null removes one, any other
// value sets it. Faults are an ArgumentError and change nothing. Durable on
// return; other instances follow within a minute.
func (db *DB) SetOptions(ctx context.Context, name string, patch map[string]json.RawMessage) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	s, err := db.reg.update(ctx, name, func(r *row) error {
		switch r.State {
		case StateDeleted:
			return fmt.Errorf("tree %q: %w", name, ErrTreeDeleted)
		case StatePurging:
			return fmt.Errorf("tree %q is being purged: %w", name, ErrTreeNotFound)
		}
		merged, err := db.opts.Patch(r.Options, patch)
		if err != nil {
			return argumentError(err)
		}
		r.Options = merged
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	db.entryOf(name).cur.Store(nil)
	return s.info(), nil
}

// argumentError turns faults of options into one ArgumentError.
func argumentError(err error) error {
	faults := options.Faults(err)
	switch len(faults) {
	case 0:
		return err
	case 1:
		return &ArgumentError{Field: "options." + faults[0].Name, Reason: faults[0].Reason}
	}
	reasons := make([]string, len(faults))
	for i, f := range faults {
		reasons[i] = f.Error()
	}
	return &ArgumentError{Field: "options", Reason: strings.Join(reasons, "; ")}
}

// Ready reports whether the storage answers, table and blobs: nil if it does.
func (db *DB) Ready(ctx context.Context) error {
	if _, err := db.table.Get(ctx, partitionRegistry, "~ready"); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reach the table: %w", err)
	}
	if _, _, err := db.blobs.Get(ctx, "ready"); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("reach the blobs: %w", err)
	}
	return nil
}

// shard returns a shard of the tree.
func (db *DB) shard(partition string, t shard.Tuning) shardLog { return db.shards.shard(partition, t) }
