package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// loadRows reads and changes the rows of the bulk loads of one tree.
type loadRows struct {
	reg    *registry
	treeID string
}

func (db *DB) loads(treeID string) loadRows { return loadRows{reg: &db.reg, treeID: treeID} }

func (l loadRows) get(ctx context.Context, key string) (store.Row, error) {
	var r store.Row
	err := l.reg.retry(ctx, func() (err error) {
		r, err = l.reg.table.Get(ctx, bulkPartition(l.treeID), key)
		return err
	})
	return r, err
}

// session returns the session of an operation: ErrOperationNotFound if there is
// none.
func (l loadRows) session(ctx context.Context, operation string) (*session, error) {
	r, err := l.get(ctx, sessionKey(operation))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("bulk load %q: %w", operation, ErrOperationNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", sessionWhere(l.treeID, operation), err)
	}
	s, err := decodeSession(l.treeID, operation, r.Data)
	if err != nil {
		return nil, err
	}
	s.etag = r.ETag
	return s, nil
}

// current returns the row that says which load is under way; one without an ETag
// if there never was one.
func (l loadRows) current(ctx context.Context) (*current, error) {
	r, err := l.get(ctx, currentKey)
	if errors.Is(err, store.ErrNotFound) {
		return &current{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read current bulk load of %s: %w", bulkPartition(l.treeID), err)
	}
	c, err := decodeCurrent(l.treeID, r.Data)
	if err != nil {
		return nil, err
	}
	c.etag = r.ETag
	return c, nil
}

// occupant is a load that stands in the way of another, or has given way.
type occupant struct {
	// busy describes a load under way, nil if there is none.
	busy *BusyError
	// idle is a session that is open and may be replaced.
	idle *session
}

// occupant looks at the load that a row names.
func (l loadRows) occupant(ctx context.Context, c *current, ttl time.Duration) (occupant, error) {
	now := l.reg.clock.Now().Milli()
	if c.Session == "" {
		if c.Load == "" || now >= c.Until {
			return occupant{}, nil
		}
		return occupant{busy: &BusyError{Until: time.UnixMilli(c.Until).UTC(), RetryAfter: c.retryAfter(now)}}, nil
	}
	s, err := l.session(ctx, c.Session)
	switch {
	case errors.Is(err, ErrOperationNotFound):
		return occupant{}, nil // it has ended so long ago that it is forgotten
	case err != nil:
		return occupant{}, err
	case s.Status != BulkOpen:
		return occupant{}, nil
	case now-s.Updated < ttl.Milliseconds():
		return occupant{busy: &BusyError{OperationID: c.Session}}, nil
	}
	return occupant{idle: s}, nil
}

// retryAfter is when to look again for the end of a load in one request: at the
// latest when it is given up, and earlier since it may end before.
func (c *current) retryAfter(now int64) time.Duration {
	return min(time.Duration(c.Until-now)*time.Millisecond, loadPulse)
}

// bulkPending reports whether a bulk load of the tree is under way: a session
// that is open and has had a chunk within BulkLoadIdleTtl, or a load in one
// request. One that crashed counts for a while longer: a session until then, a
// load in one request for at most loadLease. It costs a read of one row, and of
// a second one where there was a session.
func (db *DB) bulkPending(ctx context.Context, treeID string) (bool, error) {
	l := db.loads(treeID)
	c, err := l.current(ctx)
	if err != nil {
		return false, err
	}
	o, err := l.occupant(ctx, c, db.opts.BulkLoadIdleTtl)
	return o.busy != nil, err
}

// loadLease is how long a load in one request counts as under way without a sign
// of life: that long a load whose instance died stands in the way of others. It
// outlasts two signs of life that fail, and clocks that differ by seconds.
const loadLease = 15 * time.Second

// claim makes a load the current one: the session fresh, or, if that is nil, the
// load in one request that next names. It fails with a *BusyError if
// another is under way; else it calls check, and claims only if nobody else has
// since the beginning. A session that was begun before is returned as it is,
// with created false. A session that has been idle for ttl is aborted.
func (l loadRows) claim(ctx context.Context, next current, fresh *session, ttl time.Duration, check func(context.Context) error) (s *session, created bool, err error) {
	id := l.reg.newID()
	var last error
	for attempt := range registryAttempts {
		if attempt > 0 && l.reg.pause(ctx, attempt-1, store.RetryAfter(last)) != nil {
			break
		}
		s, done, err := l.claimed(ctx, &next, fresh)
		if err != nil {
			return nil, false, err
		}
		if done {
			return s, s == nil || s.Began == id, nil
		}
		ops, err := l.claimOps(ctx, id, next, fresh, ttl, check)
		if err != nil {
			return nil, false, err
		}
		etags, err := l.reg.table.Apply(ctx, bulkPartition(l.treeID), ops)
		if err == nil {
			if fresh != nil {
				fresh.etag = etags[0]
			}
			return fresh, true, nil
		}
		if last = err; !uncertain(err) {
			break
		}
	}
	return nil, false, fmt.Errorf("begin bulk load in %s: %w", bulkPartition(l.treeID), last)
}

// claimed reports whether the claim is there already: by an attempt whose reply
// was lost, or of the same session by somebody else.
func (l loadRows) claimed(ctx context.Context, next *current, fresh *session) (*session, bool, error) {
	if fresh != nil {
		s, err := l.session(ctx, fresh.Operation)
		if errors.Is(err, ErrOperationNotFound) {
			return nil, false, nil
		}
		return s, err == nil, err
	}
	c, err := l.current(ctx)
	return nil, err == nil && c.Load == next.Load, err
}

// claimOps makes the transaction of a claim, once nothing speaks against it.
func (l loadRows) claimOps(ctx context.Context, id string, next current, fresh *session, ttl time.Duration, check func(context.Context) error) ([]store.Op, error) {
	c, err := l.current(ctx)
	if err != nil {
		return nil, err
	}
	o, err := l.occupant(ctx, c, ttl)
	if err != nil {
		return nil, err
	}
	if o.busy != nil {
		return nil, o.busy
	}
	if err := check(ctx); err != nil {
		return nil, err
	}
	now := l.reg.clock.Now()
	var ops []store.Op
	if fresh != nil {
		fresh.Began, fresh.Started, fresh.Updated = id, now.Milli(), now.Milli()
		data, err := fresh.encode()
		if err != nil {
			return nil, err
		}
		ops = append(ops, store.Insert(sessionKey(fresh.Operation), data))
	}
	if next.Load != "" {
		next.Until = now.Milli() + loadLease.Milliseconds()
	}
	next.Updated = now.Milli()
	op, err := next.op(c.etag)
	if err != nil {
		return nil, err
	}
	ops = append(ops, op)
	if o.idle == nil {
		return ops, nil
	}
	o.idle.Status, o.idle.Updated = BulkAborted, now.Milli()
	data, err := o.idle.encode()
	return append(ops, store.Replace(sessionKey(o.idle.Operation), data, o.idle.etag)), err
}

// op writes the row in place of one with an ETag, empty if there is none.
func (c *current) op(etag store.ETag) (store.Op, error) {
	data, err := c.encode()
	if err != nil {
		return store.Op{}, err
	}
	if etag == "" {
		return store.Insert(currentKey, data), nil
	}
	return store.Replace(currentKey, data, etag), nil
}

// update changes the row of a session as registry.update changes that of a tree,
// except that change itself must recognise, with errUnchanged, what an attempt
// whose reply was lost has done.
func (l loadRows) update(ctx context.Context, operation string, change func(*session) error) (*session, error) {
	var last error
	for attempt := range registryAttempts {
		if attempt > 0 && l.reg.pause(ctx, attempt-1, store.RetryAfter(last)) != nil {
			break
		}
		s, err := l.session(ctx, operation)
		if err != nil {
			return nil, err
		}
		if err := change(s); errors.Is(err, errUnchanged) {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		s.Updated = l.reg.clock.Now().Milli()
		data, err := s.encode()
		if err != nil {
			return nil, err
		}
		etags, err := l.reg.table.Apply(ctx, bulkPartition(l.treeID), []store.Op{store.Replace(sessionKey(operation), data, s.etag)})
		if err == nil {
			s.etag = etags[0]
			return s, nil
		}
		if last = err; !uncertain(err) {
			break
		}
	}
	return nil, fmt.Errorf("update %s: %w", sessionWhere(l.treeID, operation), last)
}

// renew prolongs the load in one request that the row names, or ends it. It is
// ErrOperationMismatch if the row names another.
func (l loadRows) renew(ctx context.Context, load string, end bool) error {
	var last error
	for attempt := range registryAttempts {
		if attempt > 0 && l.reg.pause(ctx, attempt-1, store.RetryAfter(last)) != nil {
			break
		}
		c, err := l.current(ctx)
		if err != nil {
			return err
		}
		if c.Load != load {
			return fmt.Errorf("another bulk load has taken the place of this one: %w", ErrOperationMismatch)
		}
		now := l.reg.clock.Now().Milli()
		next := current{Load: load, Until: now + loadLease.Milliseconds(), Updated: now}
		if end {
			next = current{Updated: now}
		}
		op, err := next.op(c.etag)
		if err != nil {
			return err
		}
		_, err = l.reg.table.Apply(ctx, bulkPartition(l.treeID), []store.Op{op})
		if err == nil {
			return nil
		}
		if last = err; !uncertain(err) {
			break
		}
	}
	return fmt.Errorf("renew bulk load in %s: %w", bulkPartition(l.treeID), last)
}

// writerID is what stands in the versions that the instance gives out.
func writerID(instance uint64) uint32 { return uint32(instance) ^ uint32(instance>>32) }

// above returns a version above every given clock and the wall clock.
func (db *DB) above(clocks ...clock.HLC) clock.Version {
	var last clock.HLC
	for _, c := range clocks {
		last = max(last, c)
	}
	return clock.Version{Time: clock.Next(last, db.clock.Now()), Writer: db.writer}
}
