package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestSettingsAreRead(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want settings
	}{
		{nil, settings{}},
		{[]string{streamVariable, "false", basePathVariable, "", timeoutVariable, ""}, settings{}},
		{[]string{streamVariable, "true", basePathVariable, "/a/b/", timeoutVariable, "30"}, settings{true, "/a/b", 30 * time.Second}},
	} {
		if got, err := readSettings(environment(c.env...)); err != nil || got != c.want {
			t.Errorf("%q gave %+v, %v", c.env, got, err)
		}
	}
}

func TestBadSettingsAreAllNamed(t *testing.T) {
	_, err := readSettings(environment(streamVariable, "yes", basePathVariable, "store", timeoutVariable, "0"))
	for _, want := range []string{streamVariable, basePathVariable, timeoutVariable} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	for _, text := range []string{"-1", "1.5", "70000", "x"} {
		if _, err := readSettings(environment(timeoutVariable, text)); err == nil {
			t.Errorf("time-out %q is taken", text)
		}
	}
	if _, err := assemble(t.Context(), environment(streamVariable, "yes", "LATTICE_MAX_KEY_LENGTH", "0")); err == nil ||
		!strings.Contains(err.Error(), streamVariable) || !strings.Contains(err.Error(), "MaxKeyLength") {
		t.Errorf("assembled in spite of bad settings: %v", err)
	}
}

func TestPagesFitTheFormOfAnswers(t *testing.T) {
	all := options.Default().MaxPageBytes
	if got := (settings{}).pageBytes(all); got != maxPageBytes || got >= all {
		t.Errorf("whole answers have pages of %d", got)
	}
	if got := (settings{stream: true}).pageBytes(all); got != all {
		t.Errorf("streamed answers have pages of %d", got)
	}
}

func TestOptionsThatDoNotFitAreTold(t *testing.T) {
	o := options.Default()
	o.RequestTimeout, o.TickBudget = 30*time.Second, 10*time.Second
	for seconds, want := range map[time.Duration][]string{60: nil, 30: {"RequestTimeout"}, 5: {"RequestTimeout", "TickBudget"}} {
		timeout := seconds * time.Second
		var known, seen bytes.Buffer
		warnOfMisfits(&o, timeout, slog.New(slog.NewTextHandler(&known, nil)))
		within(t, timeout, func(t *testing.T, ctx context.Context) {
			// Not known: the first invocation tells, once.
			told := warnOfMisfits(&o, 0, slog.New(slog.NewTextHandler(&seen, nil)))
			for range 3 {
				w, _ := newWindow(ctx)
				told(w)
			}
		})
		for name, log := range map[string]string{"at the start": known.String(), "at the first invocation": seen.String()} {
			if lines := strings.Count(log, "\n"); lines != min(len(want), 1) {
				t.Errorf("%s %s: %d lines", timeout, name, lines)
			}
			for _, option := range want {
				if !strings.Contains(log, option+" (") {
					t.Errorf("%s %s: %s is not named in %q", timeout, name, option, log)
				}
			}
		}
	}
	told := warnOfMisfits(&o, 0, slog.New(slog.DiscardHandler))
	told(window{})
}
