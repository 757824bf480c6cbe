package observe

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// guide is the document that names the metrics.
const guide = "docs/telemetry.md"

// metric is a metric as it is documented, or as it is served.
type metric struct {
	name, kind string
	labels     []string
}

var metricLine = regexp.MustCompile("(?m)^\\| `((?:lattice|go|process)_[a-z0-9_]+)` \\| (counter|gauge|histogram|summary) \\|([^|]*)\\| [^|]{10,} \\|$")

// documented returns the metrics of the guide's tables by name.
func documented(t testing.TB) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, m := range metricLine.FindAllStringSubmatch(read(t, running.Root(t), guide), -1) {
		if _, twice := all[m[1]]; twice {
			t.Errorf("%s is documented twice", m[1])
		}
		found := metric{name: m[1], kind: m[2]}
		for _, label := range strings.Split(m[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				found.labels = append(found.labels, label)
			}
		}
		slices.Sort(found.labels)
		all[m[1]] = found
	}
	if len(all) < 30 {
		t.Fatalf("%d metrics are documented", len(all))
	}
	return all
}

func TestDashboardAsksForDocumentedMetrics(t *testing.T) {
	known, d := documented(t), readDashboard(t)
	asked := map[string]bool{}
	for _, q := range d.queries("1m", "1h") {
		for _, name := range named(q.expr) {
			asked[name] = true
			if known[name].name == "" {
				t.Errorf("%q asks for %s, which is not documented", q.panel, name)
			}
		}
	}
	for name := range known {
		if !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}
