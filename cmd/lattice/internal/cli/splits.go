package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vbauerster/cupwriter"

	"github.com/latticekv/lattice/client"
)

// splitsCmd shows the splits of a tree.
type splitsCmd struct {
	Tree     string        `arg:"" help:"Name of the tree."`
	Watch    bool          `short:"w" help:"Go on until interrupted: a live table on a terminal, else a line for every change."`
	Interval time.Duration `default:"1s" help:"Time between two looks of --watch, at least 100ms." placeholder:"TIME"`
}

// Help implements kong.HelpProvider.
func (splitsCmd) Help() string {
	return `A split moves half of the slots of a shard to a new one while the tree serves. Its phases are
BeginShadowWrite, Drain, Swap, Reject and Complete; then it is Done.

Examples:

    lattice splits orders
    lattice splits orders --watch
    lattice splits orders --watch --json | jq -r .phase`
}

// minInterval is the shortest time between two looks.
const minInterval = 100 * time.Millisecond

// checkInterval refuses to ask a service without a pause.
func checkInterval(d time.Duration) error {
	if d < minInterval {
		return usagef("--interval must be at least %s", minInterval)
	}
	return nil
}

// Run carries the command out.
func (c *splitsCmd) Run(e *env) error {
	if err := checkInterval(c.Interval); err != nil {
		return err
	}
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	s, err := t.Splits(e.ctx)
	switch {
	case err != nil:
		return err
	case c.Watch:
		return c.watch(e, t, s)
	case e.json:
		return e.printJSON(s)
	}
	lines, err := splitTable(c.Tree, s)
	if err != nil {
		return err
	}
	return e.print(strings.Join(lines, ""))
}

