package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latticekv/lattice/client"
)

// timersCmd shows when the scheduled functions last ran.
type timersCmd struct {
	Check bool `help:"Exit with 1 if a timer is late, for monitoring."`
}

// Help implements kong.HelpProvider.
func (timersCmd) Help() string {
	return `Scheduled functions split hot shards, finish batches, fold logs and collect what is no longer needed.
Their ticks may run on any instance; what the last one did is kept with the data. A timer is late when
no tick has succeeded for three intervals, and three minutes at least, or none ever has.

Examples:

    lattice timers
    lattice timers --check --json | jq -r '.timers[] | select(.late) | .timer'`
}

// Run carries the command out.
func (c *timersCmd) Run(e *env) error {
	service, err := e.client()
	if err != nil {
		return err
	}
	all, err := service.Timers(e.ctx)
	if err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(all)
	} else {
		err = e.print(timersTable(all))
	}
	late := slices.ContainsFunc(all.Timers, func(t client.Timer) bool { return t.Late })
	if err == nil && c.Check && late {
		return errNo
	}
	return err
}

func timersTable(all client.Timers) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TIMER\tINTERVAL\tLAST SUCCESS\tSTATE\tTOOK\tFAILED\tINSTANCE\tERROR")
	for i := range all.Timers {
		t := &all.Timers[i]
		success, state, took, fault := "never", "on time", "-", "-"
		if t.Age != nil {
			success = time.Duration(*t.Age).Round(100*time.Millisecond).String() + " ago"
		}
		if t.Late {
			state = "late"
		}
		if t.TookMs != nil {
			took = (time.Duration(*t.TookMs) * time.Millisecond).String()
		}
		if t.Error != "" {
			fault = show(t.Error)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Timer, time.Duration(t.Interval), success, state, took,
			strconv.Itoa(t.Failed), orDash(t.Instance), fault)
	}
	// A Builder takes everything.
	_ = w.Flush()
	return b.String()
}
