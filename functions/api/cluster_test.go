package api

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/heartbeat"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/functions/schedule"
)

// fakeBeats are heartbeats, or a failure to read them.
type fakeBeats struct {
	all []heartbeat.Beat
	err error
}

func (f *fakeBeats) Read(context.Context) ([]heartbeat.Beat, error) { return f.all, f.err }

// timersOf asks for the timers and returns them by name.
func timersOf(t *testing.T, r *rig) map[string]timerBody {
	t.Helper()
	var body timersBody
	if err := json.Unmarshal(r.do("GET", "/v1/cluster/timers", "").wantStatus(200).body, &body); err != nil {
		t.Fatal(err)
	}
	all := map[string]timerBody{}
	for i, timer := range body.Timers {
		if timer.Timer != schedule.Names()[i] {
			t.Errorf("timer %d is %s", i, timer.Timer)
		}
		all[timer.Timer] = timer
	}
	if len(all) != len(schedule.Names()) || body.ObservedAt == "" {
		t.Fatalf("answered %+v", body)
	}
	return all
}

func TestTimersThatNeverTickedAreLate(t *testing.T) {
	for name, timer := range timersOf(t, newRig(t)) {
		if !timer.Late || timer.Age != "" || timer.LastSucceededAt != "" || timer.Interval == "" || timer.LateAfter != "3m0s" {
			t.Errorf("%s: %+v", name, timer)
		}
	}
}

func TestTimersTellTheLastTick(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Options.CollectInterval = 2 * time.Minute })
	now := time.Now()
	r.beats.all = []heartbeat.Beat{
		{Timer: "collect", Started: now.Add(-5 * time.Minute), Succeeded: now.Add(-5 * time.Minute), Instance: "a", Took: time.Second},
		{Timer: "checkpoint", Started: now, Succeeded: now.Add(-4 * time.Minute), Failed: 0, Error: "storage is away", Instance: "b"},
		{Timer: "monitor", Started: now, Succeeded: now.Add(time.Second), Failed: 2, Error: "shard 1", Instance: "b"},
		{Timer: "migrations", Started: now, Error: "storage is away", Instance: "b"},
		{Timer: "unheard-of", Started: now, Succeeded: now},
	}
	all := timersOf(t, r)
	if c := all["collect"]; c.Late || c.LateAfter != "6m0s" || c.Interval != "2m0s" || c.Instance != "a" || c.TookMs == nil || *c.TookMs != 1000 {
		t.Errorf("collect %+v", c)
	}
	if age, err := options.ParseDuration(all["collect"].Age); err != nil || age < 5*time.Minute || age > 6*time.Minute {
		t.Errorf("collect is %s old: %v", all["collect"].Age, err)
	}
	if c := all["checkpoint"]; !c.Late || c.Error != "storage is away" || c.LastSucceededAt == "" || c.LastStartedAt == "" {
		t.Errorf("checkpoint %+v", c)
	}
	if m := all["monitor"]; m.Late || m.Failed != 2 || m.Error != "shard 1" || m.Age != "0s" {
		t.Errorf("monitor %+v", m)
	}
	if m := all["migrations"]; !m.Late || m.Age != "" || m.LastStartedAt == "" {
		t.Errorf("migrations %+v", m)
	}
}

func TestTimersAreRefusedWhileTheStorageIsAway(t *testing.T) {
	r := newRig(t)
	r.beats.err = store.ErrUnavailable
	r.do("GET", "/v1/cluster/timers", "").wantProblem(503, CodeUnavailable)
	r.beats.err = store.Corruptf("row timer-collect")
	if got := r.do("GET", "/v1/cluster/timers", "").wantStatus(500); !strings.Contains(string(got.body), "timer-collect") {
		t.Errorf("a damaged row is answered with %s", got.body)
	}
	r.do("GET", "/v1/cluster/timers?tree=t", "").wantProblem(400, CodeInvalidArgument)
	r.do("POST", "/v1/cluster/timers", "").wantProblem(405, CodeMethodNotAllowed)
}
