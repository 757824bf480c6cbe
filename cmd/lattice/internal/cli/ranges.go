package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// scanCmd prints entries.
type scanCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	rangeFlags
	Reverse  bool          `short:"r" help:"Descending order."`
	Limit    int           `short:"n" help:"Print at most this many entries." placeholder:"N"`
	KeysOnly bool          `short:"k" help:"Print keys without values."`
	As       rows.Form     `enum:"auto,text,json,base64" default:"auto" help:"Form of values with --json: auto, text, json or base64."`
	MaxAge   time.Duration `help:"Accept a view up to this old, such as 5s." placeholder:"DURATION"`
	Snapshot bool          `help:"Show the range as it is at one moment, whatever is written meanwhile."`
}

// Help implements kong.HelpProvider.
func (scanCmd) Help() string {
	return `Entries are streamed in bytewise key order, one a line: the key, a tab, the value. A key or value
that does not print on one line is quoted; a value that is no text is shown in base64. With --json
each line is an object that "lattice import" reads. If the stream breaks off, the exit code is 3.
With --snapshot every entry is that of the moment at which the scan begins; the service keeps that
state until the scan ends.

Examples:

    lattice scan users
    lattice scan users --prefix a --limit 20
    lattice scan orders --start 2026-01 --end 2026-02 --keys-only
    lattice scan events --reverse --limit 1 --json
    lattice scan orders --snapshot --json > orders.ndjson`
}

// Run carries the command out.
func (c *scanCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	r, err := c.get()
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return usagef("--limit is negative")
	}
	out := e.entryWriter(c.As)
	q := client.Query{Range: r, Reverse: c.Reverse, KeysOnly: c.KeysOnly, Limit: c.Limit, MaxAge: c.MaxAge}
	entries := t.Scan(e.ctx, q)
	if c.Snapshot {
		if c.MaxAge != 0 {
			return usagef("--max-age does not go with --snapshot, which is of now")
		}
		entries = e.scanSnapshot(t, q)
	}
	for entry, err := range entries {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if err := out.Write(entry); err != nil {
			return fmt.Errorf("write output: %w", errors.Join(err, out.Flush()))
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// countCmd counts keys.
type countCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	rangeFlags
	PerShard bool          `help:"Also print the part of each shard."`
	MaxAge   time.Duration `help:"Accept a view up to this old, such as 5s." placeholder:"DURATION"`
}

// Help implements kong.HelpProvider.
func (countCmd) Help() string {
	return `Examples:

    lattice count users
    lattice count orders --prefix 2026-11-
    lattice count --json users --per-shard`
}

// Run carries the command out.
func (c *countCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	r, err := c.get()
	if err != nil {
		return err
	}
	n, err := t.Count(e.ctx, r, client.CountOptions{ReadOptions: client.ReadOptions{MaxAge: c.MaxAge}, PerShard: c.PerShard})
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(n)
	}
	if err := e.printf("%d\n", n.Total); err != nil {
		return err
	}
	for _, s := range n.Shards {
		if err := e.printf("shard %d\t%d\n", s.Shard, s.Count); err != nil {
			return err
		}
	}
	return nil
}

// deleteCmd deletes keys or a range.
type deleteCmd struct {
	Tree string   `arg:"" help:"Name of the tree."`
	Keys []string `arg:"" optional:"" name:"key" help:"The keys; - reads them from standard input, one a line."`
	rangeFlags
	All       bool   `help:"Delete every key of the tree."`
	Yes       bool   `short:"y" help:"Do not ask before a range is deleted."`
	IfVersion string `help:"Delete the one key only if it has this version." placeholder:"VERSION"`
}

// Help implements kong.HelpProvider.
func (deleteCmd) Help() string {
	return `Deleting a key that does not exist is no error. Before a range is deleted the number of keys is
shown and a question asked; without a terminal, --yes is needed.

Examples:

    lattice delete users alice bob
    lattice delete sessions --prefix 2025- --yes
    lattice scan users --keys-only --prefix tmp/ | lattice delete users -
    lattice delete scratch --all`
}

// Run carries the command out.
func (c *deleteCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	r, err := c.get()
	if err != nil {
		return err
	}
	ranged := c.All || !r.IsAll()
	switch {
	case len(c.Keys) > 0 && ranged:
		return usagef("keys, a range and --all exclude each other")
	case c.All && !r.IsAll():
		return usagef("--all excludes a range")
	case c.IfVersion != "" && (len(c.Keys) != 1 || c.Keys[0] == "-"):
		return usagef("--if-version needs exactly one key")
	case ranged:
		return c.deleteRange(e, t, r)
	case len(c.Keys) == 0:
		return usagef("give keys, a range, or --all")
	case c.IfVersion != "":
		return c.deleteVersion(e, t)
	}
	return c.deleteKeys(e, t)
}

func (c *deleteCmd) deleteRange(e *env, t *client.Tree, r client.Range) error {
	if !c.Yes {
		question := fmt.Sprintf("Delete %s of tree %s?", describe(r), show(c.Tree))
		if e.InTTY && e.ErrTTY {
			n, err := t.Count(e.ctx, r, client.CountOptions{})
			if err != nil {
				return err
			}
			question += fmt.Sprintf(" They are %s.", progress.Group(n.Total))
		}
		if err := e.ask(false, question); err != nil {
			return err
		}
	}
	n, err := t.DeleteRange(e.ctx, r, c.All)
	if err != nil {
		return err
	}
	return c.deleted(e, n, 0)
}

func (c *deleteCmd) deleteVersion(e *env, t *client.Tree) error {
	key, err := c.key(c.Keys[0])
	if err != nil {
		return err
	}
	if _, err := t.Delete(e.ctx, key, client.DeleteOptions{IfVersion: c.IfVersion}); err != nil {
		return err
	}
	return c.deleted(e, 1, 0)
}

// deleteChunk is how many keys are deleted in one request.
const deleteChunk = 1000

func (c *deleteCmd) deleteKeys(e *env, t *client.Tree) error {
	var existed, absent int64
	var ops []client.Op
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		results, err := t.Batch(e.ctx, client.Batch{Ops: ops})
		if err != nil {
			return err
		}
		for _, r := range results {
			if err := r.Err(); err != nil {
				return fmt.Errorf("delete %s: %w", show(r.Key), err)
			}
			if r.Existed {
				existed++
			} else {
				absent++
			}
		}
		ops = ops[:0]
		return nil
	}
	for k, err := range e.keys(c.Keys, c.keyFlags) {
		if err != nil {
			return err
		}
		if ops = append(ops, client.Op{Delete: true, Key: k}); len(ops) == deleteChunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return c.deleted(e, existed, absent)
}

func (c *deleteCmd) deleted(e *env, existed, absent int64) error {
	if e.json {
		return e.printJSON(map[string]int64{"deleted": existed, "absent": absent})
	}
	line := fmt.Sprintf("Deleted %s", plural(existed, "key"))
	if absent > 0 {
		line += fmt.Sprintf("; %s did not exist", plural(absent, "key"))
	}
	return e.print(line + ".\n")
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return progress.Group(n) + " " + what + "s"
}
