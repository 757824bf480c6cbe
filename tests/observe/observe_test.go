package observe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// window is that of rates: long enough for some scrapes.
	window = "15s"
	// whole is the range of the dashboard.
	whole = "2m"
)

// inHealth are alerts of which the condition may hold for a moment in a run like
// this, where everything is quick and the machine is busy. They fire only if it
// holds for long.
var inHealth = []string{"LatticeConflicts", "LatticeSplitsHeldBack", "LatticeSplitsStarved", "LatticeSlow", "LatticeStorageSlow", "LatticeQuotaRefusals", "LatticeTimerNeverRan"}

// quiet are parts of queries that may well find zeros: nothing of the kind
// happens in the run, or not always at the moment of the query.
var quiet = []string{
	"lattice_corrupt_data_total", "lattice_http_unknown_outcomes_total", "lattice_split_retroactive_forward", "lattice_split_mirror_failures",
	"lattice_split_oldest_age_seconds", "lattice_hot_key_shards", "lattice_tick_failures_total", "lattice_split_admission_deferred",
	"lattice_split_candidates_suppressed", "lattice_split_mirrored_entries",
}

// TestOperatorSeesTheService runs the service under everything that clients do,
// and looks at it as its operator would.
func TestOperatorSeesTheService(t *testing.T) {
	w := newWorld(t)
	load := w.begin()
	w.snapshot()
	w.awaitSplit()
	t.Run("nothing fires in health", w.nothingFires)
	w.rough.Store(true)
	w.throttling.Store(true)
	t.Run("the dashboard finds data", w.dashboardFindsData)
	t.Run("the storage throttles", func(t *testing.T) {
		w.awaitAlerts(t, "LatticeStorageThrottled")
	})
	t.Run("metrics are those of the documents", w.metricsAreDocumented)
	w.throttling.Store(false)
	load.end()
	t.Run("an instance goes", func(t *testing.T) {
		w.second.Kill()
		w.awaitAlerts(t, "LatticeInstanceDown")
	})
}

// awaitSplit waits until a hot shard has been split.
func (w *world) awaitSplit() {
	w.t.Helper()
	tree := w.client(w.first, w.admin, true).Tree("hot")
	until(w.t, "no split is over", 60*time.Second, func() string {
		s, err := tree.Splits(w.t.Context())
		if err != nil || len(s.Recent) == 0 {
			return fmt.Sprintf("%+v %v", s.InFlight, err)
		}
		return ""
	})
}

func (w *world) nothingFires(t *testing.T) {
	until(t, "not every timer has run", 20*time.Second, func() string {
		n, ok, err := w.most("count(lattice_timer_age_seconds)")
		if err != nil || !ok || n < 5 {
			return fmt.Sprintf("%v timers have an age, %v", n, err)
		}
		return ""
	})
	// Before the first scrape nothing was there; that passes.
	until(t, "alerts do not go away", 20*time.Second, func() string {
		for name := range w.alerts("pending") {
			if !slices.Contains(inHealth, name) {
				return name
			}
		}
		return ""
	})
	if firing := w.alerts("firing"); len(firing) > 0 {
		t.Errorf("firing are %v", firing)
	}
}

// awaitAlerts waits until the conditions of alerts hold.
func (w *world) awaitAlerts(t *testing.T, names ...string) {
	until(t, "an alert is missing", 30*time.Second, func() string {
		pending, firing := w.alerts("pending"), w.alerts("firing")
		for _, name := range names {
			if !pending[name] && !firing[name] {
				return fmt.Sprintf("%s, pending are %v, firing %v", name, pending, firing)
			}
		}
		return ""
	})
}

// dashboardFindsData asks every query of the dashboard until each has found
// something that is not zero.
func (w *world) dashboardFindsData(t *testing.T) {
	d := readDashboard(t)
	for i := range d.Templating.List {
		v := &d.Templating.List[i]
		if v.Type != "query" {
			continue
		}
		expr, err := v.choices(".+")
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the variable "+v.Name+" offers nothing", 20*time.Second, func() string {
			if _, ok, err := w.most(expr); err != nil || !ok {
				return fmt.Sprintf("%s: %v %v", expr, ok, err)
			}
			return ""
		})
	}
	left := d.queries(window, whole)
	until(t, "queries find nothing", 45*time.Second, func() string {
		var faults []string
		left = slices.DeleteFunc(left, func(q query) bool {
			v, ok, err := w.most(q.expr)
			found := err == nil && ok && (v > 0 || slices.ContainsFunc(quiet, func(part string) bool { return strings.Contains(q.expr, part) }))
			if !found {
				faults = append(faults, fmt.Sprintf("%q: %s: %v %v %v", q.panel, q.expr, v, ok, err))
			}
			return found
		})
		return strings.Join(faults, "\n")
	})
}
