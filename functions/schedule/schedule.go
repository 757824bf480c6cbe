// Package schedule is the one place that says which scheduled functions there
// are, in what order, and how often each host runs them. cmd/local runs each at
// the interval that its option gives; the schedules of the cloud hosts are
// derived from the table here, and checked against it.
//
// A schedule is a wish. Every tick may come twice, side by side, late or not at
// all, and nothing is lost or done twice: what a tick would have done waits for
// the next one, and requests push what stands in their way themselves. An
// interval is therefore how long work may wait before it is begun, and not how
// much gets done: a tick works for TickBudget as long as there is work.
package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/timers"
)

// Coarsest is the interval of the host whose scheduler is the slowest:
// EventBridge, which calls a Lambda function once a minute at most.
const Coarsest = time.Minute

// RateAWS is Coarsest as EventBridge wants it said.
const RateAWS = "rate(1 minute)"

// lateAfter is how many intervals may pass without a success. One tick may be
// lost and the next one late, on any host.
const lateAfter = 3

// Timer is a scheduled function as hosts run it.
type Timer struct {
	// Name is what it is called by, as in /internal/timers/{name}.
	Name string
	// Option is the name of the option that is its interval where the service
	// keeps the schedule itself.
	Option string
	// Cloud is its interval where the host of a stateless function keeps the
	// schedule: a divisor of a minute, and never shorter than the option's
	// default. There every tick is an invocation that is paid for as if it took a
	// second, with reads of every tree even when nothing is to be done; on one
	// machine it costs nothing.
	Cloud time.Duration
	// Again is the time from a tick that left work to the next one where one
	// invocation a minute runs all timers. Only a timer with work costs it.
	Again time.Duration
	// Second is the second of the minute in which it first runs, so that not all
	// timers begin in the same one.
	Second int
	// About says in a few words what it does.
	About string

	interval func(*options.Options) time.Duration
}

// table has the timers in the order in which a host that knows only one
// schedule runs them: what the monitor begins, migrations carry on.
var table = []Timer{
	{
		Name: timers.Monitor, Option: "HotShardSampleInterval", Cloud: 30 * time.Second, Again: 30 * time.Second,
		About:    "samples the load of shards, and begins splits of the hot ones",
		interval: func(o *options.Options) time.Duration { return o.HotShardSampleInterval },
	},
	{
		// A request that meets a half finished split finishes it.
		Name: timers.Migrations, Option: "MigrationsInterval", Cloud: 30 * time.Second, Again: 5 * time.Second, Second: 5,
		About:    "carries splits and reshards on",
		interval: func(o *options.Options) time.Duration { return o.MigrationsInterval },
	},
	{
		// A request that meets an overdue batch decides it.
		Name: timers.Transactions, Option: "TransactionsInterval", Cloud: 30 * time.Second, Again: 5 * time.Second, Second: 15,
		About:    "finishes atomic batches whose coordinator is gone",
		interval: func(o *options.Options) time.Duration { return o.TransactionsInterval },
	},
	{
		// The logs grow a little longer; a writer that meets one which is several
		// times too long folds it.
		Name: timers.Checkpoint, Option: "CheckpointInterval", Cloud: 30 * time.Second, Again: 15 * time.Second, Second: 20,
		About:    "folds the logs of shards into blobs",
		interval: func(o *options.Options) time.Duration { return o.CheckpointInterval },
	},
	{
		// What waits here costs its place alone.
		Name: timers.Collect, Option: "CollectInterval", Cloud: time.Minute, Again: time.Minute, Second: 40,
		About:    "deletes what is no longer needed, and purges deleted trees",
		interval: func(o *options.Options) time.Duration { return o.CollectInterval },
	},
}

// All returns the timers in order.
func All() []Timer { return slices.Clone(table) }

// Names returns the names of the timers in order.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].Name
	}
	return names
}

// Find returns the timer of a name, and whether there is one.
func Find(name string) (Timer, bool) {
	for _, t := range table {
		if t.Name == name {
			return t, true
		}
	}
	return Timer{}, false
}

// Interval is the time between two ticks where the service keeps the schedule.
func (t Timer) Interval(o *options.Options) time.Duration { return t.interval(o) }

// LateAfter is how long a timer may be without a success before it counts as
// late: three intervals, and no less than three of the coarsest host, for the
// service does not know which host ticks.
func (t Timer) LateAfter(o *options.Options) time.Duration {
	return lateAfter * max(t.interval(o), Coarsest)
}

// NCRONTAB is the cloud's interval as Azure Functions wants it said: an
// expression of six fields, the first of them seconds.
func (t Timer) NCRONTAB() string {
	step := int(t.Cloud / time.Second)
	first := t.Second % step
	if first == 0 && step < 60 {
		return fmt.Sprintf("*/%d * * * * *", step)
	}
	var seconds []string
	for s := first; s < 60; s += step {
		seconds = append(seconds, strconv.Itoa(s))
	}
	return strings.Join(seconds, ",") + " * * * * *"
}
