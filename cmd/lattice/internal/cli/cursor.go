package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// cursorCmd walks ranges with a bookmark that the service keeps.
type cursorCmd struct {
	Open  cursorOpenCmd  `cmd:"" help:"Open a cursor and print its id."`
	Next  cursorNextCmd  `cmd:"" help:"Take the next page of a cursor, or the last one again."`
	Close cursorCloseCmd `cmd:"" help:"Close a cursor."`
}

// Help implements kong.HelpProvider.
func (cursorCmd) Help() string {
	return `A cursor is a bookmark that the service keeps: it survives interruptions, and other machines can go
on with it. With --snapshot all pages show the moment at which it was opened, whatever is written
meanwhile. One that is not used expires; a snapshot holds storage, so close it.

Examples:

    id=$(lattice cursor open users --snapshot)
    lattice cursor next users $id --limit 100
    lattice cursor next users $id --limit 100 --page 2
    lattice cursor close users $id`
}

// cursorOpenCmd opens a cursor.
type cursorOpenCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	rangeFlags
	Kind     client.CursorKind `enum:"entries,keys,delete-range" default:"entries" help:"What its pages are: entries, keys or delete-range."`
	Snapshot bool              `help:"Keep the state of this moment for all pages."`
	Reverse  bool              `short:"r" help:"Descending order."`
	All      bool              `help:"Delete every key of the tree, page by page."`
	Yes      bool              `short:"y" help:"Do not ask before a delete-range is opened."`
}

// Help implements kong.HelpProvider.
func (cursorOpenCmd) Help() string {
	return `Prints the id alone. A cursor of kind delete-range deletes with every page that is taken; opening it
deletes nothing.

Examples:

    lattice cursor open users
    lattice cursor open orders --prefix 2026- --snapshot --json
    lattice cursor open sessions --kind delete-range --prefix 2025- --yes`
}

// Run carries the command out.
func (c *cursorOpenCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	r, err := c.get()
	if err != nil {
		return err
	}
	deletes := c.Kind == client.CursorDeleteRange
	switch {
	case deletes && (c.Snapshot || c.Reverse):
		return usagef("a delete-range takes no --snapshot and no --reverse")
	case deletes && c.All != r.IsAll():
		return usagef("a delete-range takes a range, or --all")
	case c.All && !deletes:
		return usagef("--all is for a delete-range; without a range every key is listed")
	}
	if deletes {
		if err := e.ask(c.Yes, fmt.Sprintf("Delete, page by page, %s of tree %s?", describe(r), show(c.Tree))); err != nil {
			return err
		}
	}
	cur, err := t.OpenCursor(e.ctx, client.CursorQuery{Range: r, Kind: c.Kind, Snapshot: c.Snapshot, Reverse: c.Reverse, All: c.All})
	if err != nil {
		return err
	}
	if e.json {
		out := map[string]any{"cursorId": cur.ID(), "expiresAt": cur.ExpiresAt()}
		if c.Snapshot {
			out["snapshotVersion"] = cur.SnapshotVersion()
		}
		return e.printJSON(out)
	}
	if e.ErrTTY {
		fmt.Fprintf(e.Err, "If it is not used, it expires %s.\n", timeOrDash(cur.ExpiresAt()))
	}
	return e.print(cur.ID() + "\n")
}

// cursorNextCmd takes a page.
type cursorNextCmd struct {
	Tree  string    `arg:"" help:"Name of the tree."`
	ID    string    `arg:"" help:"Id of the cursor."`
	Limit int       `short:"n" help:"At most this many entries; the service's default, 1000, if not given." placeholder:"N"`
	Page  int64     `help:"Number of the page: the next one, or the last one again." placeholder:"K"`
	All   bool      `help:"Take all the pages that are left."`
	As    rows.Form `enum:"auto,text,json,base64" default:"auto" help:"Form of values with --json: auto, text, json or base64."`
}

// Help implements kong.HelpProvider.
func (cursorNextCmd) Help() string {
	return `Prints the entries as "lattice scan" does, and on standard error the number of the page and whether
there are more. With --json a page is one object on a line.

Pages are counted from 1. Whoever says which page is wanted gets it again if it got lost on the way,
until the one after it is asked for; so a script that counts neither skips nor repeats an entry.

Examples:

    lattice cursor next users 4bb0…e1 --limit 100
    lattice cursor next users 4bb0…e1 --page 3 --json
    lattice cursor next sessions 97c2…08 --all`
}

