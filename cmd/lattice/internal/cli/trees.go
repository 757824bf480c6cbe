package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/latticekv/lattice/client"
)

// treesCmd administers trees.
type treesCmd struct {
	List    treesListCmd    `cmd:"" help:"List the trees."`
	Create  treesCreateCmd  `cmd:"" help:"Create a tree."`
	Show    treesShowCmd    `cmd:"" help:"Show a tree and its settings."`
	Set     treesSetCmd     `cmd:"" help:"Change settings of a tree."`
	Delete  treesDeleteCmd  `cmd:"" help:"Delete a tree; it can be recovered for a while."`
	Recover treesRecoverCmd `cmd:"" help:"Bring a deleted tree back."`
	Purge   treesPurgeCmd   `cmd:"" help:"Remove a deleted tree for good."`
}

// treesListCmd lists trees.
type treesListCmd struct{}

// Run carries the command out.
func (c *treesListCmd) Run(e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	trees := []client.TreeInfo{}
	for t, err := range cl.ListTrees(e.ctx) {
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	if e.json {
		return e.printJSON(map[string]any{"trees": trees})
	}
	if len(trees) == 0 {
		return e.print("There are no trees.\n")
	}
	w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tSHARDS\tCREATED")
	for _, t := range trees {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", t.Name, t.State, t.Shards, timeOrDash(t.Created))
	}
	return w.Flush()
}

// treesCreateCmd creates a tree.
type treesCreateCmd struct {
	Tree     string   `arg:"" help:"Name of the tree."`
	Shards   int      `help:"Shards to start with; the service's default if not given." placeholder:"N"`
	Settings []string `arg:"" optional:"" name:"setting" help:"Settings as Name=value."`
}

// Help implements kong.HelpProvider.
func (treesCreateCmd) Help() string {
	return `A tree that exists with the same settings is no error; one with others is exit code 1.

Examples:

    lattice trees create orders
    lattice trees create events --shards 16 TombstoneGracePeriod=1h`
}

// Run carries the command out.
func (c *treesCreateCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	opts, err := parseSettings(c.Settings)
	if err != nil {
		return err
	}
	created, err := t.Create(e.ctx, client.CreateOptions{ShardCount: c.Shards, Options: opts})
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(map[string]any{"tree": c.Tree, "created": created})
	}
	if !created {
		return e.printf("Tree %s exists already, with these settings.\n", show(c.Tree))
	}
	return e.printf("Created tree %s.\n", show(c.Tree))
}

// parseSettings reads Name=value. A value that is JSON is taken as such, any
// other as a string; an empty one is null.
func parseSettings(args []string) (client.TreeOptions, error) {
	if len(args) == 0 {
		return nil, nil
	}
	opts := client.TreeOptions{}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, usagef("setting %q is not of the form Name=value", a)
		}
		if _, twice := opts[name]; twice {
			return nil, usagef("setting %s is given twice", name)
		}
		opts[name] = settingValue(value)
	}
	return opts, nil
}

func settingValue(s string) any {
	switch {
	case s == "":
		return nil
	case json.Valid([]byte(s)):
		return json.RawMessage(s)
	}
	return s
}

// treesShowCmd shows a tree.
type treesShowCmd struct {
	Tree     string `arg:"" help:"Name of the tree."`
	ShardMap bool   `help:"Show which shard owns which slots, not the settings."`
}

// Run carries the command out.
func (c *treesShowCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	if c.ShardMap {
		return c.shardMap(e, t)
	}
	info, err := t.Info(e.ctx)
	if err != nil {
		return err
	}
	return e.showTree(info)
}

