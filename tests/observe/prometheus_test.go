package observe

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// sample is one value of the answer to a query.
type sample struct {
	labels map[string]string
	value  float64
}

// ask evaluates an expression now.
func (w *world) ask(expr string) ([]sample, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.prometheus.URL+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" || answer.Data.ResultType != "vector" {
		return nil, fmt.Errorf("%s: %s %s %s, %v", expr, answer.Status, answer.Data.ResultType, answer.Error, err)
	}
	var all []sample
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		all = append(all, sample{r.Metric, v})
	}
	return all, nil
}

// most is the greatest finite value of the answer, and whether there is one.
func (w *world) most(expr string) (float64, bool, error) {
	all, err := w.ask(expr)
	greatest, found := math.Inf(-1), false
	for _, s := range all {
		if !math.IsNaN(s.value) && !math.IsInf(s.value, 0) {
			greatest, found = max(greatest, s.value), true
		}
	}
	return greatest, found, err
}

// until waits for a condition, which says what is missing, "" for nothing.
func until(t testing.TB, what string, longest time.Duration, missing func() string) {
	t.Helper()
	src := clock.NewSystem()
	end := src.Now().Mono + longest
	for {
		left := missing()
		if left == "" || t.Failed() {
			return
		}
		if src.Now().Mono >= end {
			t.Fatalf("%s, after %s: %s", what, longest, left)
		}
		if err := src.Sleep(t.Context(), 250*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// alerts returns the names of those that are pending or firing.
func (w *world) alerts(state string) map[string]bool {
	w.t.Helper()
	all, err := w.ask(fmt.Sprintf("ALERTS{alertstate=%q}", state))
	if err != nil {
		w.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range all {
		names[s.labels["alertname"]] = true
	}
	return names
}
