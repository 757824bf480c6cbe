package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/migrate"
	"github.com/latticekv/lattice/migrate/verify"
)

// comparison returns what compares the tree with what was loaded.
func (f *migrateFlags) comparison(e *env, con *migrateConsole) (func(context.Context, *migrate.Verification) (migrate.Verdict, error), error) {
	// A comparison breaks off and goes on by itself; single calls are repeated.
	cl, err := e.newClient(client.RetryPolicy{Budget: f.RetryFor})
	if err != nil {
		return nil, err
	}
	level := verify.Level(f.Verify)
	if f.Verify == "keys" {
		level = verify.None
	}
	tree := cl.Tree(f.Tree)
	return func(ctx context.Context, v *migrate.Verification) (migrate.Verdict, error) {
		p := &verify.Progress{}
		con.compare(p)
		defer con.compare(nil)
		r, err := verify.Against(ctx, verify.Spooled(v.Entries), tree, verify.Options{
			Dir: v.Dir, Ledger: v.State, Source: v.Session, Target: f.targetName(e), Values: level, Expect: v.Expect, Run: v.Session, Progress: p,
		})
		if err != nil {
			return migrate.Verdict{}, err
		}
		shape, err := verify.ShapeOf(ctx, tree)
		if err != nil {
			return migrate.Verdict{}, err
		}
		r.Shape = &shape
		con.compared = &r
		return migrate.Verdict{Equal: r.Equal(), Text: verdictText(&r), Report: &r}, nil
	}, nil
}

func verdictText(r *verify.Report) string {
	t := &r.Total
	if r.Equal() {
		return fmt.Sprintf("%s and %s compared, all equal", plural(t.Source, "key"), plural(t.Compared, "value"))
	}
	var parts []string
	for _, n := range []struct {
		n    int64
		what string
	}{{t.Missing, "missing"}, {t.Extra, "extra"}, {t.Value, "with another value"}, {t.Expiry, "with another expiry"}, {t.Changed, "changed"}, {t.Duplicates, "duplicate"}} {
		if n.n > 0 {
			parts = append(parts, progress.Group(n.n)+" "+n.what)
		}
	}
	return fmt.Sprintf("of %s: %s; all are listed in %s", plural(t.Source, "key"), strings.Join(parts, ", "), r.Differences)
}

// shownDifferences is how many keys that differ are shown to people.
const shownDifferences = 20

// printComparison prints what a comparison found.
func (c *migrateConsole) printComparison(b *strings.Builder) {
	r := c.compared
	if r == nil {
		return
	}
	fmt.Fprintf(b, "Verified: %s.\n", verdictText(r))
	for i := range r.First[:min(len(r.First), shownDifferences)] {
		d := &r.First[i]
		fmt.Fprintf(b, "  %s: %s", d.Class, show(d.Key))
		if d.Origin != "" {
			fmt.Fprintf(b, " (%s)", d.Origin)
		}
		fmt.Fprintln(b)
	}
	if s := r.Shape; s != nil {
		fmt.Fprintf(b, "The tree has %s on %s, %s, %s.\n", plural(s.LiveKeys, "live key"), plural(int64(s.Shards), "shard"),
			plural(s.Tombstones, "tombstone"), plural(int64(s.PendingGrafts), "pending graft"))
		for _, w := range s.Warnings {
			fmt.Fprintf(b, "  %s\n", w)
		}
	}
}
