package observe

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/latticekv/lattice/tests/engines"
	"github.com/latticekv/lattice/tests/running"
)

// rule is an alert.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// folder is where the configuration of Prometheus is.
func folder(t testing.TB) string {
	t.Helper()
	return filepath.Join(running.Root(t), "infra/prometheus")
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readRules(t testing.TB) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal([]byte(read(t, folder(t), "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Prometheus takes the rules, and each fires for what it is for and not in health.
func TestAlertsFireForWhatTheyAreFor(t *testing.T) {
	if out, err := engines.Promtool(t, folder(t), "check", "rules", "alerts.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := engines.Promtool(t, folder(t), "test", "rules", "alerts_test.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

var severities = map[string]bool{"critical": true, "warning": true, "info": true}

// Every alert is tested, and says what it means and where more stands.
func TestAlertsSayWhatToDo(t *testing.T) {
	tests, sections := read(t, folder(t), "alerts_test.yaml"), sectionsOf(read(t, running.Root(t), guide))
	known := documented(t)
	rules := readRules(t)
	if len(rules) < 20 {
		t.Fatalf("%d alerts", len(rules))
	}
	for _, r := range rules {
		if !strings.Contains(tests, `alertname="`+r.Alert+`"`) {
			t.Errorf("no test has %s fire", r.Alert)
		}
		if !severities[r.Labels["severity"]] || r.Annotations["summary"] == "" || len(r.Annotations["description"]) < 60 {
			t.Errorf("%s has the labels %v and the annotations %v", r.Alert, r.Labels, r.Annotations)
		}
		file, anchor, _ := strings.Cut(r.Annotations["runbook"], "#")
		if file != guide || sections[anchor] < 200 {
			t.Errorf("%s points to %s, which has %d characters on it", r.Alert, r.Annotations["runbook"], sections[anchor])
		}
		for _, name := range named(r.Expr) {
			if known[name].name == "" {
				t.Errorf("%s asks for %s, which is not documented", r.Alert, name)
			}
		}
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.+)$`)

// sectionsOf returns how long each section of a document is, by its anchor.
func sectionsOf(text string) map[string]int {
	all := map[string]int{}
	at := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		anchor := strings.ToLower(strings.ReplaceAll(text[m[2]:m[3]], " ", "-"))
		all[strings.Trim(anchor, "`")] = end - m[1]
	}
	return all
}
