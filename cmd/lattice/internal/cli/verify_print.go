package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/migrate/verify"
)

// maxPrinted bounds the prefixes and ranges that people see.
const maxPrinted = 50

// print prints the report.
func (v *verifyFlags) print(e *env, r *verify.Report) error {
	if e.json {
		return e.printJSON(map[string]any{"equal": r.Equal(), "verification": r})
	}
	var b strings.Builder
	printPrefixes(&b, r)
	printRanges(&b, r)
	printDifferences(&b, r)
	printCounted(&b, r)
	printShape(&b, r.Shape)
	fmt.Fprintf(&b, "Digest of the source %s, of its keys %s.\n", r.Total.SourceEntries, r.Total.SourceKeys)
	if r.Equal() {
		fmt.Fprintf(&b, "Equal: %s.\n", verdictText(r))
	} else {
		fmt.Fprintf(&b, "Not equal: %s.\n", unequalText(r))
	}
	return e.print(b.String())
}

// unequalText says what differs, faults of the source included.
func unequalText(r *verify.Report) string {
	if r.Total.Differs() == 0 {
		return "some records of the source could not be compared"
	}
	return verdictText(r)
}

func printPrefixes(b *strings.Builder, r *verify.Report) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "source\ttree\tmissing\textra\tvalue\texpiry\tchanged\texpired\t  prefix")
	for i := range r.Prefixes[:min(len(r.Prefixes), maxPrinted)] {
		printTally(w, &r.Prefixes[i].Tally, prefixName(r.Prefixes[i].Prefix))
	}
	if r.PrefixCount > maxPrinted {
		fmt.Fprintf(w, "\t\t\t\t\t\t\t\t  … of %s prefixes\n", progress.Group(r.PrefixCount))
	}
	if r.PrefixCount != 1 {
		printTally(w, &r.Total, "in all")
	}
	_ = w.Flush() // the builder takes everything
	if r.Unbounded > 0 {
		fmt.Fprintf(b, "Of %s the ends were compared only as far as the sample met them.\n", progress.Group(r.Unbounded)+" prefixes beyond the first 10,000")
	}
}

func prefixName(p string) string {
	if p == "" {
		return "(no separator)"
	}
	return show(p)
}

func printTally(w *tabwriter.Writer, t *verify.Tally, name string) {
	for _, n := range []int64{t.Source, t.Target, t.Missing, t.Extra, t.Value, t.Expiry, t.Changed, t.Expired} {
		fmt.Fprintf(w, "%s\t", progress.Group(n))
	}
	fmt.Fprintf(w, "  %s\n", name)
}

// printRanges prints the digests, if there is more than one range.
func printRanges(b *strings.Builder, r *verify.Report) {
	if r.RangeCount < 2 {
		return
	}
	fmt.Fprintf(b, "%s, with the digests of the source:\n", plural(r.RangeCount, "range"))
	for i := range r.Ranges[:min(len(r.Ranges), maxPrinted)] {
		g := &r.Ranges[i]
		mark := ""
		if g.Differs() > 0 {
			mark = "  differs"
		}
		fmt.Fprintf(b, "  %s  %s to %s%s\n", g.SourceEntries, show(g.First), show(g.Last), mark)
	}
	if r.RangeCount > maxPrinted {
		fmt.Fprintf(b, "  … all are in %s\n", r.RangesFile)
	}
}

func printDifferences(b *strings.Builder, r *verify.Report) {
	for i := range r.First {
		d := &r.First[i]
		fmt.Fprintf(b, "%s: %s", d.Class, show(d.Key))
		if d.Origin != "" {
			fmt.Fprintf(b, " (%s)", d.Origin)
		}
		if d.Class == verify.Expiry && d.Source != nil && d.Target != nil {
			fmt.Fprintf(b, ": %s at the source, %s in the tree", timeOrDash(d.Source.ExpiresAt), timeOrDash(d.Target.ExpiresAt))
		}
		b.WriteString("\n")
	}
}

func printCounted(b *strings.Builder, r *verify.Report) {
	c := r.Counted
	if c == nil {
		return
	}
	fmt.Fprintf(b, "%s read from the source", plural(c.Read, "record"))
	if c.Before >= 0 && c.After >= 0 {
		fmt.Fprintf(b, "; it counted about %s before and %s after", progress.Group(c.Before), progress.Group(c.After))
	}
	b.WriteString(".\n")
	if c.Faults > 0 {
		fmt.Fprintf(b, "%s could not be compared:\n", plural(c.Faults, "record"))
		for _, f := range c.FirstFaults {
			fmt.Fprintf(b, "  %s\n", f)
		}
	}
}

func printShape(b *strings.Builder, s *verify.Shape) {
	if s == nil {
		return
	}
	fmt.Fprintf(b, "The tree has %s on %s, with between %.1f%% and %.1f%% of them each (median %.1f%%), %s, %s.\n",
		plural(s.LiveKeys, "live key"), plural(int64(s.Shards), "shard"), 100*s.Least, 100*s.Most, 100*s.Median,
		plural(s.Tombstones, "tombstone"), plural(int64(s.PendingGrafts), "pending graft"))
	for _, w := range s.Warnings {
		fmt.Fprintf(b, "Warning: %s\n", w)
	}
}
