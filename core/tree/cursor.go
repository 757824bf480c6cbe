package tree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
)

// OpenCursor records a cursor, durably, before its first page. A snapshot cursor
// costs one append for each shard, and copies nothing. *ArgumentError for a query
// that makes no sense.
func (t *Tree) OpenCursor(ctx context.Context, q CursorQuery) (CursorInfo, error) {
	if err := q.check(); err != nil {
		return CursorInfo{}, err
	}
	m, err := t.meta(ctx)
	if err != nil {
		return CursorInfo{}, err
	}
	ttl := m.opts.CursorIdleTtl
	if q.Snapshot {
		ttl = m.opts.SnapshotCursorTtl
	}
	r := &cursorRow{Kind: q.Kind, From: rawKey(q.Bounds.From), To: rawKey(q.Bounds.To), Reverse: q.Reverse, More: true, TTL: ttl.Milliseconds()}
	r.ID = t.db.cursors(m.ID).newID()
	r.Expiry = t.db.clock.Now().Milli() + r.TTL
	treeID, err := t.beginCursor(ctx, r, q.Snapshot)
	if err != nil {
		return CursorInfo{}, err
	}
	if err := t.db.cursors(treeID).insert(ctx, r); err != nil {
		return CursorInfo{}, err
	}
	return r.info(), nil
}

