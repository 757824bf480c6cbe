package api

import (
	"testing"
	"time"

	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
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

func TestReshardIsAcceptedAndShowsItsProgress(t *testing.T) {
	r := newRig(t)
	r.do("PUT", tr, `{"shardCount":4}`).wantStatus(201)
	r.do("GET", tr+"/reshard", "").wantStatus(200).wantBody(`{"complete":true,"start":4,"current":4,"target":4}`)
	r.do("POST", tr+"/reshard", `{"shardCount":4}`).wantStatus(202).wantBody(`{"complete":true,"start":4,"current":4,"target":4}`)
	r.do("POST", tr+"/reshard", `{"shardCount":16}`).wantStatus(202).wantBody(`{"complete":false,"start":4,"current":4,"target":16}`)
	r.do("POST", tr+"/reshard", `{"shardCount":16}`).wantStatus(202)
	r.do("GET", tr+"/reshard", "").wantStatus(200).wantBody(`{"complete":false,"start":4,"current":4,"target":16}`)
	if p := r.do("POST", tr+"/reshard", `{"shardCount":32}`).wantProblem(409, CodeOperationInProgress); p.Tree != "t" {
		t.Errorf("the problem names tree %q", p.Tree)
	}
	r.do("GET", tr+"/reshard", "").wantBody(`{"complete":false,"start":4,"current":4,"target":16}`)
}

func TestReshardRefusalsChangeNothing(t *testing.T) {
	r := newRig(t)
	r.do("GET", tr+"/reshard", "").wantProblem(404, CodeTreeNotFound)
	r.do("POST", tr+"/reshard", `{"shardCount":8}`).wantProblem(404, CodeTreeNotFound)
	r.do("PUT", tr, `{"shardCount":4}`).wantStatus(201)
	for name, body := range map[string]string{
		"nothing": "", "no count": `{}`, "zero": `{"shardCount":0}`, "negative": `{"shardCount":-4}`, "more than slots": `{"shardCount":4097}`,
		"fraction": `{"shardCount":4.5}`, "text": `{"shardCount":"8"}`, "null": `{"shardCount":null}`, "array": `[8]`,
		"unknown": `{"shardCount":8,"shard":1}`, "twice": `{"shardCount":8,"shardCount":16}`, "garbage": `{"shardCount":8} x`,
		"fewer than now": `{"shardCount":2}`,
	} {
		t.Run(name, func(t *testing.T) { r.do("POST", tr+"/reshard", body).wantProblem(400, CodeInvalidArgument) })
	}
	r.do("POST", tr+"/reshard", `{"shardCount":8}`, "Content-Digest", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:").wantProblem(400, CodeDigestMismatch)
	r.do("PUT", tr+"/reshard", `{"shardCount":8}`).wantProblem(405, CodeMethodNotAllowed)
	r.db.setFail(store.ErrThrottled)
	r.do("POST", tr+"/reshard", `{"shardCount":8}`).wantProblem(503, CodeStorageThrottled)
	r.do("GET", tr+"/reshard", "").wantProblem(503, CodeStorageThrottled)
	r.db.setFail(nil)
	r.do("GET", tr+"/reshard", "").wantBody(`{"complete":true,"start":4,"current":4,"target":4}`)
	r.do("DELETE", tr, "").wantStatus(204)
	r.do("GET", tr+"/reshard", "").wantProblem(409, CodeTreeDeleted)
	r.do("POST", tr+"/reshard", `{"shardCount":8}`).wantProblem(409, CodeTreeDeleted)
}

func TestSplitActivity(t *testing.T) {
	r := newRig(t)
	r.db.activity = tree.SplitActivity{ObservedAt: time.UnixMilli(1_700_000_000_000)}
	r.do("GET", "/v1/cluster/split-activity", "").wantStatus(200).
		wantBody(`{"inFlight":0,"reportingTrees":0,"observedAt":"2023-11-14T22:13:20.000Z","anyInFlight":false}`)
	r.db.activity = tree.SplitActivity{InFlight: 5, ReportingTrees: 2, ObservedAt: time.UnixMilli(1_700_000_000_500), AnyInFlight: true}
	r.do("GET", "/v1/cluster/split-activity", "").wantStatus(200).
		wantBody(`{"inFlight":5,"reportingTrees":2,"observedAt":"2023-11-14T22:13:20.500Z","anyInFlight":true}`)
	r.do("GET", "/v1/cluster/split-activity?tree=t", "").wantProblem(400, CodeInvalidArgument)
	r.db.setFail(store.ErrUnavailable)
	r.do("GET", "/v1/cluster/split-activity", "").wantProblem(503, CodeUnavailable)
	r.db.setFail(nil)
	r.do("POST", "/v1/cluster/split-activity", "").wantProblem(405, CodeMethodNotAllowed)
}
