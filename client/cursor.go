package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// CursorKind says what the pages of a cursor are.
type CursorKind string

// The kinds of cursor.
const (
	// CursorKeys gives keys and versions, CursorEntries the values too.
	CursorKeys    CursorKind = "keys"
	CursorEntries CursorKind = "entries"
	// CursorDeleteRange deletes a range page by page.
	CursorDeleteRange CursorKind = "delete-range"
)

// CursorQuery describes a cursor.
type CursorQuery struct {
	Range
	Kind CursorKind
	// Snapshot keeps the state of one moment for all pages, whatever is written
	// meanwhile. Not for a delete-range.
	Snapshot bool
	// Reverse walks in descending order. Not for a delete-range.
	Reverse bool
	// All must be said to delete every key of the tree by a delete-range; it
	// excludes a range.
	All bool
}

func (s *CursorQuery) check() error {
	if s.Prefix != "" && (s.Start != "" || s.End != "") {
		return fmt.Errorf("%w: Prefix excludes Start and End", ErrInvalidRequest)
	}
	for _, bound := range []string{s.Start, s.End, s.Prefix} {
		if bound != "" {
			if err := checkKey(bound); err != nil {
				return err
			}
		}
	}
	if s.All != (s.Kind == CursorDeleteRange && s.IsAll()) {
		return fmt.Errorf("%w: a delete-range needs a range, or All and no range", ErrInvalidRequest)
	}
	return nil
}

// Cursor is a walk over a range whose bookmark the service keeps: it survives
// this process and every instance of the service. It is for one goroutine at a
// time.
type Cursor struct {
	tree     *Tree
	id       string
	snapshot string
	expires  time.Time
	// last is the number of the last page had, -1 if that is not known.
	last int64
}

// OpenCursor opens a cursor. Close it when it is done with: a snapshot holds
// back the collection of what has been overwritten since. One whose opening got
// lost on the way, or that nobody closes, expires. A tree with too many snapshots
// is ErrQuotaExceeded.
func (t *Tree) OpenCursor(ctx context.Context, s CursorQuery) (*Cursor, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	q, err := t.call(http.MethodPost, "/cursors", repeatAlways)
	if err != nil {
		return nil, err
	}
	err = q.jsonBody(struct {
		Kind     CursorKind `json:"kind"`
		Snapshot bool       `json:"snapshot,omitempty"`
		Start    string     `json:"start,omitempty"`
		End      string     `json:"end,omitempty"`
		Prefix   string     `json:"prefix,omitempty"`
		Reverse  bool       `json:"reverse,omitempty"`
	}{s.Kind, s.Snapshot, s.Start, s.End, s.Prefix, s.Reverse})
	if err != nil {
		return nil, err
	}
	var out struct {
		CursorID        string    `json:"cursorId"`
		ExpiresAt       time.Time `json:"expiresAt"`
		SnapshotVersion string    `json:"snapshotVersion"`
	}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return nil, err
	}
	if out.CursorID == "" || s.Snapshot != (out.SnapshotVersion != "") {
		return nil, fmt.Errorf("%w: no cursor, or none as it was asked for", ErrProtocol)
	}
	return &Cursor{tree: t, id: out.CursorID, snapshot: out.SnapshotVersion, expires: out.ExpiresAt}, nil
}

// Cursor returns a handle of a cursor that was opened before, perhaps by another
// process. lastPage is the number of the last page that arrived: the next one
// will be lastPage+1. If it is not known, -1 goes on with whatever page comes
// next; then the first Next is not repeated when its reply is lost. It sends
// nothing.
func (t *Tree) Cursor(id string, lastPage int64) *Cursor {
	return &Cursor{tree: t, id: id, last: max(lastPage, -1)}
}

// ID is what the service knows the cursor by.
func (c *Cursor) ID() string { return c.id }

// SnapshotVersion is the moment that a snapshot shows: it has the entries whose
// versions are not above it. It is empty if the cursor has no snapshot, or was
// not opened by this process.
func (c *Cursor) SnapshotVersion() string { return c.snapshot }

// ExpiresAt is when the cursor ends unless it is used, as of the last answer.
func (c *Cursor) ExpiresAt() time.Time { return c.expires }

