package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/migrate/source"
)

const (
	// pageBytes ends a page early.
	pageBytes = 8 << 20
	// maxEqual bounds the rows of one key: they must come in one page.
	maxEqual = 50_000
	// maxEqualBytes bounds what they hold.
	maxEqualBytes = 64 << 20
	// firstWait and longestWait are the waits before trying again.
	firstWait   = 200 * time.Millisecond
	longestWait = 15 * time.Second
)

// errStopped: whoever reads wants no more.
var errStopped = errors.New("stopped")

// enumeration is one run over the rows.
type enumeration struct {
	*Source
	since *since
	yield func(source.Page, error) bool
	// after are the tokens of the last row that was yielded, nil before the
	// first.
	after []any
	// limit is that of a statement, 0 for none.
	limit int
	// failures counts what went wrong since the last page, waited how long was
	// waited for it.
	failures int
	waited   time.Duration
}

// enumerate yields pages until the end, an error, or the reader's wish.
func (s *Source) enumerate(ctx context.Context, from source.Position, changed *since, yield func(source.Page, error) bool) {
	after, err := decodePosition(s.set.keys, from)
	if err != nil {
		yield(source.Page{}, err)
		return
	}
	e := &enumeration{Source: s, since: changed, yield: yield, after: after, limit: s.o.PageRows + 1}
	if s.set.whole {
		e.limit = 0
	}
	for {
		more, err := e.statement(ctx)
		if err != nil && !errors.Is(err, errStopped) {
			err = e.recover(ctx, err)
		}
		switch {
		case errors.Is(err, errStopped):
			return
		case err != nil:
			yield(source.Page{}, s.explained(ctx, err))
			return
		case !more:
			return
		}
	}
}

// recover waits, after a failure that may go away by itself, so that the
// statement can be tried again; the others it returns.
func (e *enumeration) recover(ctx context.Context, err error) error {
	if ctx.Err() != nil || !e.transient(err) {
		return err
	}
	wait := min(firstWait<<min(e.failures, 10), longestWait)
	if e.waited+wait > e.o.RetryFor {
		return err
	}
	if e.snap != nil && e.failures == 0 {
		e.o.OnNote(fmt.Sprintf("%s Reading goes on after the last page in a new snapshot; what changed meanwhile is for a delta pass.",
			sentence(e.explained(ctx, err))))
	}
	e.release()
	e.failures++
	e.waited += wait
	if werr := e.o.wait(ctx, wait); werr != nil {
		return werr
	}
	return nil
}

// statement runs one statement and yields its pages. It reports whether there
// is more to read.
func (e *enumeration) statement(ctx context.Context) (more bool, err error) {
	if e.snap == nil {
		snap, err := e.begin(ctx)
		if err != nil {
			return true, err
		}
		e.snap = snap
	}
	text, args := e.set.page(e.d.traits(), e.after, e.since, e.limit)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, done, err := e.query(running, text, args)
	if err != nil {
		return true, err
	}
	defer func() {
		if err != nil && e.limit == 0 {
			// Closing reads to the end, which may be far: better lose the connection.
			cancel()
		}
		err = errors.Join(err, done(err))
		if errors.Is(err, errStopped) && e.limit == 0 {
			e.release()
		}
	}()
	c := newCollector(e.set)
	n := 0
	for rows.Next() {
		n++
		if err := rows.Scan(c.targets...); err != nil {
			return true, err
		}
		begins, err := c.row()
		if err != nil {
			return true, err
		}
		// A page ends before a row whose key differs from that of the last one.
		if begins && c.full(e.o.PageRows) {
			if err := e.emit(c, false); err != nil {
				return true, err
			}
		}
		c.take()
	}
	if err := rows.Err(); err != nil {
		return true, err
	}
	return e.finish(c, n)
}

// query runs a statement, prepared where that matters.
func (s *Source) query(ctx context.Context, text string, args []any) (*sql.Rows, func(error) error, error) {
	if !s.d.traits().prepared {
		rows, err := s.snap.conn.QueryContext(ctx, text, args...)
		return rows, func(err error) error { return closing(err, rows) }, err
	}
	p, err := s.snap.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, nil, err
	}
	rows, err := p.QueryContext(ctx, args...)
	if err != nil {
		return nil, nil, errors.Join(err, closing(err, p))
	}
	return rows, func(err error) error {
		err = closing(err, rows)
		return errors.Join(err, closing(err, p))
	}, nil
}

// finish yields what a statement left over. The rows of its last key may go on
// beyond the limit, so they are read again.
func (e *enumeration) finish(c *collector, rows int) (more bool, err error) {
	if e.limit == 0 || rows < e.limit {
		return false, e.emit(c, true)
	}
	c.dropGroup()
	if len(c.done.Records)+len(c.done.Faults) > 0 {
		e.limit = e.o.PageRows + 1
		return true, e.emit(c, false)
	}
	if c.after != nil {
		// All that was read was yielded already.
		return true, nil
	}
	if e.limit > maxEqual {
		return false, tooManyEqual(e.set.keys)
	}
	e.limit *= 2
	return true, nil
}

func tooManyEqual(keys []*column) error {
	return notice("more than %d rows, or %d MiB of them, have the same %s: give key columns that identify a row",
		maxEqual, maxEqualBytes>>20, list(columnNames(keys)))
}

// emit yields a page of the complete groups.
func (e *enumeration) emit(c *collector, last bool) error {
	page, after := c.page(last)
	if after != nil {
		e.after = after
	}
	if !last {
		next, err := encodePosition(e.set.keys, e.after)
		if err != nil {
			return err
		}
		page.Next = next
	}
	e.failures, e.waited = 0, 0
	if !e.yield(page, nil) {
		return errStopped
	}
	return nil
}

// closing closes c; what it says matters only if nothing else failed.
func closing(err error, c interface{ Close() error }) error {
	if cerr := c.Close(); err == nil {
		return cerr
	}
	return nil
}
