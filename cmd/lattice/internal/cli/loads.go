package cli

import (
	"context"
	"fmt"

	"github.com/latticekv/lattice/client"
)

// loadsCmd looks after bulk load sessions.
type loadsCmd struct {
	State  loadsStateCmd  `cmd:"" help:"Show where a session stands."`
	Commit loadsCommitCmd `cmd:"" help:"End a session and count the keys of the tree."`
	Abort  loadsAbortCmd  `cmd:"" help:"End a session; what it loaded stays."`
}

// Help implements kong.HelpProvider.
func (loadsCmd) Help() string {
	return `"lattice load --mode session" opens sessions, and commits them at the end.

Examples:

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
