package bolt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	bbolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/latticekv/lattice/core/store"
)

// Bounds of one group of writes.
const (
	maxGroupWrites = 256
	maxGroupBytes  = 16 << 20
)

// committer groups the writes of concurrent callers into one transaction of
// the database, and so into one sync of the disk.
//
// Callers queue. The first becomes the leader: it takes what has queued up,
// commits it, hands out the outcomes, and passes the lead to the next in the
// queue. So the group grows while the disk is busy, and no goroutine is needed
// besides those of the callers.
//
// Each write evaluates its conditions inside the transaction, on top of the
// writes before it in the group, and changes nothing if one fails: it is
// rejected alone.
type committer struct {
	db   *bbolt.DB
	path string

	mu    sync.Mutex
	queue []*write
	// led says that there is a leader.
	led bool
	// broken is the failure of a commit. What is on disk is unknown from then
	// on, so that nothing further is accepted.
	broken error
}

// write is one change that applies as a whole or not at all.
type write struct {
	// apply evaluates the conditions and then makes the changes. An error
	// means that it made none, unless it is errHalfway.
	apply func(tx *bbolt.Tx) error
	// bytes is the size of its payload.
	bytes int
	// turn tells a waiting writer that it leads (true), or that err is set.
	turn chan bool
	err  error
}

// do performs a write and returns when it is durable or has failed.
func (c *committer) do(ctx context.Context, bytes int, apply func(tx *bbolt.Tx) error) error {
	w := &write{apply: apply, bytes: bytes, turn: make(chan bool, 1)}
	lead := c.enter(w)
	if !lead {
		select {
		case lead = <-w.turn:
		case <-ctx.Done():
			if c.withdraw(w) {
				return store.CheckContext(ctx)
			}
			// Too late: it is being committed, which does not take long, or it
			// is to lead, which others wait for.
			lead = <-w.turn
		}
	}
	if lead {
		c.lead()
	}
	return w.err
}

// enter queues a write and reports whether it leads.
func (c *committer) enter(w *write) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, w)
	lead := !c.led
	c.led = true
	return lead
}

// withdraw takes a write out of the queue, unless its turn has come.
func (c *committer) withdraw(w *write) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.queue, w)
	if i < 0 || len(w.turn) > 0 {
		return false
	}
	c.queue = slices.Delete(c.queue, i, i+1)
	return true
}

// lead commits one group, whose first is the leader's own write.
func (c *committer) lead() {
	group, broken := c.take()
	if broken != nil {
		settle(group, broken)
	} else {
		c.commit(group)
	}
	for _, w := range group[1:] {
		w.turn <- false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.led = len(c.queue) > 0; c.led {
		c.queue[0].turn <- true
	}
}

// take removes the next group from the queue.
func (c *committer) take() ([]*write, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < len(c.queue) && n < maxGroupWrites && (n == 0 || bytes+c.queue[n].bytes <= maxGroupBytes) {
		bytes += c.queue[n].bytes
		n++
	}
	group := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	return group, c.broken
}

// commit applies a group in one transaction and sets the outcome of each.
func (c *committer) commit(group []*write) {
	attempt := -1
	err := guard(c.path, func() error {
		return c.db.Update(func(tx *bbolt.Tx) error {
			changed := false
			for _, w := range group {
				if w.err = w.apply(tx); errors.Is(w.err, errHalfway) {
					return w.err
				}
				changed = changed || w.err == nil
			}
			if !changed {
				return errDiscard
			}
			attempt = tx.ID()
			return nil
		})
	})
	switch {
	case discard(err) == nil:
	case attempt >= 0 && !c.outOfSpace(attempt, err):
		c.fail(group, err)
	case errors.Is(err, store.ErrCorrupt):
		settle(group, err)
	default:
		settle(group, fmt.Errorf("transaction: %w: %w", store.ErrUnavailable, err))
	}
}

// outOfSpace reports whether a transaction failed for want of space before
// the page that would have made it valid was written. Nothing was applied
// then, and later ones may succeed.
func (c *committer) outOfSpace(attempt int, cause error) bool {
	if !errors.Is(cause, syscall.ENOSPC) && !errors.Is(cause, syscall.EDQUOT) && !errors.Is(cause, berrors.ErrMaxSizeReached) {
		return false
	}
	current := attempt
	err := guard(c.path, func() error {
		return c.db.View(func(tx *bbolt.Tx) error {
			current = tx.ID()
			return nil
		})
	})
	return err == nil && current < attempt
}

// errHalfway marks a write that failed after its first change, which cannot
// be taken back alone: the whole group is rolled back.
var errHalfway = errors.New("change refused")

func halfway(err error) error { return fmt.Errorf("%w: %w", errHalfway, err) }

// view runs fn on a snapshot of the database.
func view(ctx context.Context, db *bbolt.DB, path string, fn func(tx *bbolt.Tx) error) error {
	if err := store.CheckContext(ctx); err != nil {
		return err
	}
	return guard(path, func() error {
		err := db.View(fn)
		if errors.Is(err, berrors.ErrDatabaseNotOpen) {
			return fmt.Errorf("read %s: %w: %w", path, store.ErrUnavailable, err)
		}
		return err
	})
}

// fail is what happens when a commit fails: its writes may be on disk or not,
// and writes that were rejected on top of them may have been rejected wrongly.
func (c *committer) fail(group []*write, cause error) {
	c.mu.Lock()
	c.broken = fmt.Errorf("%w: an earlier commit failed, open the store again: %s", store.ErrUnavailable, cause.Error())
	c.mu.Unlock()
	for _, w := range group {
		if w.err == nil {
			w.err = fmt.Errorf("commit: %w: %s", store.ErrOutcomeUnknown, cause.Error())
		} else {
			w.err = fmt.Errorf("commit of a group: %w: %s", store.ErrUnavailable, cause.Error())
		}
	}
}

// settle gives all writes of a group the same failure.
func settle(group []*write, err error) {
	for _, w := range group {
		w.err = err
	}
}
