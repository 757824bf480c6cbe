package timers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
)

// seen is a report with one of everything.
func seen() tree.MonitorReport {
	return tree.MonitorReport{
		Trees: 4, Complete: true, Started: 1, Failed: 1,
		Failures: []tree.Failure{{Tree: "lost", Shard: 3, Err: store.ErrUnavailable}},
		Passes: []tree.MonitorPass{
			{Tree: "early", Skipped: tree.SkippedEarly},
			{Tree: "hot", Shards: make([]tree.ShardRate, 4), Started: []keyspace.ShardID{2}, Decision: split.Decision{
				InFlight: 1, Candidates: []split.Candidate{
					{Shard: 2, Rate: 900.6, Live: 5000, Slots: 1024},
					{Shard: 0, Rate: 300.2, Live: 10, Slots: 1024, Reason: split.ReasonLowOccupancy},
				},
			}},
			{Tree: "young", Shards: make([]tree.ShardRate, 1), Decision: split.Decision{
				Suppressed: split.ReasonTreeAge,
				Candidates: []split.Candidate{{Shard: 0, Rate: 400, Live: 20, Slots: 4096, Reason: split.ReasonTreeAge}},
			}},
		},
	}
}

func TestMonitorTellsWhatItDecidedAndWhy(t *testing.T) {
	k := &keeper{seen: seen()}
	var runs []Run
	var logs bytes.Buffer
	res, err := newTimers(k, &runs, &logs).Monitor(t.Context())
	if err != nil || k.called != "monitor" || k.budget != 20*time.Second {
		t.Fatalf("called %s with %s: %v", k.called, k.budget, err)
	}
	got, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"timer":"monitor"`, `"trees":4`, `"complete":true`, `"failed":1`, `"tree":"lost","shard":3`,
		`{"tree":"early","skipped":"early","inFlight":0,"shards":0}`,
		`{"tree":"hot","inFlight":1,"shards":4,"started":[2],"candidates":[{"shard":2,"rate":901,"live":5000,"slots":1024},{"shard":0,"rate":300,"live":10,"slots":1024,"reason":"low_occupancy"}]}`,
		`{"tree":"young","suppressed":"tree_age","inFlight":0,"shards":1,"candidates":[{"shard":0,"rate":400,"live":20,"slots":4096,"reason":"tree_age"}]}`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	for _, want := range []string{`"split begins","tree":"hot","shard":2`, `"hot shard is not split","tree":"hot","shard":0`, `"reason":"tree_age"`} {
		if !strings.Contains(logs.String(), want) {
			t.Errorf("the log lacks %s: %s", want, logs.String())
		}
	}
	if len(runs) != 1 || runs[0].Timer != Monitor || runs[0].Failed != 1 {
		t.Errorf("observed %+v", runs)
	}
}

func TestMonitoredIsToldEvenWhenTheTickFails(t *testing.T) {
	k := &keeper{seen: seen(), err: store.ErrUnavailable}
	var told []*tree.MonitorReport
	timers := New(Config{
		Keeper: k, Clock: clock.NewSystem(), Budget: time.Second, Logger: slog.New(slog.DiscardHandler),
		Monitored: func(r *tree.MonitorReport) { told = append(told, r) },
	})
	if _, err := timers.Monitor(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if len(told) != 1 || len(told[0].Passes) != 3 {
		t.Errorf("told %+v", told)
	}
}

func TestAnswerAndLogOfTheMonitorAreBounded(t *testing.T) {
	r := tree.MonitorReport{}
	for n := range 1500 {
		p := tree.MonitorPass{Tree: fmt.Sprintf("%0128d", n)}
		for shard := range 20 {
			p.Candidates = append(p.Candidates, split.Candidate{Shard: keyspace.ShardID(shard), Rate: 1e6, Live: 1e9, Slots: 100, Reason: split.ReasonLowOccupancy})
		}
		r.Passes = append(r.Passes, p)
	}
	var runs []Run
	var logs bytes.Buffer
	res, err := newTimers(&keeper{seen: r}, &runs, &logs).Monitor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > 1<<19 || !res.Truncated || len(res.Passes) != maxPasses {
		t.Errorf("%d bytes, %d passes, truncated %t", len(got), len(res.Passes), res.Truncated)
	}
	if lines := strings.Count(logs.String(), "\n"); lines > maxLogged+1 {
		t.Errorf("%d lines in the log", lines)
	}
}
