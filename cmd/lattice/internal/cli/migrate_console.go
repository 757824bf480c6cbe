package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latticekv/lattice/cmd/lattice/internal/progress"
	"github.com/latticekv/lattice/migrate"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/verify"
)

// migrateConsole shows a migration: a meter for each phase, and what is to be
// told between. For programs everything is one JSON object a line on standard
// output, the report last.
type migrateConsole struct {
	e     *env
	style progress.Style
	out   io.Writer
	stats *migrate.Stats
	start time.Time

	mu    sync.Mutex
	label string
	meter *progress.Meter
	// comparing is set while the tree is compared, compared when it has been.
	comparing *verify.Progress
	compared  *verify.Report
}

func newMigrateConsole(e *env, style progress.Style) *migrateConsole {
	c := &migrateConsole{e: e, style: style, out: e.Err, stats: &migrate.Stats{}, start: time.Now()}
	if e.json {
		c.out = e.Out
	}
	return c
}

// notify takes the events of the migration.
func (c *migrateConsole) notify(ev migrate.Event) {
	switch ev.Kind {
	case migrate.EventPhase:
		c.phase(ev.Text)
	case migrate.EventWait:
		// The meter says it.
	case migrate.EventReject:
		c.say("reject", ev.Text, map[string]any{"origin": ev.Fault.Origin, "key": ev.Fault.Key, "reason": ev.Fault.Reason})
	default:
		c.note(ev.Text)
	}
}

// phase begins a meter with a label.
func (c *migrateConsole) phase(label string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.label = label
	c.restart()
}

// restart shows progress from here; the caller holds the lock.
func (c *migrateConsole) restart() {
	if c.meter != nil {
		c.meter.Stop()
	}
	stats, reading, comparing := c.stats, c.label == string(migrate.PhaseRead), c.comparing
	c.meter = progress.Start(progress.Options{Style: c.style, Label: c.label, Out: c.out, Sample: func() progress.Sample {
		s := progress.Sample{
			Rows: stats.Done.Load(), Failed: stats.Rejected.Load(), Done: stats.Done.Load(), Total: stats.Total.Load(), Waiting: stats.Waiting.Load() > 0,
		}
		if comparing != nil {
			s.Rows, s.Done, s.Failed = comparing.Keys.Load(), comparing.Keys.Load(), comparing.Differs.Load()
			s.Waiting = comparing.Waiting.Load()
		}
		if reading {
			s.Bytes = stats.Bytes.Load()
		}
		if err := stats.Trouble(); err != nil {
			s.Trouble = brief(err)
		}
		return s
	}})
}

// compare shows the progress of a comparison, nil that of the migration.
func (c *migrateConsole) compare(p *verify.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.comparing = p; c.label != "" {
		c.restart()
	}
}

// stop ends the meter.
func (c *migrateConsole) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meter != nil {
		c.meter.Stop()
		c.meter, c.label = nil, ""
	}
}

func (c *migrateConsole) note(text string) { c.say("note", text, nil) }

// say prints a line between those of the meter.
func (c *migrateConsole) say(kind, text string, more map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meter != nil {
		c.meter.Stop()
	}
	if c.e.json {
		out := map[string]any{kind: text}
		maps.Copy(out, more)
		if b, err := json.Marshal(out); err == nil {
			fmt.Fprintln(c.out, string(b))
		}
	} else {
		fmt.Fprintln(c.out, text)
	}
	if c.label != "" {
		c.restart()
	}
}

func (c *migrateConsole) printKeys(first []string) error {
	c.stop()
	if c.e.json {
		return c.e.printJSON(map[string]any{"firstKeys": first})
	}
	lines := "The first keys:\n"
	for _, k := range first {
		lines += "  " + show(k) + "\n"
	}
	return c.e.print(lines)
}

