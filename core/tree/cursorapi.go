package tree

import (
	"errors"
	"time"
)

// ErrCursorNotFound: no cursor has the id, or it has expired.
var ErrCursorNotFound = errors.New("cursor not found")

// CursorKind says what the pages of a cursor are.
type CursorKind string

// The kinds of cursor.
const (
	CursorKeys        CursorKind = "keys"
	CursorEntries     CursorKind = "entries"
	CursorDeleteRange CursorKind = "delete-range"
)

// CursorQuery describes a cursor.
type CursorQuery struct {
	Kind   CursorKind
	Bounds Bounds
	// Reverse walks in descending order. Not for a delete-range.
	Reverse bool
	// Snapshot keeps the state of one moment for all pages. Not for a
	// delete-range.
	Snapshot bool
}

// CursorInfo is what its caller must know of a cursor.
type CursorInfo struct {
	ID string
	// Expires is when it ends unless it is used; every page moves that.
	Expires time.Time
	// Snapshot is the cut of a snapshot cursor, empty for others.
	Snapshot string
}

// PageQuery says which page of a cursor is wanted.
type PageQuery struct {
	// Page is its number: the next one, or the last one again; 0 is the next one.
	Page int64
	// Limit is the most entries of a next page, 1 to MaxPageEntries.
	Limit int
	// Accept, unless nil, is asked for a page of keys or entries before the bookmark
	// moves. Its error refuses the page, and is what NextPage returns: the cursor
	// stands where it stood.
	Accept func(items []Item) error
}

// CursorPage is one page.
type CursorPage struct {
	Kind CursorKind
	// Page is its number, from 1.
	Page int64
	// Items are the entries, without values if the kind is keys.
	Items []Item
	// Deleted is how many keys a delete-range has removed for this page: after a
	// crash in the middle of it, those that were left to remove.
	Deleted int64
	// HasMore says that another page may have entries.
	HasMore bool
	Expires time.Time
}