// beginCursor takes the snapshot, if there is to be one, and returns the id of the
// tree that the cursor is on.
func (t *Tree) beginCursor(ctx context.Context, r *cursorRow, snapshot bool) (treeID string, err error) {
	if snapshot {
		r.Snapshot, treeID, err = t.takeSnapshot(ctx, r.ID, r.Expiry)
		return treeID, err
	}
	m, err := t.refresh(ctx)
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

func (q *CursorQuery) check() error {
	switch q.Kind {
	case CursorKeys, CursorEntries:
		return nil
	case CursorDeleteRange:
		if q.Snapshot {
			return &ArgumentError{Field: "snapshot", Reason: "is not for a delete-range"}
		}
		if q.Reverse {
			return &ArgumentError{Field: "reverse", Reason: "is not for a delete-range"}
		}
		return nil
	}
	return &ArgumentError{Field: "kind", Reason: "must be keys, entries or delete-range"}
}

func (r *cursorRow) info() CursorInfo {
	i := CursorInfo{ID: r.ID, Expires: time.UnixMilli(r.Expiry).UTC()}
	if r.Snapshot != nil {
		i.Snapshot = clock.Version{Time: r.Snapshot.Cut}.String()
	}
	return i
}

// CursorKind returns of which kind a cursor is; that never changes. One that has
// expired has a kind as long as it is stored. ErrCursorNotFound.
func (t *Tree) CursorKind(ctx context.Context, id string) (CursorKind, error) {
	if !validCursorID(id) {
		return "", ErrCursorNotFound
	}
	m, err := t.refresh(ctx)
	if err != nil {
		return "", err
	}
	r, err := t.db.cursors(m.ID).read(ctx, id)
	if err != nil {
		return "", err
	}
	return r.Kind, nil
}

// maxCursorRaces bounds how often a page begins again because somebody else used
// the cursor.
const maxCursorRaces = 16

// NextPage returns a page of a cursor. The last page again begins where it began
// and ends where it ended, or earlier, if what was written there since does not
// fit into a page any more; the next one begins behind it. The bookmark is durable
// before the page is returned. ErrCursorNotFound; ErrSnapshotExpired, and never a
// wrong page.
func (t *Tree) NextPage(ctx context.Context, id string, q PageQuery) (CursorPage, error) {
	if q.Limit < 1 || q.Limit > t.db.opts.MaxPageEntries {
		return CursorPage{}, &ArgumentError{Field: "limit", Reason: fmt.Sprintf("must be 1 to %d", t.db.opts.MaxPageEntries)}
	}
	if !validCursorID(id) {
		return CursorPage{}, ErrCursorNotFound
	}
	for try := 0; ; try++ {
		// Which page is the next one is settled at first sight: if the reply to its
		// bookmark is lost, it is had again, and not the one after it.
		p, err := t.nextPage(ctx, id, &q)
		if !errors.Is(err, errCursorMoved) {
			return p, err
		}
		if try == maxCursorRaces || t.db.reg.pause(ctx, try, 0) != nil {
			return p, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
}

func (t *Tree) nextPage(ctx context.Context, id string, q *PageQuery) (CursorPage, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return CursorPage{}, err
	}
	r, err := t.db.cursors(m.ID).read(ctx, id)
	if err != nil {
		return CursorPage{}, err
	}
	u := &cursorUse{t: t, m: m, r: r, rows: t.db.cursors(m.ID), accept: q.Accept}
	if err := u.alive(); err != nil {
		return CursorPage{}, err
	}
	if q.Page == 0 {
		q.Page = r.Page + 1
	}
	switch {
	case q.Page == r.Page+1:
		return u.advance(ctx, q.Limit)
	case q.Page == r.Page && q.Page > 0:
		return u.repeat(ctx)
	}
	return CursorPage{}, &ArgumentError{Field: "page", Reason: fmt.Sprintf("%d: page %d is next, and page %d can be had again", q.Page, r.Page+1, r.Page)}
}

// cursorUse is one use of a cursor.
type cursorUse struct {
	t    *Tree
	m    *meta
	r    *cursorRow
	rows cursors
	// accept is that of the PageQuery.
	accept func([]Item) error
}

// alive refuses a cursor that has ended.
func (u *cursorUse) alive() error {
	over := u.t.db.clock.Now().Milli() >= u.r.Expiry
	switch {
	case u.r.Snapshot != nil && (over || u.r.Ended):
		return fmt.Errorf("cursor %s: %w", u.r.ID, ErrSnapshotExpired)
	case over:
		return fmt.Errorf("cursor %s has expired: %w", u.r.ID, ErrCursorNotFound)
	}
	return nil
}

// after is the range of what comes after a key.
func (u *cursorUse) after(key rawKey) Bounds {
	b := Bounds{From: string(u.r.From), To: string(u.r.To)}
	if key == "" {
		return b
	}
	return b.after(string(key), u.r.Reverse)
}

// advance makes the next page: it finds where that ends, saves the bookmark, and
// carries out what is to be carried out.
func (u *cursorUse) advance(ctx context.Context, limit int) (CursorPage, error) {
	r := u.r
	if r.Page > 0 && r.Kind == CursorDeleteRange && r.Deleted < 0 {
		// The page before was not finished, and its caller does not want it any
		// more; what it was to remove must go all the same.
		if _, err := u.carryOut(ctx); err != nil {
			return CursorPage{}, err
		}
	}
	var items []Item
	more := false
	if r.More {
		var err error
		if items, more, err = u.scan(ctx, u.after(r.Last), limit); err != nil {
			return CursorPage{}, err
		}
	}
	r.Page++
	r.Prev, r.More, r.Deleted = r.Last, more, 0
	if n := len(items); n > 0 {
		r.Last = rawKey(items[n-1].Key)
	}
	if r.Kind == CursorDeleteRange && len(items) > 0 {
		r.Deleted = -1
	}
	if err := u.touch(ctx); err != nil {
		return CursorPage{}, err
	}
	if err := u.rows.save(ctx, r); err != nil {
		return CursorPage{}, err
	}
	return u.page(ctx, items)
}

// repeat makes the last page again.
func (u *cursorUse) repeat(ctx context.Context) (CursorPage, error) {
	var items []Item
	if u.r.Kind != CursorDeleteRange && u.r.Last != u.r.Prev {
		b := u.after(u.r.Prev)
		if u.r.Reverse {
			b.From = string(u.r.Last)
		} else {
			b.To = string(u.r.Last) + "\x00"
		}
		var (
			more bool
			err  error
		)
		if items, more, err = u.scan(ctx, b, u.t.db.opts.MaxPageEntries); err != nil {
			return CursorPage{}, err
		}
		if more {
			// What was written there since does not fit: the rest is of the next page.
			u.r.Last, u.r.More = rawKey(items[len(items)-1].Key), true
		}
	}
	if err := u.touch(ctx); err != nil {
		return CursorPage{}, err
	}
	if err := u.rows.save(ctx, u.r); err != nil {
		return CursorPage{}, err
	}
	return u.page(ctx, items)
}

// page completes a page whose bookmark is saved.
func (u *cursorUse) page(ctx context.Context, items []Item) (CursorPage, error) {
	p := CursorPage{Kind: u.r.Kind, Page: u.r.Page, HasMore: u.r.More, Expires: time.UnixMilli(u.r.Expiry).UTC()}
	if u.r.Kind != CursorDeleteRange {
		p.Items = items
		return p, nil
	}
	if u.r.Deleted >= 0 {
		p.Deleted = u.r.Deleted
		return p, nil
	}
	var err error
	p.Deleted, err = u.carryOut(ctx)
	return p, err
}

// carryOut removes the keys of the present page, and records how many.
func (u *cursorUse) carryOut(ctx context.Context) (int64, error) {
	b := u.after(u.r.Prev)
	b.To = string(u.r.Last) + "\x00"
	n, err := u.t.DeleteRange(ctx, b)
	if err != nil {
		return n, err
	}
	u.r.Deleted = n
	return n, u.rows.save(ctx, u.r)
}

// touch moves the expiry; that of pins only once half of their life is over, for
// it costs an append for each shard.
func (u *cursorUse) touch(ctx context.Context) error {
	now := u.t.db.clock.Now().Milli()
	s := u.r.Snapshot
	if s == nil {
		u.r.Expiry = now + u.r.TTL
		return nil
	}
	if u.r.Expiry-now > u.r.TTL/2 {
		return nil
	}
	if err := u.t.renewPins(ctx, u.m, s, u.r.ID, now+u.r.TTL); err != nil {
		return err
	}
	u.r.Expiry = now + u.r.TTL
	return nil
}

// scan returns the entries of a range that are accepted, up to a limit and to
// MaxPageBytes, one at least, and whether there are more.
func (u *cursorUse) scan(ctx context.Context, b Bounds, limit int) (items []Item, more bool, err error) {
	items, more, err = u.gather(ctx, b, limit)
	if err == nil && u.accept != nil && u.r.Kind != CursorDeleteRange {
		err = u.accept(items)
	}
	return items, more, err
}

func (u *cursorUse) gather(ctx context.Context, b Bounds, limit int) ([]Item, bool, error) {
	s := u.t.newScanner(&ScanQuery{Bounds: b, Reverse: u.r.Reverse, KeysOnly: u.r.Kind != CursorEntries})
	if u.r.Snapshot != nil {
		s.opened = func(ctx context.Context, b Bounds) (*merge, error) {
			return u.t.openSnapshot(ctx, u.m, u.r.Snapshot, b, u.r.Reverse)
		}
	}
	var (
		items []Item
		size  int64
	)
	for {
		e, err := s.peek(ctx)
		if err != nil {
			return nil, false, snapshotError(err)
		}
		if e == nil {
			return items, false, nil
		}
		size += s.size(e)
		if len(items) == limit || len(items) > 0 && size > u.t.db.opts.MaxPageBytes {
			return items, true, nil
		}
		it, ok, err := s.next(ctx)
		if err != nil {
			return nil, false, snapshotError(err)
		}
		if !ok {
			return items, false, nil
		}
		items = append(items, it)
	}
}

// CloseCursor ends a cursor and frees what it holds back. ErrCursorNotFound if
// there is none.
func (t *Tree) CloseCursor(ctx context.Context, id string) error {
	m, err := t.refresh(ctx)
	if err != nil {
		return err
	}
	if !validCursorID(id) {
		return ErrCursorNotFound
	}
	rows := t.db.cursors(m.ID)
	r, err := rows.read(ctx, id)
	if err != nil {
		return err
	}
	if r.Snapshot != nil {
		if err := t.releasePins(ctx, m, r.Snapshot.shards(), id); err != nil {
			return err
		}
	}
	return rows.remove(ctx, id)
}

const (
	// cursorsPerTick bounds the cursors of a tree that one tick looks at.
	cursorsPerTick = 1000
	// endedCursorAge is how long it is remembered that a snapshot has expired, so
	// that a late caller is told that and not that there never was one.
	endedCursorAge = 7 * 24 * time.Hour
)

// tendCursors ends the cursors of a tree that have expired. One that cannot be
// read or ended is told of, and does not keep the others from it. It returns how
// many are open.
func (db *DB) tendCursors(ctx context.Context, s stored) (open int, err error) {
	m, err := newMeta(s, db.opts, db.clock.Now())
	if err != nil {
		return 0, err
	}
	t, rows := &db.entryOf(s.Name).reader, db.cursors(m.ID)
	var faults []error
	for from, n := "", 0; n < cursorsPerTick; {
		page, err := rows.list(ctx, from, store.MaxTransactionOps)
		if err != nil {
			return open, errors.Join(append(faults, err)...)
		}
		for _, row := range page.Rows {
			from = store.NextKey(row.Key)
			r, err := rows.decode(row.Key, row)
			kept := false
			if err == nil {
				kept, err = t.tendCursor(ctx, m, rows, r)
			}
			if err != nil {
				faults = append(faults, err)
			}
			if kept {
				open++
			}
		}
		if n += len(page.Rows); !page.More || len(page.Rows) == 0 || ctx.Err() != nil {
			break
		}
	}
	return open, errors.Join(faults...)
}

// tendCursor ends a cursor that has expired, and reports whether it is still open.
func (t *Tree) tendCursor(ctx context.Context, m *meta, rows cursors, r *cursorRow) (open bool, err error) {
	now := t.db.clock.Now().Milli()
	late := r.Expiry + 2*m.opts.MaxClockSkew.Milliseconds()
	switch {
	case now <= late:
		return !r.Ended, nil
	case r.Snapshot == nil, r.Ended && now > late+endedCursorAge.Milliseconds():
		return false, rows.remove(ctx, r.ID)
	case r.Ended:
		return false, nil
	}
	if err := t.releasePins(ctx, m, r.Snapshot.shards(), r.ID); err != nil && !errors.Is(err, shard.ErrClosed) {
		return false, err
	}
	r.Ended, r.Snapshot.Pins, r.Snapshot.Slots, r.Snapshot.Committed = true, nil, nil, nil
	if err := rows.save(ctx, r); err != nil && !errors.Is(err, errCursorMoved) {
		return false, err
	}
	return false, nil
}
