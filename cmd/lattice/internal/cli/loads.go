package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
)

// loadsCmd looks after bulk load sessions.
type loadsCmd struct {
	List   loadsListCmd   `cmd:"" help:"List the sessions of a tree, the one changed last first."`
	State  loadsStateCmd  `cmd:"" help:"Show where a session stands."`
	Commit loadsCommitCmd `cmd:"" help:"End a session and count the keys of the tree."`
	Abort  loadsAbortCmd  `cmd:"" help:"End a session; what it loaded stays."`
}

// Help implements kong.HelpProvider.
func (loadsCmd) Help() string {
	return `"lattice load --mode session" opens sessions, and commits them at the end.

Examples:

    lattice loads list orders
    lattice loads state orders orders-2026-11
    lattice loads abort orders orders-2026-11`
}

// sessionArgs name a session.
type sessionArgs struct {
	Tree      string `arg:"" help:"Name of the tree."`
	Operation string `arg:"" help:"Id of the session."`
}

// show asks for a state and prints it.
func (a *sessionArgs) show(e *env, ask func(*client.Tree, context.Context, string) (client.BulkState, error)) error {
	t, err := e.tree(a.Tree)
	if err != nil {
		return err
	}
	s, err := ask(t, e.ctx, a.Operation)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(s)
	}
	return e.print(describeState(s))
}

func describeState(s client.BulkState) string {
	out := fmt.Sprintf("Session %s is %s: %s in %s", s.OperationID, s.Status, entryCount(s.Accepted), plural(s.NextChunk, "chunk"))
	if s.LastKey != "" {
		out += ", up to key " + show(s.LastKey)
	}
	out += ".\n"
	if s.OverLimit > 0 {
		out += fmt.Sprintf("Beyond the limits of ordinary writes: %s.\n", entryCount(s.OverLimit))
	}
	if s.Pending {
		out += fmt.Sprintf("Chunk %d was begun and is not acknowledged; it must be sent again.\n", s.NextChunk)
	}
	if s.Status == client.BulkCommitted && s.TotalLiveKeys > 0 {
		out += fmt.Sprintf("The tree has %s.\n", plural(s.TotalLiveKeys, "live key"))
	}
	return out + fmt.Sprintf("Begun %s, last changed %s.\n", timeOrDash(s.Started), timeOrDash(s.Updated))
}

// loadsListCmd lists sessions.
type loadsListCmd struct {
	Tree  string `arg:"" help:"Name of the tree."`
	Limit int    `default:"100" help:"Sessions at most, 1 to 1,000." placeholder:"N"`
}

// Help implements kong.HelpProvider.
func (loadsListCmd) Help() string {
	return `Sessions that ended are forgotten after a time.

Example:

    lattice loads list orders`
}

// Validate implements kong's check of flags against each other.
func (c *loadsListCmd) Validate() error {
	if c.Limit < 1 || c.Limit > 1000 {
		return errors.New("--limit must be 1 to 1,000")
	}
	return nil
}

// Run carries the command out.
func (c *loadsListCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	all, err := t.ListBulkLoads(e.ctx, c.Limit)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(map[string]any{"bulkLoads": all})
	}
	if len(all) == 0 {
		return e.printf("Tree %s has no bulk load sessions.\n", show(c.Tree))
	}
	w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tSTATUS\tNEXT CHUNK\tENTRIES\tCHANGED")
	for i := range all {
		s := &all[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", s.OperationID, s.Status, s.NextChunk, progress.Group(s.Accepted), timeOrDash(s.Updated))
	}
	return w.Flush()
}

type loadsStateCmd struct{ sessionArgs }

// Help implements kong.HelpProvider.
func (loadsStateCmd) Help() string {
	return `Example:

    lattice loads state orders orders-2026-11`
}

// Run carries the command out.
func (c *loadsStateCmd) Run(e *env) error { return c.show(e, (*client.Tree).BulkLoadState) }

type loadsCommitCmd struct{ sessionArgs }

// Help implements kong.HelpProvider.
func (loadsCommitCmd) Help() string {
	return `Committing twice is no error.

Example:

    lattice loads commit orders orders-2026-11`
}

// Run carries the command out.
func (c *loadsCommitCmd) Run(e *env) error { return c.show(e, (*client.Tree).CommitBulkLoad) }

type loadsAbortCmd struct{ sessionArgs }

// Help implements kong.HelpProvider.
func (loadsAbortCmd) Help() string {
	return `Nothing is taken back. Another session needs an empty tree: drop this one, or use another.

Example:

    lattice loads abort orders orders-2026-11`
}

// Run carries the command out.
func (c *loadsAbortCmd) Run(e *env) error { return c.show(e, (*client.Tree).AbortBulkLoad) }