// LastPage is the number of the last page that Next returned: 0 before the first,
// -1 if it is not known.
func (c *Cursor) LastPage() int64 { return c.last }

// CursorPage is one page of a cursor.
type CursorPage struct {
	// Page is its number, from 1.
	Page int64
	// Entries are without values if the kind is CursorKeys.
	Entries []Entry
	// Deleted is how many keys a delete-range has removed for this page; nil for
	// other kinds. After a lost reply it may count only what was left to remove.
	Deleted *int64
	// HasMore says that another page may have entries.
	HasMore bool
}

// jsonPage is a page as the service writes it.
type jsonPage struct {
	Page      int64        `json:"page"`
	Entries   *[]jsonEntry `json:"entries"`
	Deleted   *int64       `json:"deleted"`
	HasMore   *bool        `json:"hasMore"`
	ExpiresAt time.Time    `json:"expiresAt"`
}

// Next returns the next page, with at most limit entries; 0 is the service's
// default of 1,000, and 10,000 the most. It asks for the page by its number, so
// that one whose reply is lost is had again, by this call or by the next, and
// nothing is skipped or given twice. A page may be shorter than limit, even
// empty, and the cursor have more. ErrCursorNotFound; ErrSnapshotExpired.
func (c *Cursor) Next(ctx context.Context, limit int) (CursorPage, error) {
	if limit < 0 || limit > maxPage {
		return CursorPage{}, fmt.Errorf("%w: limit must be 0 to %d", ErrInvalidRequest, maxPage)
	}
	numbered := c.last >= 0
	repeat := repeatRefused
	if numbered {
		repeat = repeatAlways
	}
	q, err := c.call(http.MethodPost, "/next", repeat)
	if err != nil {
		return CursorPage{}, err
	}
	if err := q.jsonBody(struct {
		Limit int   `json:"limit,omitempty"`
		Page  int64 `json:"page,omitempty"`
	}{limit, c.last + 1}); err != nil {
		return CursorPage{}, err
	}
	var out jsonPage
	if err := c.tree.c.doJSON(ctx, q, &out); err != nil {
		return CursorPage{}, err
	}
	if out.Page < 1 || numbered && out.Page != c.last+1 || out.HasMore == nil || (out.Entries == nil) == (out.Deleted == nil) {
		return CursorPage{}, fmt.Errorf("%w: not the page that was asked for", ErrProtocol)
	}
	c.last, c.expires = out.Page, out.ExpiresAt
	p := CursorPage{Page: out.Page, Deleted: out.Deleted, HasMore: *out.HasMore}
	if out.Entries != nil {
		p.Entries = entries(*out.Entries)
	}
	return p, nil
}

func (c *Cursor) call(method, rest string, r repeatable) (*call, error) {
	if c.id == "" || c.id == "." || c.id == ".." {
		return nil, fmt.Errorf("%w: %q cannot be a cursor", ErrInvalidRequest, c.id)
	}
	return c.tree.call(method, "/cursors/"+url.PathEscape(c.id)+rest, r)
}

// All yields the entries of the pages that are left, each of at most limit
// entries, as in Next. A failure is yielded once, as the last element; All goes on
// after it with the page that failed. It does not close the cursor. A delete-range
// has no entries: ErrInvalidRequest, after one page of it.
func (c *Cursor) All(ctx context.Context, limit int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for more := true; more; {
			p, err := c.Next(ctx, limit)
			if err == nil && p.Deleted != nil {
				err = fmt.Errorf("%w: a delete-range has no entries", ErrInvalidRequest)
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range p.Entries {
				if !yield(e, nil) {
					return
				}
			}
			more = p.HasMore
		}
	}
}

// Close ends the cursor and frees what its snapshot holds. One that does not
// exist any more is no error.
func (c *Cursor) Close(ctx context.Context) error {
	q, err := c.call(http.MethodDelete, "", repeatAlways)
	if err != nil {
		return err
	}
	if err := c.tree.c.doJSON(ctx, q, nil); err != nil && !errors.Is(err, ErrCursorNotFound) {
		return err
	}
	return nil
}