// printReport prints the account.
func (c *migrateConsole) printReport(r *migrate.Report, err error) error {
	if c.e.json {
		return c.e.printJSON(map[string]any{"report": r})
	}
	if r.Earlier && !r.Complete {
		return nil // the error says all
	}
	var b strings.Builder
	least := ""
	if r.InFlight > 0 {
		least = "at least "
	}
	fmt.Fprintf(&b, "%s read: %s%s loaded in %s", plural(r.Read, "record"), least, progress.Group(r.Loaded), plural(r.Chunks, "chunk"))
	for _, n := range []struct {
		n    int64
		what string
	}{{r.Rejected, "rejected"}, {r.Duplicates, "seen twice"}, {r.Expired, "expired at the source"}} {
		if n.n > 0 {
			fmt.Fprintf(&b, ", %s %s", progress.Group(n.n), n.what)
		}
	}
	fmt.Fprintf(&b, ".\n")
	if r.Phase == migrate.PhaseDone || r.Phase == migrate.PhaseVerify {
		fmt.Fprintf(&b, "Tree %s has %s.\n", show(r.Tree), plural(r.TotalLiveKeys, "live key"))
	}
	c.printComparison(&b)
	c.printLosses(&b, r.Reasons, r.Lossy)
	if r.Rejected > 0 {
		fmt.Fprintf(&b, "Rejected records are listed in %s.\n", r.Rejects)
	}
	switch {
	case r.Complete && r.Earlier && r.Verified != nil:
		fmt.Fprintf(&b, "Nothing was left to do: the migration of %s is completed, and was verified then.\n", r.Started.UTC().Format(time.DateTime))
	case r.Complete && r.Earlier:
		fmt.Fprintf(&b, "Nothing was left to do: the migration of %s is completed.\n", r.Started.UTC().Format(time.DateTime))
	case r.Complete && r.Verified != nil:
		fmt.Fprintf(&b, "Migration completed and verified in %s.\n", progress.Took(time.Since(c.start)))
	case r.Complete:
		fmt.Fprintf(&b, "Migration completed in %s.\n", progress.Took(time.Since(c.start)))
	case err != nil:
		fmt.Fprintf(&b, "Not completed. What was done is kept in %s.\n", r.State)
	}
	return c.e.print(b.String())
}

func (c *migrateConsole) printLosses(b *strings.Builder, reasons map[string]int64, lossy []migrate.LossCount) {
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(b, "  rejected %s: %s\n", progress.Group(reasons[reason]), reason)
	}
	for _, l := range lossy {
		fmt.Fprintf(b, "  converted %s, field %s: %s\n", progress.Group(l.Count), show(l.Field), l.What)
	}
}

// printTrial prints what a migration would do.
func (c *migrateConsole) printTrial(t *migrate.Trial) error {
	if c.e.json {
		return c.e.printJSON(map[string]any{"dryRun": t})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Nothing was written. ")
	if t.Sampled {
		fmt.Fprintf(&b, "Of the first %s: ", plural(t.Read, "record"))
	} else {
		fmt.Fprintf(&b, "%s read: ", plural(t.Read, "record"))
	}
	fmt.Fprintf(&b, "%s to load in about %s, %s rejected, %s seen twice, %s expired.\n", progress.Group(t.Entries), plural(t.Chunks, "chunk"),
		progress.Group(t.Rejected), progress.Group(t.Duplicates), progress.Group(t.Expired))
	if t.Obstacle != "" {
		fmt.Fprintf(&b, "A migration would not begin as things are: %s.\n", t.Obstacle)
	}
	fmt.Fprintf(&b, "First keys:\n")
	for _, k := range t.FirstKeys {
		fmt.Fprintf(&b, "  %s\n", show(k))
	}
	fmt.Fprintf(&b, "Shapes of keys (9 digits, a letters):\n")
	for _, s := range t.Shapes {
		fmt.Fprintf(&b, "  %s  %s, such as %s\n", s.Pattern, plural(s.Count, "key"), show(s.Example))
	}
	if t.OtherShapes > 0 {
		fmt.Fprintf(&b, "  and %s of other shapes\n", plural(t.OtherShapes, "key"))
	}
	fmt.Fprintf(&b, "Lengths of keys in bytes: half up to %d, 99%% up to %d, the longest %d\n", t.KeySizes.P50, t.KeySizes.P99, t.KeySizes.Max)
	for _, bar := range t.KeyBars {
		fmt.Fprintf(&b, "  %5d to %5d  %s\n", bar.From, bar.To, progress.Group(bar.Count))
	}
	fmt.Fprintf(&b, "Sizes of values in bytes: half up to %d, 99%% up to %d, the largest %d\n", t.ValueSizes.P50, t.ValueSizes.P99, t.ValueSizes.Max)
	c.printLosses(&b, t.Reasons, t.Lossy)
	for _, r := range t.FirstRejects {
		fmt.Fprintf(&b, "  %s: %s\n", source.Short(r.Origin), r.Reason)
	}
	if len(t.FirstDuplicate) == 2 {
		fmt.Fprintf(&b, "First key that comes twice: %s and %s\n", t.FirstDuplicate[0], t.FirstDuplicate[1])
	}
	if err := c.e.print(b.String()); err != nil {
		return err
	}
	if t.Rejected > 0 || t.Obstacle != "" {
		return errNo
	}
	return nil
}
