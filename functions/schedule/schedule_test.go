package schedule

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
)

func TestEveryTimerStandsInTheTableOnce(t *testing.T) {
	want := []string{"monitor", "migrations", "transactions", "checkpoint", "collect"}
	if got := Names(); !slices.Equal(got, want) {
		t.Fatalf("timers %q, want %q", got, want)
	}
	for i, timer := range All() {
		if got, ok := Find(timer.Name); !ok || got.Name != want[i] || timer.About == "" {
			t.Errorf("%s: found %+v %v", timer.Name, got, ok)
		}
	}
	if _, ok := Find("reboot"); ok {
		t.Error("a timer of any name is found")
	}
}

func TestNobodyCanChangeTheTable(t *testing.T) {
	All()[0].Name = "x"
	Names()[0] = "x"
	if got := Names()[0]; got != "monitor" {
		t.Errorf("the first timer is called %s now", got)
	}
}

func TestIntervalIsTheOptionOfThatName(t *testing.T) {
	for _, timer := range All() {
		o := options.Default()
		if err := o.Set(timer.Option, "47m"); err != nil {
			t.Fatal(err)
		}
		if got := timer.Interval(&o); got != 47*time.Minute {
			t.Errorf("%s: %s=47m makes the interval %s", timer.Name, timer.Option, got)
		}
	}
}

func TestCloudsTickNoMoreOftenThanAMachine(t *testing.T) {
	o := options.Default()
	for _, timer := range All() {
		if timer.Cloud < timer.Interval(&o) || timer.Cloud > Coarsest || Coarsest%timer.Cloud != 0 || timer.Cloud%time.Second != 0 {
			t.Errorf("%s runs every %s in a cloud, every %s on a machine", timer.Name, timer.Cloud, timer.Interval(&o))
		}
	}
}

func TestLateIsThreeMissesOnAnyHost(t *testing.T) {
	for _, timer := range All() {
		o := options.Default()
		if got := timer.LateAfter(&o); got != 3*time.Minute {
			t.Errorf("%s is late after %s", timer.Name, got)
		}
		if got := timer.LateAfter(&o); got < 3*timer.Cloud || got < 3*Coarsest {
			t.Errorf("%s is late before a cloud has missed three", timer.Name)
		}
	}
	o := options.Default()
	o.CollectInterval = 10 * time.Minute
	collect, _ := Find("collect")
	if got := collect.LateAfter(&o); got != 30*time.Minute {
		t.Errorf("late after %s at an interval of 10m", got)
	}
}

func TestExpressionFiresAtTheInterval(t *testing.T) {
	for _, timer := range All() {
		fields := strings.Fields(timer.NCRONTAB())
		if len(fields) != 6 || !slices.Equal(fields[1:], []string{"*", "*", "*", "*", "*"}) {
			t.Fatalf("%s: %q is not an expression of six fields that fires in every minute", timer.Name, timer.NCRONTAB())
		}
		seconds := secondsOf(t, fields[0])
		if !slices.Contains(seconds, timer.Second) {
			t.Errorf("%s does not run in second %d: %v", timer.Name, timer.Second, seconds)
		}
		for i, s := range seconds {
			next := seconds[(i+1)%len(seconds)]
			if gap := time.Duration((next-s+59)%60+1) * time.Second; gap != timer.Cloud {
				t.Errorf("%s: %s between seconds %d and %d, want %s", timer.Name, gap, s, next, timer.Cloud)
			}
		}
	}
}

// secondsOf reads the first field of an expression.
func secondsOf(t *testing.T, field string) []int {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > 59 {
			t.Fatalf("%q in %q is not a second", s, field)
		}
		return n
	}
	var seconds []int
	if step, ok := strings.CutPrefix(field, "*/"); ok {
		for s := 0; s < 60; s += max(number(step), 1) {
			seconds = append(seconds, s)
		}
		return seconds
	}
	for _, s := range strings.Split(field, ",") {
		seconds = append(seconds, number(s))
	}
	return seconds
}