// Run carries the command out.
func (c *cursorNextCmd) Run(e *env) error {
	if c.Page < 0 || c.Limit < 0 {
		return usagef("--page and --limit are not negative")
	}
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	cur := t.Cursor(c.ID, c.Page-1)
	for more := true; more; {
		p, err := cur.Next(e.ctx, c.Limit)
		if err != nil {
			return err
		}
		if err := c.print(e, cur, p); err != nil {
			return err
		}
		more = c.All && p.HasMore
	}
	return nil
}

func (c *cursorNextCmd) print(e *env, cur *client.Cursor, p client.CursorPage) error {
	if e.json {
		return c.printJSON(e, cur, p)
	}
	rest := "there are more"
	if !p.HasMore {
		rest = "it is the last one"
	}
	if p.Deleted != nil {
		return e.printf("Page %d: deleted %s; %s.\n", p.Page, plural(*p.Deleted, "key"), rest)
	}
	out := e.entryWriter(c.As)
	for _, entry := range p.Entries {
		if err := out.Write(entry); err != nil {
			return fmt.Errorf("write output: %w", errors.Join(err, out.Flush()))
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	fmt.Fprintf(e.Err, "Page %d: %s entries; %s.\n", p.Page, progress.Group(int64(len(p.Entries))), rest)
	return nil
}

// printJSON prints a page as one object.
func (c *cursorNextCmd) printJSON(e *env, cur *client.Cursor, p client.CursorPage) error {
	out := map[string]any{"page": p.Page, "hasMore": p.HasMore, "expiresAt": cur.ExpiresAt()}
	if p.Deleted != nil {
		out["deleted"] = *p.Deleted
		return e.printJSON(out)
	}
	entries := make([]json.RawMessage, len(p.Entries))
	for i, entry := range p.Entries {
		var b bytes.Buffer
		w := rows.NewNDJSONWriter(&b, c.As)
		if err := errors.Join(w.Write(entry), w.Flush()); err != nil {
			return err
		}
		entries[i] = b.Bytes()
	}
	out["entries"] = entries
	return e.printJSON(out)
}

// cursorCloseCmd closes a cursor.
type cursorCloseCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	ID   string `arg:"" help:"Id of the cursor."`
}

// Help implements kong.HelpProvider.
func (cursorCloseCmd) Help() string {
	return `Frees what a snapshot holds. Closing a cursor that does not exist any more is no error.

Example:

    lattice cursor close users 4bb0…e1`
}

// Run carries the command out.
func (c *cursorCloseCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	if err := t.Cursor(c.ID, -1).Close(e.ctx); err != nil {
		return err
	}
	if e.json {
		return e.printJSON(map[string]string{"closed": c.ID})
	}
	return e.printf("Closed cursor %s.\n", c.ID)
}

// closeTime is how long an interrupted command tries to close its cursor.
const closeTime = 10 * time.Second

// scanSnapshot yields entries as of one moment, by a cursor that is closed at
// the end, however that comes.
func (e *env) scanSnapshot(t *client.Tree, q client.Query) iter.Seq2[client.Entry, error] {
	return func(yield func(client.Entry, error) bool) {
		kind := client.CursorEntries
		if q.KeysOnly {
			kind = client.CursorKeys
		}
		cur, err := t.OpenCursor(e.ctx, client.CursorQuery{Range: q.Range, Kind: kind, Snapshot: true, Reverse: q.Reverse})
		if err != nil {
			yield(client.Entry{}, err)
			return
		}
		defer e.closeCursor(cur)
		left := q.Limit
		for entry, err := range cur.All(e.ctx, min(q.Limit, snapshotPage)) {
			if !yield(entry, err) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

// snapshotPage is how many entries are read at a time when a limit is given.
const snapshotPage = 1000

// closeCursor closes a cursor even of a command that was interrupted. It is a
// courtesy: the cursor would expire.
func (e *env) closeCursor(cur *client.Cursor) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), closeTime)
	defer cancel()
	if err := cur.Close(ctx); err != nil && !e.json {
		fmt.Fprintf(e.Err, "The snapshot stays open until %s: %s.\n", timeOrDash(cur.ExpiresAt()), brief(err))
	}
}
