package observe

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/latticekv/lattice/tests/running"
)

// served adds the metrics that an instance serves to a scraper with the token.
func (w *world) served(t *testing.T, s *running.Service, to map[string]metric) {
	t.Helper()
	got := running.Ask(t, http.DefaultClient, http.MethodGet, s.URL+"/metrics", http.NoBody, "Authorization", "Bearer "+w.scraper)
	if got.Status != http.StatusOK {
		t.Fatalf("metrics: %d", got.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(got.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		m := metric{name: name, kind: strings.ToLower(f.GetType().String())}
		labels := map[string]bool{}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		m.labels = slices.Sorted(maps.Keys(labels))
		to[name] = m
	}
}

// metricsAreDocumented holds the documents against what the instances serve:
// every metric, its type and its labels, both ways. Of the figures that every
// program of the kind has, those are documented that the dashboard shows.
func (w *world) metricsAreDocumented(t *testing.T) {
	got, want := map[string]metric{}, documented(t)
	w.served(t, w.first, got)
	w.served(t, w.second, got)
	for name, m := range got {
		d, ok := want[name]
		switch {
		case !ok && strings.HasPrefix(name, "lattice_"):
			t.Errorf("%s, a %s with labels %v, is not documented", name, m.kind, m.labels)
		case ok && (d.kind != m.kind || !slices.Equal(d.labels, m.labels)):
			t.Errorf("%s is a %s with labels %v, documented as a %s with %v", name, m.kind, m.labels, d.kind, d.labels)
		}
	}
	for name := range want {
		if got[name].name == "" {
			t.Errorf("%s is documented, and not served", name)
		}
	}
}
