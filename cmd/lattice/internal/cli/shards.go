package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/latticekv/lattice/client"
)

// shardsCmd shows how a tree is divided.
type shardsCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
}

// Help implements kong.HelpProvider.
func (shardsCmd) Help() string {
	return `A tree has 4096 slots; each key belongs to one, and each slot to one shard. Shares are of slots.

Examples:

    lattice shards orders
    lattice shards orders --json`
}

// Run carries the command out.
func (c *shardsCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	m, err := t.ShardMap(e.ctx)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(m)
	}
	splits, err := t.Splits(e.ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tree %s has %s; version %d of its map.\n\n", show(c.Tree), plural(int64(len(m.Shards)), "shard"), m.Version)
	if err := writeShards(&b, m, moves(splits.InFlight)); err != nil {
		return err
	}
	return e.print(b.String())
}

func writeShards(out io.Writer, m client.ShardMap, moves map[int]string) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tSLOTS\tSHARE\tRANGES\tMOVES")
	for _, s := range m.Shards {
		n := slotCount(s)
		fmt.Fprintf(w, "%d\t%d\t%.1f%%\t%s\t%s\n", s.Shard, n, 100*float64(n)/float64(max(m.Slots, 1)), slotRanges(s), orDash(moves[s.Shard]))
	}
	return w.Flush()
}

func slotCount(s client.ShardSlots) int {
	n := 0
	for _, r := range s.Slots {
		n += r[1] - r[0] + 1
	}
	return n
}

// maxShownRanges bounds the ranges on one line.
const maxShownRanges = 8

func slotRanges(s client.ShardSlots) string {
	var ranges []string
	for i, r := range s.Slots {
		if i == maxShownRanges {
			ranges = append(ranges, fmt.Sprintf("and %d more", len(s.Slots)-i))
			break
		}
		ranges = append(ranges, fmt.Sprintf("%d-%d", r[0], r[1]))
	}
	return strings.Join(ranges, " ")
}

// moves says by shard what the splits in flight do with it.
func moves(inFlight []client.Split) map[int]string {
	all := map[int]string{}
	for _, s := range inFlight {
		if s.Target == nil {
			all[s.Source] = "gives to a new shard, " + s.Phase
			continue
		}
		all[s.Source] = fmt.Sprintf("gives to %d, %s", *s.Target, s.Phase)
		all[*s.Target] = fmt.Sprintf("takes from %d, %s", s.Source, s.Phase)
	}
	return all
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