func (e *env) showTree(info client.TreeInfo) error {
	if e.json {
		return e.printJSON(info)
	}
	w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "name\t%s\nstate\t%s\nshards\t%d\nmap version\t%d\ncreated\t%s\n", info.Name, info.State, info.Shards, info.MapVersion, timeOrDash(info.Created))
	if info.Deleted != nil {
		fmt.Fprintf(w, "deleted\t%s\n", timeOrDash(*info.Deleted))
	}
	if len(info.Options) > 0 {
		fmt.Fprintln(w)
		printSettings(w, info, slices.Sorted(maps.Keys(info.Options)))
	}
	return w.Flush()
}

// printSettings prints the settings of these names that a tree has, as a table.
func printSettings(w io.Writer, info client.TreeInfo, names []string) {
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM")
	for _, name := range names {
		if s, ok := info.Options[name]; ok {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, settingText(s.Value), s.Origin)
		}
	}
}

// settingText prints a JSON string without its quotes.
func settingText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func (c *treesShowCmd) shardMap(e *env, t *client.Tree) error {
	m, err := t.ShardMap(e.ctx)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(m)
	}
	w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "version %d, %d slots\n\nSHARD\tSLOTS\tRANGES\n", m.Version, m.Slots)
	for _, s := range m.Shards {
		n, ranges := 0, make([]string, len(s.Slots))
		for i, r := range s.Slots {
			n += r[1] - r[0] + 1
			ranges[i] = fmt.Sprintf("%d-%d", r[0], r[1])
		}
		fmt.Fprintf(w, "%d\t%d\t%s\n", s.Shard, n, strings.Join(ranges, " "))
	}
	return w.Flush()
}

// treesSetCmd changes settings.
type treesSetCmd struct {
	Tree     string   `arg:"" help:"Name of the tree."`
	Settings []string `arg:"" name:"setting" help:"Settings as Name=value; Name= returns one to the service's."`
}

// Help implements kong.HelpProvider.
func (treesSetCmd) Help() string {
	return `Examples:

    lattice trees set orders TombstoneGracePeriod=24h
    lattice trees set orders TombstoneGracePeriod=`
}

// Run carries the command out.
func (c *treesSetCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	opts, err := parseSettings(c.Settings)
	if err != nil {
		return err
	}
	info, err := t.SetOptions(e.ctx, opts)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(info)
	}
	w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
	printSettings(w, info, slices.Sorted(maps.Keys(opts)))
	return w.Flush()
}

// treesDeleteCmd soft-deletes a tree.
type treesDeleteCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	Yes  bool   `short:"y" help:"Do not ask."`
}

// Run carries the command out.
func (c *treesDeleteCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	if err := e.ask(c.Yes, fmt.Sprintf("Delete tree %s? It can be recovered for a while.", show(c.Tree))); err != nil {
		return err
	}
	if err := t.Drop(e.ctx); err != nil {
		return err
	}
	return e.treeDone(c.Tree, "deleted", fmt.Sprintf("Deleted tree %s; \"lattice trees recover\" brings it back.\n", show(c.Tree)))
}

// treesRecoverCmd recovers a tree.
type treesRecoverCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
}

// Run carries the command out.
func (c *treesRecoverCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	if err := t.Recover(e.ctx); err != nil {
		return err
	}
	return e.treeDone(c.Tree, "recovered", fmt.Sprintf("Recovered tree %s.\n", show(c.Tree)))
}

// treesPurgeCmd purges a tree.
type treesPurgeCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	Yes  bool   `short:"y" help:"Do not ask."`
}

// Run carries the command out.
func (c *treesPurgeCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	if err := e.ask(c.Yes, fmt.Sprintf("Remove tree %s and all that it held, for good?", show(c.Tree))); err != nil {
		return err
	}
	if err := t.Purge(e.ctx); err != nil {
		return err
	}
	return e.treeDone(c.Tree, "purged", fmt.Sprintf("Purged tree %s.\n", show(c.Tree)))
}

func (e *env) treeDone(tree, what, line string) error {
	if e.json {
		return e.printJSON(map[string]any{"tree": tree, what: true})
	}
	return e.print(line)
}