// watch shows splits until the command is interrupted, which is how it is meant
// to end.
func (c *splitsCmd) watch(e *env, t *client.Tree, s client.Splits) (err error) {
	view := splitLines(e)
	if e.OutTTY && !e.json {
		view = splitScreen(e, c.Tree)
	}
	for {
		if err := view(s); err != nil {
			return err
		}
		if e.pause(c.Interval) != nil {
			return nil
		}
		if s, err = t.Splits(e.ctx); err != nil {
			if e.ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// pause waits, or returns why it must not.
func (e *env) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// splitScreen returns a view that redraws a table in place.
func splitScreen(e *env, tree string) func(client.Splits) error {
	w := cupwriter.New(e.Out, true)
	return func(s client.Splits) error {
		lines, err := splitTable(tree, s)
		if err != nil {
			return err
		}
		lines = fit(w, lines)
		w.WriteString(strings.Join(lines, ""))
		if err := w.Flush(len(lines)); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		return nil
	}
}

// fit cuts lines to the terminal: what is longer, or more, could not be drawn
// over.
func fit(w *cupwriter.Writer, lines []string) []string {
	if !w.IsTerminal() {
		return lines
	}
	width, height, err := w.GetTermSize()
	if err != nil || width < 2 || height < 2 {
		return lines
	}
	lines = lines[:min(len(lines), height-1)]
	for i, line := range lines {
		if text := []rune(strings.TrimSuffix(line, "\n")); len(text) >= width {
			lines[i] = string(text[:width-1]) + "\n"
		}
	}
	return lines
}

// splitLines returns a view that prints a line, or an object, for every split
// that is new or has got into another phase.
func splitLines(e *env) func(client.Splits) error {
	known, first := map[string]string{}, true
	return func(s client.Splits) error {
		seen := map[string]string{}
		oldestFirst := slices.Clone(s.Recent)
		slices.Reverse(oldestFirst)
		for _, x := range slices.Concat(oldestFirst, s.InFlight) {
			seen[x.ID] = x.Phase
			// What was over before is no news.
			if known[x.ID] == x.Phase || first && x.Ended != nil {
				continue
			}
			if err := e.splitLine(&x); err != nil {
				return err
			}
		}
		known, first = seen, false
		return nil
	}
}

func (e *env) splitLine(s *client.Split) error {
	if e.json {
		return e.printJSON(s)
	}
	line := fmt.Sprintf("shard %d to %s: %s, %s, %d forwarded", s.Source, targetOf(s), s.Phase, plural(int64(s.MovedSlots), "slot"), s.EntriesForwarded)
	if took := tookOf(s); took != "" {
		line += ", took " + took
	}
	return e.print(line + "\n")
}

// splitTable returns the lines of the table.
func splitTable(tree string, s client.Splits) ([]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Tree %s: %s in flight, %d recent.\n", show(tree), plural(int64(len(s.InFlight)), "split"), len(s.Recent))
	if len(s.InFlight)+len(s.Recent) > 0 {
		if err := writeSplits(&b, slices.Concat(s.InFlight, s.Recent)); err != nil {
			return nil, err
		}
	}
	return slices.Collect(strings.Lines(b.String())), nil
}

func writeSplits(out io.Writer, splits []client.Split) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\nSOURCE\tTARGET\tPHASE\tSLOTS\tFORWARDED\tCAUSE\tSTARTED\tTOOK")
	for i := range splits {
		s := &splits[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", s.Source, targetOf(s), s.Phase, s.MovedSlots, s.EntriesForwarded,
			show(s.Cause), timeOrDash(s.Started), orDash(tookOf(s)))
	}
	return w.Flush()
}

func targetOf(s *client.Split) string {
	if s.Target == nil {
		return "-"
	}
	return strconv.Itoa(*s.Target)
}

// tookOf is how long a split that is over took.
func tookOf(s *client.Split) string {
	if s.Ended == nil {
		return ""
	}
	return s.Ended.Sub(s.Started).Round(time.Millisecond).String()
}

// reshardCmd changes the number of shards.
type reshardCmd struct {
	Tree     string        `arg:"" help:"Name of the tree."`
	Count    int           `arg:"" help:"Number of shards, at most 4096."`
	Wait     bool          `help:"Wait until it is done, and tell of the progress."`
	Interval time.Duration `default:"1s" help:"Time between two looks of --wait, at least 100ms." placeholder:"TIME"`
}

// Help implements kong.HelpProvider.
func (reshardCmd) Help() string {
	return `The tree serves meanwhile. Asking again for the same number is no error; while another one is under
way, the answer is exit code 1. Interrupting --wait does not stop the service.

Examples:

    lattice reshard orders 16
    lattice reshard orders 16 --wait`
}

// Run carries the command out.
func (c *reshardCmd) Run(e *env) error {
	if err := checkInterval(c.Interval); err != nil {
		return err
	}
	t, err := e.tree(c.Tree)
	if err != nil {
		return err
	}
	s, err := t.Reshard(e.ctx, c.Count)
	if errors.Is(err, client.ErrOperationInProgress) {
		return fmt.Errorf("%w; \"lattice splits %s --watch\" shows it", err, show(c.Tree))
	}
	if err == nil && c.Wait && !s.Complete {
		s, err = c.wait(e, t, s)
	}
	if err != nil {
		return err
	}
	return c.tell(e, s)
}

// tell prints how far the reshard is.
func (c *reshardCmd) tell(e *env, s client.Reshard) error {
	switch {
	case e.json:
		return e.printJSON(s)
	case s.Complete:
		return e.printf("Tree %s has %s.\n", show(c.Tree), plural(int64(s.Current), "shard"))
	}
	return e.printf("Tree %s goes from %d to %d shards; it has %d.\n", show(c.Tree), s.Start, s.Target, s.Current)
}

// wait returns when the reshard is done. Every step is a line, on standard
// error for the sake of programs.
func (c *reshardCmd) wait(e *env, t *client.Tree, s client.Reshard) (client.Reshard, error) {
	for told := -1; ; {
		if s.Current != told {
			told = s.Current
			fmt.Fprintf(e.Err, "%d of %d shards\n", s.Current, s.Target)
		}
		if err := e.pause(c.Interval); err != nil {
			return s, err
		}
		next, err := t.ReshardStatus(e.ctx)
		if err != nil {
			return s, err
		}
		if s = next; s.Complete {
			return s, nil
		}
	}
}
