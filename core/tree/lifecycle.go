package tree

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"golang.org/x/sync/errgroup"
)

// The life of a tree. Each change of state is written to the registry row
// first, not yet settled; then the shards follow; then the row is marked
// settled. Every step can be repeated, by anybody who meets the row, so a crash
// anywhere leaves a tree that the next caller or collection finishes:
//
//	creating  shards are created         -> active, settled
//	active    shards are opened          -> settled
//	deleted   shards are closed          -> settled
//	purging   shards are emptied         -> a grave takes the place of the row
//
// A tree is visible once it is active, and by then all its shards exist. A
// closed shard refuses every read and write, whatever an instance remembers;
// so when a delete has returned, no instance can write.
//
// The heads of a purged tree's shards stay behind, closed, until its grave is
// cleared away long afterwards. So nobody who was frozen in the middle of
// creating the tree can bring a shard back to which somebody else, with as old
// an idea of the tree, would then write.

const (
	// fanOut bounds the shards that one operation works on at once.
	fanOut = 16
	// createAttempts bounds how often a create begins again because a tree of
	// the name was purged under it, settleAttempts how often a tree is followed
	// into another state.
	createAttempts = 8
	settleAttempts = 8
)

// eachShard calls f for every shard ever allocated to the tree, several at
// once, and returns the first error. A shard that does not exist is no error,
// nor is one that a purge has emptied: the row will tell.
func (db *DB) eachShard(ctx context.Context, r *row, f func(context.Context, shardLog) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fanOut)
	for id := range keyspace.ShardID(r.NextShard) {
		partition := r.partition(id)
		g.Go(func() error {
			err := f(ctx, db.shard(partition, db.tuning(r)))
			if err != nil && !errors.Is(err, shard.ErrNoShard) && !errors.Is(err, shard.ErrClosed) {
				return fmt.Errorf("shard %d of tree %q: %w", id, r.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// tuning returns what the row sets for its shards; settings that do not fit the
// service must not keep a tree from being deleted.
func (db *DB) tuning(r *row) shard.Tuning {
	if o, err := db.opts.ForTree(r.Options); err == nil {
		return tuningOf(r.Name, &o)
	}
	return tuningOf(r.Name, &db.opts)
}

// settled brings the shards into the state of the row and marks the row, unless
// that is done already; and again for whatever state others have put the tree
// in meanwhile. A purged tree comes back as ErrTreeNotFound.
func (db *DB) settled(ctx context.Context, s stored) (stored, error) {
	for range settleAttempts {
		if s.Settled {
			return s, nil
		}
		var err error
		if s, err = db.settle(ctx, s); err != nil {
			return stored{}, err
		}
	}
	return stored{}, fmt.Errorf("tree %q changes again and again: %w", s.Name, ErrRoutingUnstable)
}

func (db *DB) settle(ctx context.Context, s stored) (stored, error) {
	switch s.State {
	case StateCreating:
		return db.settleCreate(ctx, s)
	case StateActive:
		return db.settleClosed(ctx, s, false)
	case StateDeleted:
		return db.settleClosed(ctx, s, true)
	}
	if err := db.settlePurge(ctx, s); err != nil {
		return stored{}, err
	}
	return stored{}, fmt.Errorf("tree %q: %w", s.Name, ErrTreeNotFound)
}

// overtaken returns what others have made of a tree meanwhile, or the error if that
// is nothing.
func (db *DB) overtaken(ctx context.Context, s stored, cause error) (stored, error) {
	now, err := db.reg.update(ctx, s.Name, func(*row) error { return errUnchanged })
	if err == nil && now.ID == s.ID && now.Epoch == s.Epoch {
		err = cause
	}
	return now, err
}

func (db *DB) settleCreate(ctx context.Context, s stored) (stored, error) {
	if err := db.eachShard(ctx, &s.row, func(ctx context.Context, l shardLog) error { return l.Create(ctx) }); err != nil {
		return stored{}, err
	}
	return db.reg.update(ctx, s.Name, func(r *row) error {
		if r.ID != s.ID || r.State != StateCreating {
			return errUnchanged
		}
		r.State, r.Settled = StateActive, true
		return nil
	})
}

// errStaysClosed: a shard could not be opened, which is so of those alone that a
// purge has emptied.
var errStaysClosed = fmt.Errorf("a shard stays closed: %w", store.ErrUnavailable)

func (db *DB) settleClosed(ctx context.Context, s stored, closed bool) (stored, error) {
	err := db.eachShard(ctx, &s.row, func(ctx context.Context, l shardLog) error {
		err := l.SetClosedAt(ctx, closed, s.Epoch)
		if !closed && errors.Is(err, shard.ErrClosed) {
			return errStaysClosed
		}
		return err
	})
	if errors.Is(err, errStaysClosed) {
		return db.overtaken(ctx, s, err)
	}
	if err != nil {
		return stored{}, err
	}
	return db.reg.update(ctx, s.Name, func(r *row) error {
		if r.ID != s.ID || r.Epoch != s.Epoch || r.Settled {
			return errUnchanged
		}
		r.Settled = true
		return nil
	})
}

// settlePurge empties the shards of a tree and buries it.
func (db *DB) settlePurge(ctx context.Context, s stored) error {
	err := db.eachShard(ctx, &s.row, func(ctx context.Context, l shardLog) error { return l.Clear(ctx) })
	if err != nil {
		return err
	}
	if err := db.loads(s.ID).forget(ctx); err != nil {
		return err
	}
	return db.reg.bury(ctx, s, db.clock.Now())
}

// Create makes a tree, and reports whether this call did. A tree that exists
// with the settings asked for is returned; one with others is ErrTreeExists, a
// deleted one ErrTreeDeleted. What CreateOptions leaves out matches anything.
//
// The tree exists durably when Create returns without an error. After one, it
// exists and works, or will be finished by whoever meets it next, or was never
// begun.
func (db *DB) Create(ctx context.Context, name string, o CreateOptions) (Info, bool, error) {
	if err := CheckName(name); err != nil {
		return Info{}, false, err
	}
	s, created, err := db.create(ctx, name, o)
	if err != nil {
		return Info{}, false, err
	}
	return s.info(), created, nil
}

func (db *DB) create(ctx context.Context, name string, o CreateOptions) (stored, bool, error) {
	fresh, err := db.planTree(name, o)
	if err != nil {
		return stored{}, false, err
	}
	for range createAttempts {
		s, mine, err := db.findOrInsert(ctx, name, fresh)
		if err != nil {
			return stored{}, false, err
		}
		s, err = db.settled(ctx, s)
		switch {
		case errors.Is(err, ErrTreeNotFound):
			continue
		case err != nil:
			return stored{}, false, err
		case s.State == StateDeleted:
			return stored{}, false, fmt.Errorf("tree %q: %w", name, ErrTreeDeleted)
		case s.State == StateActive:
			return s, mine, matches(&s.row, o, fresh.Options)
		}
	}
	return stored{}, false, fmt.Errorf("create tree %q, purged again and again: %w", name, ErrRoutingUnstable)
}

// planTree works out the row of a new tree.
func (db *DB) planTree(name string, o CreateOptions) (row, error) {
	if o.ShardCount < 0 || o.ShardCount > 256 {
		return row{}, &ArgumentError{Field: "shardCount", Reason: fmt.Sprintf("%d is not between 1 and 256", o.ShardCount)}
	}
	count := o.ShardCount
	if count == 0 {
		count = db.opts.DefaultShardCount
	}
	settings, err := db.opts.Patch(nil, o.Options)
	if err != nil {
		return row{}, argumentError(err)
	}
	return newRow(name, count, settings, db.clock.Now())
}

// findOrInsert returns the row of the name, and whether this call made it.
func (db *DB) findOrInsert(ctx context.Context, name string, fresh row) (stored, bool, error) {
	s, err := db.reg.read(ctx, name)
	if errors.Is(err, ErrTreeNotFound) {
		return db.reg.insert(ctx, fresh)
	}
	return s, false, err
}

// matches compares a tree with what a create asked for.
func matches(r *row, o CreateOptions, settings map[string]json.RawMessage) error {
	same := o.ShardCount == 0 || o.ShardCount == r.ShardCount
	if len(o.Options) > 0 {
		same = same && maps.EqualFunc(settings, r.Options, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	}
	if !same {
		return fmt.Errorf("tree %q: %w", r.Name, ErrTreeExists)
	}
	return nil
}

// Delete closes a tree; it can be recovered until SoftDeleteDuration has
// passed. When Delete returns nil no instance can read or write the tree, and
// that is durable. Repeating it is fine, and finishes a delete that failed on
// the way. ErrTreeNotFound if there is no such tree.
func (db *DB) Delete(ctx context.Context, name string) error {
	return db.move(ctx, name, StateDeleted, func(r *row) error {
		switch r.State {
		case StateActive:
			r.enter(StateDeleted)
			r.Deleted = db.clock.Now().Milli()
			return nil
		case StateDeleted:
			return errUnchanged
		}
		return fmt.Errorf("tree %q is being purged: %w", name, ErrTreeNotFound)
	})
}

// Recover opens a deleted tree again, with all it held. Repeating one that
// failed on the way finishes it; ErrTreeNotDeleted if there is nothing to do.
func (db *DB) Recover(ctx context.Context, name string) error {
	return db.move(ctx, name, StateActive, func(r *row) error {
		switch r.State {
		case StateDeleted:
			r.enter(StateActive)
			r.Deleted = 0
			return nil
		case StateActive:
			return fmt.Errorf("tree %q: %w", name, ErrTreeNotDeleted)
		}
		return fmt.Errorf("tree %q is being purged: %w", name, ErrTreeNotFound)
	})
}

// Purge destroys a deleted tree for good, whatever its SoftDeleteDuration.
// After an error it may be half destroyed; repeating it, or the next
// collection, finishes.
func (db *DB) Purge(ctx context.Context, name string) error {
	return db.purge(ctx, name, 0)
}

// purge destroys a deleted tree; a deadline, unless 0, is the latest Unix
// millisecond at which it may have been deleted.
func (db *DB) purge(ctx context.Context, name string, deadline int64) error {
	err := db.move(ctx, name, StatePurging, func(r *row) error {
		switch {
		case r.State == StateDeleted && (deadline == 0 || r.Deleted <= deadline):
			r.enter(StatePurging)
			return nil
		case r.State == StatePurging:
			return errUnchanged
		}
		return fmt.Errorf("tree %q: %w", name, ErrTreeNotDeleted)
	})
	if errors.Is(err, errPurged) {
		return nil
	}
	return err
}

// errPurged marks the end of a purge.
var errPurged = errors.New("purged")

// move takes a tree from one settled state into the next.
func (db *DB) move(ctx context.Context, name string, target State, change func(*row) error) error {
	if err := CheckName(name); err != nil {
		return err
	}
	defer db.entryOf(name).cur.Store(nil)
	s, err := db.reg.read(ctx, name)
	if err != nil {
		return err
	}
	// What is under way is finished first, so that two changes of state do not
	// pull the shards in two directions.
	begun := s.State == target && !s.Settled
	if err := db.finish(ctx, s); err != nil || begun {
		return err
	}
	if s, err = db.reg.update(ctx, name, change); err != nil {
		return err
	}
	return db.finish(ctx, s)
}

// finish settles a row. After a purge the error is errPurged, and
// ErrTreeNotFound to those who wanted something else.
func (db *DB) finish(ctx context.Context, s stored) error {
	_, err := db.settled(ctx, s)
	if s.State == StatePurging && errors.Is(err, ErrTreeNotFound) {
		return fmt.Errorf("%w: %w", errPurged, err)
	}
	return err
}
