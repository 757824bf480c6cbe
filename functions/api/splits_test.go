package api

import (
	"testing"

	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
)

func splitOf(from, to uint16) (s split.State) {
	for slot := from; slot <= to; slot++ {
		s.Slots.Add(slot)
	}
	return s
}

func TestSplitsInFlightAndRecent(t *testing.T) {
	r := newRig(t)
	r.do("PUT", tr, "").wantStatus(201)
	r.do("GET", tr+"/splits", "").wantStatus(200).wantBody(`{"inFlight":[],"recent":[]}`)

	young := splitOf(512, 1023)
	young.ID, young.Source, young.Cause, young.Phase, young.Started = "0a", 0, "monitor", split.PhaseBeginShadowWrite, 1_700_000_000_000
	over := splitOf(100, 107)
	over.ID, over.Source, over.Target, over.HasTarget, over.Cause, over.Phase = "0b", 2, 4, true, "reshard", split.PhaseDone
	over.Started, over.Ended, over.MapVersion, over.Forwarded = 1_700_000_000_000, 1_700_000_001_500, 3, 42
	over.Entered = map[split.Phase]int64{
		split.PhaseBeginShadowWrite: 1_700_000_000_000, split.PhaseDrain: 1_700_000_000_100, split.PhaseSwap: 1_700_000_001_400,
	}
	r.db.mu.Lock()
	r.db.trees["t"].active, r.db.trees["t"].done = []*split.State{&young}, []*split.State{&over}
	r.db.mu.Unlock()

	r.do("GET", tr+"/splits", "").wantStatus(200).wantBody(`{"inFlight":[` +
		`{"id":"0a","source":0,"phase":"BeginShadowWrite","movedSlots":512,"entriesForwarded":0,"cause":"monitor","started":"2023-11-14T22:13:20.000Z","durationsMs":{}}` +
		`],"recent":[` +
		`{"id":"0b","source":2,"target":4,"phase":"Done","movedSlots":8,"entriesForwarded":42,"cause":"reshard",` +
		`"started":"2023-11-14T22:13:20.000Z","ended":"2023-11-14T22:13:21.500Z","durationsMs":{"BeginShadowWrite":100,"Drain":1300},"mapVersion":3}` +
		`]}`)
	if got := r.do("GET", tr+"/splits", "", "Want-Content-Digest", "sha-256=1"); got.Header.Get("Content-Digest") == "" {
		t.Error("no digest though one was asked for")
	}
}

func TestSplitsRefusals(t *testing.T) {
	r := newRig(t)
	r.do("GET", tr+"/splits", "").wantProblem(404, CodeTreeNotFound)
	r.do("PUT", tr, "").wantStatus(201)
	r.do("GET", tr+"/splits?limit=1", "").wantProblem(400, CodeInvalidArgument)
	r.do("POST", tr+"/splits", `{"source":0}`).wantProblem(405, CodeMethodNotAllowed)
	r.db.setFail(store.Corruptf("row split-00000000"))
	r.do("GET", tr+"/splits", "").wantProblem(500, CodeInternal)
	r.db.setFail(store.ErrUnavailable)
	r.do("GET", tr+"/splits", "").wantProblem(503, CodeUnavailable)
	r.db.setFail(nil)
	r.do("DELETE", tr, "").wantStatus(204)
	r.do("GET", tr+"/splits", "").wantProblem(409, CodeTreeDeleted)
}
