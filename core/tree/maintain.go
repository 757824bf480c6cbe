package tree

import (
	"context"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/store"
)

// maxFailures bounds the failures that a report describes.
const maxFailures = 16

// Failure is what went wrong with one shard, or with a tree as a whole.
type Failure struct {
	Tree  string
	Shard keyspace.ShardID
	Err   error
}

// Report says what a tick of maintenance did.
type Report struct {
	// Trees and Shards are the numbers visited.
	Trees, Shards int
	// Complete says that the walk came round; otherwise the next tick goes on
	// where this one ended.
	Complete bool
	// Rows and Blobs are log rows folded into checkpoints, or rows and blobs
	// collected.
	Rows, Blobs int
	// Merges is the number of merge steps done.
	Merges int
	// Due says that some shard has more merging waiting.
	Due bool
	// Open tells what waits in trees for their callers, of the first 1000 trees
	// that a collection could look through; of a tree that it came by twice, the
	// later one counts.
	Open []OpenWork
	// Finished are trees whose creation, deletion or recovery was completed,
	// Purged those that were destroyed.
	Finished, Purged []string
	// Failed counts failures; the first ones are in Failures.
	Failed   int
	Failures []Failure
}

// OpenWork counts what callers have begun in a tree and not ended.
type OpenWork struct {
	Tree string
	// Cursors have neither ended nor expired, of the first 1000 of the tree;
	// Loads are sessions of bulk loads that are open.
	Cursors, Loads int
}

// maxOpenWork bounds the trees whose open work a report describes.
const maxOpenWork = 1000

func (r *Report) fail(tree string, id keyspace.ShardID, err error) {
	if r.Failed++; len(r.Failures) < maxFailures {
		r.Failures = append(r.Failures, Failure{Tree: tree, Shard: id, Err: err})
	}
}

// Checkpoint folds the logs of shards into blobs where they are long enough,
// shard after shard across all trees, for as long as the budget lasts (0 is
// TickBudget); the next call goes on where this one ended. Calls may overlap.
// What fails for one shard is in the report and does not stop the others; the
// error is about the walk itself.
func (db *DB) Checkpoint(ctx context.Context, budget time.Duration) (Report, error) {
	var rep Report
	w := db.walker("~walk-checkpoint", budget, &rep)
	w.tree = func(_ context.Context, s stored) (bool, error) { return s.State == StateActive, nil }
	w.shard = func(ctx context.Context, l shardLog, left time.Duration) error {
		r, err := l.Checkpoint(ctx, left)
		rep.Rows += r.Rows
		rep.Merges += r.Merges
		rep.Due = rep.Due || r.Due
		return err
	}
	err := w.run(ctx)
	return rep, err
}

// Collect deletes what is no longer needed, shard after shard across all trees,
// like Checkpoint. It also finishes trees whose creation, deletion or recovery
// was left half done, and purges trees whose SoftDeleteDuration has passed.
func (db *DB) Collect(ctx context.Context, budget time.Duration) (Report, error) {
	var rep Report
	w := db.walker("~walk-collect", budget, &rep)
	w.tree = func(ctx context.Context, s stored) (bool, error) { return db.tend(ctx, s, &rep) }
	if err := db.clearGraves(ctx, &rep); err != nil {
		return rep, err
	}
	w.shard = func(ctx context.Context, l shardLog, _ time.Duration) error {
		r, err := l.Collect(ctx)
		rep.Rows += r.Rows
		rep.Blobs += r.Blobs
		return err
	}
	err := w.run(ctx)
	return rep, err
}

func (db *DB) walker(row string, budget time.Duration, rep *Report) *walker {
	if budget <= 0 {
		budget = db.opts.TickBudget
	}
	return &walker{db: db, row: row, budget: budget, report: rep}
}

// tend brings a tree forward in its life, and says whether its shards are to be
// collected.
func (db *DB) tend(ctx context.Context, s stored, rep *Report) (bool, error) {
	if s.State == StatePurging || s.State == StateDeleted && db.overdue(&s.row) {
		err := db.purge(ctx, s.Name, s.Deleted)
		if err == nil {
			rep.Purged = append(rep.Purged, s.Name)
		}
		return false, err
	}
	if !s.Settled {
		if _, err := db.settled(ctx, s); err != nil {
			return false, err
		}
		rep.Finished = append(rep.Finished, s.Name)
	}
	if s.State != StateActive {
		return false, nil
	}
	db.tendCallers(ctx, s, rep)
	return true, nil
}

// tendCallers ends what callers have left behind in a tree. What fails here is no
// reason to let the logs of the shards grow; a row that cannot be read is not
// counted.
func (db *DB) tendCallers(ctx context.Context, s stored, rep *Report) {
	open, unseen := OpenWork{Tree: s.Name}, false
	note := func(n int, err error) int {
		if err != nil {
			rep.fail(s.Name, 0, err)
			unseen = unseen || store.Transient(err)
		}
		return n
	}
	open.Loads = note(db.loads(s.ID).tidy(ctx, db.opts.BulkLoadRetention))
	open.Cursors = note(db.tendCursors(ctx, s))
	if !unseen && len(rep.Open) < maxOpenWork {
		rep.Open = append(rep.Open, open)
	}
}

// overdue reports whether a deleted tree can no longer be recovered.
func (db *DB) overdue(r *row) bool {
	o, err := db.opts.ForTree(r.Options)
	if err != nil {
		o = db.opts
	}
	return db.clock.Now().Milli()-r.Deleted >= o.SoftDeleteDuration.Milliseconds()
}

// noticed takes a row that a walk has read into what the instance remembers, if
// it remembers the tree at all: so it learns of settings that others changed.
func (db *DB) noticed(s stored) {
	db.mu.RLock()
	e := db.trees[s.Name]
	db.mu.RUnlock()
	if e == nil || e.cur.Load() == nil || s.State != StateActive || !s.Settled {
		return
	}
	if m, err := newMeta(s, db.opts, db.clock.Now()); err == nil {
		e.remember(m)
	}
}
