package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/tests/running"
)

// dashboard is what the tests look at of a Grafana dashboard.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct{ List []variable }
	Panels        []panel
}

type variable struct {
	Name, Type, Definition string
	AllValue               string
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ Type, UID string }
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []struct{ Value *float64 } }
		}
	}
	Targets []target
}

type target struct {
	RefID, Expr, LegendFormat string
	Datasource                struct{ UID string }
}

func readDashboard(t testing.TB) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(running.Root(t), "infra/grafana/lattice.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// query is an expression of a panel as Grafana would send it, everything chosen.
type query struct{ panel, expr string }

// queries are those of all panels, the variables replaced: the whole range of the
// dashboard is the time that the run has taken, rates are over window.
func (d *dashboard) queries(window, whole string) []query {
	values := []string{"$__rate_interval", window, "$__range", whole}
	for _, v := range d.Templating.List {
		values = append(values, "$"+v.Name, v.AllValue)
	}
	replace := strings.NewReplacer(values...)
	var all []query
	for i := range d.Panels {
		for _, target := range d.Panels[i].Targets {
			all = append(all, query{d.Panels[i].Title, replace.Replace(target.Expr)})
		}
	}
	return all
}

var ofService = regexp.MustCompile(`\b(?:lattice|go|process)_[a-z0-9_]+\b`)

// named returns the metrics that an expression names, as they are documented:
// without the suffixes of histograms.
func named(expr string) []string {
	var all []string
	for _, name := range ofService.FindAllString(expr, -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		all = append(all, name)
	}
	return all
}

var labelValues = regexp.MustCompile(`^label_values\((.+), ([a-z]+)\)$`)

// choices is the query for what a variable offers.
func (v *variable) choices(job string) (string, error) {
	found := labelValues.FindStringSubmatch(v.Definition)
	if found == nil {
		return "", fmt.Errorf("the variable %s is not made of label values: %s", v.Name, v.Definition)
	}
	return fmt.Sprintf("count by (%s) (%s)", found[2], strings.ReplaceAll(found[1], "$job", job)), nil
}

func overlap(a, b *panel) bool {
	x := a.GridPos.X < b.GridPos.X+b.GridPos.W && b.GridPos.X < a.GridPos.X+a.GridPos.W
	y := a.GridPos.Y < b.GridPos.Y+b.GridPos.H && b.GridPos.Y < a.GridPos.Y+a.GridPos.H
	return x && y
}

// The dashboard is one that Grafana imports, and that says how it is read.
func TestDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 39 {
		t.Errorf("the dashboard is %q %q of schema %d", d.UID, d.Title, d.SchemaVersion)
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Type+" "+v.Name)
	}
	if want := []string{"datasource datasource", "query job", "query tree"}; !slices.Equal(names, want) {
		t.Errorf("the variables are %q", names)
	}
	ids := map[int]bool{}
	for i := range d.Panels {
		p := &d.Panels[i]
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q has the id of another, no title, or no place", p.ID, p.Title)
		}
		ids[p.ID] = true
		for j := range i {
			if overlap(p, &d.Panels[j]) {
				t.Errorf("the panels %q and %q lie on each other", p.Title, d.Panels[j].Title)
			}
		}
		if p.Type != "row" {
			p.check(t)
		}
	}
}

func (p *panel) check(t *testing.T) {
	t.Helper()
	if len(p.Description) < 40 || p.FieldConfig.Defaults.Unit == "" || len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
		t.Errorf("panel %q does not say how to read it, or lacks its unit or thresholds", p.Title)
	}
	if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
		t.Errorf("panel %q asks %+v, %d times", p.Title, p.Datasource, len(p.Targets))
	}
	for _, q := range p.Targets {
		if q.Datasource.UID != "${datasource}" || q.RefID == "" || q.LegendFormat == "" || !strings.Contains(q.Expr, `job=~"$job"`) {
			t.Errorf("panel %q: %+v", p.Title, q)
		}
		if strings.Contains(q.Expr, "vector(") {
			t.Errorf("panel %q makes data up: %s", p.Title, q.Expr)
		}
	}
}
