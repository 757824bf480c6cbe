package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
)

// diagnosticsCmd describes a tree.
type diagnosticsCmd struct {
	Tree string `arg:"" help:"Name of the tree."`
	Deep bool   `help:"Count keys and bytes, which reads the whole tree, in place of estimates."`
}

// Help implements kong.HelpProvider.
func (diagnosticsCmd) Help() string {
	return `Depth is the number of sorted runs that a read of the shard may have to ask; the log is what stands
above them. The rate is what the monitor last saw.

Examples:

    lattice diagnostics orders
    lattice diagnostics orders --deep --json | jq .totals`
}

// Run carries the command out.
func (c *diagnosticsCmd) Run(e *env) error {
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	d, err := t.Diagnostics(e.ctx, c.Deep)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(d)
	}
	var b strings.Builder
	writeTotals(&b, &d)
	if err := writeShardTable(&b, d.Shards); err != nil {
		return err
	}
	writeRemarks(&b, d.Shards)
	return e.print(b.String())
}

func writeTotals(out io.Writer, d *client.Diagnostics) {
	how := "estimated"
	if d.Deep {
		how = "counted"
	}
	n := d.Totals
	fmt.Fprintf(out, "Tree %s: %s, %s and %s in %s; %s, sampled %s.\n", show(d.Tree), plural(n.LiveKeys, "live key"),
		plural(n.Tombstones, "tombstone"), plural(n.Bytes, "byte"), plural(int64(n.Shards), "shard"), how, timeOrDash(d.SampledAt))
	if n.Expired > 0 {
		fmt.Fprintf(out, "Past their expiry and still stored: %s.\n", entryCount(n.Expired))
	}
	if d.BulkPending {
		fmt.Fprintln(out, "A bulk load is open.")
	}
	if d.Incomplete {
		fmt.Fprintln(out, "Some shards could not be sampled; the totals lack them.")
	}
	fmt.Fprintln(out)
}

func writeShardTable(out io.Writer, shards []client.ShardDiagnostics) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tSLOTS\tLIVE\tTOMBSTONES\tBYTES\tDEPTH\tLEAVES\tLOG ROWS\tLOG BYTES\tOPS/S\tLEASE\tMOVES")
	for i := range shards {
		s := &shards[i]
		rate, lease := "-", "free"
		if s.OpsPerSecond != nil {
			rate = fmt.Sprintf("%.1f", *s.OpsPerSecond)
		}
		if s.Lease.Held {
			lease = "held"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", s.Shard, s.Slots, progress.Group(s.LiveKeys), progress.Group(s.Tombstones),
			progress.Group(s.Bytes), s.Depth, s.Leaves, s.WALTailRows, progress.Group(s.WALTailBytes), rate, lease, orDash(shardMove(s.Split)))
	}
	return w.Flush()
}

// shardMove says what a split does with a shard.
func shardMove(s *client.ShardSplit) string {
	switch {
	case s == nil:
		return ""
	case s.Role == "target" && s.Peer != nil:
		return fmt.Sprintf("takes from %d, %s", *s.Peer, s.Phase)
	case s.Role == "target":
		return "takes, " + s.Phase
	case s.Peer != nil:
		return fmt.Sprintf("gives to %d, %s", *s.Peer, s.Phase)
	}
	return "gives to a new shard, " + s.Phase
}

// writeRemarks tells what fits no column.
func writeRemarks(out io.Writer, shards []client.ShardDiagnostics) {
	var lines []string
	for i := range shards {
		s := &shards[i]
		if s.Error != "" {
			lines = append(lines, fmt.Sprintf("Shard %d could not be sampled: %s", s.Shard, s.Error))
		}
		if s.BulkPending {
			lines = append(lines, fmt.Sprintf("Shard %d may hold part of a chunk of a bulk load.", s.Shard))
		}
		for _, h := range s.HotKeys {
			lines = append(lines, fmt.Sprintf("Shard %d: key %s takes about %.0f%% of the operations.", s.Shard, show(h.Key), 100*h.Share))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(lines, "\n"))
	}
}
