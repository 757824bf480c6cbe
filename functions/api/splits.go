package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// splitsBody is the splits of a tree.
type splitsBody struct {
	// InFlight are in order of their sources.
	InFlight []splitBody `json:"inFlight"`
	// Recent are over, the latest first.
	Recent []splitBody `json:"recent"`
}

// splitBody describes one split.
type splitBody struct {
	ID     string `json:"id"`
	Source uint32 `json:"source"`
	// Target is left out until the split has one.
	Target *uint32 `json:"target,omitempty"`
	// Phase is being carried out; Done at the end.
	Phase            string `json:"phase"`
	MovedSlots       int    `json:"movedSlots"`
	EntriesForwarded int64  `json:"entriesForwarded"`
	Cause            string `json:"cause"`
	Started          string `json:"started"`
	Ended            string `json:"ended,omitempty"`
	// DurationsMs are those of the phases that are over, in milliseconds.
	DurationsMs map[string]int64 `json:"durationsMs"`
	// MapVersion is that of the map which moved the slots, once one has.
	MapVersion uint64 `json:"mapVersion,omitempty"`
}

// getSplits answers GET …/splits.
func (s *Server) getSplits(w http.ResponseWriter, r *request) error {
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	active, done, err := t.Splits(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, splitsBody{InFlight: newSplits(active), Recent: newSplits(done)})
}

func newSplits(states []*split.State) []splitBody {
	all := make([]splitBody, len(states))
	for i, s := range states {
		all[i] = newSplit(s)
	}
	return all
}

func newSplit(s *split.State) splitBody {
	body := splitBody{
		ID: s.ID, Source: uint32(s.Source), Phase: s.Phase.String(), MovedSlots: s.Slots.Len(),
		EntriesForwarded: s.Forwarded, Cause: s.Cause, Started: formatTime(time.UnixMilli(s.Started)),
		DurationsMs: map[string]int64{}, MapVersion: s.MapVersion,
	}
	if s.HasTarget {
		target := uint32(s.Target)
		body.Target = &target
	}
	if s.Ended != 0 {
		body.Ended = formatTime(time.UnixMilli(s.Ended))
	}
	for phase, took := range s.Durations() {
		body.DurationsMs[phase] = took.Milliseconds()
	}
	return body
}

// reshardBody is how far a reshard has come.
type reshardBody struct {
	Complete bool `json:"complete"`
	// Start, Current and Target are numbers of shards.
	Start   int `json:"start"`
	Current int `json:"current"`
	Target  int `json:"target"`
}

func newReshard(s tree.ReshardStatus) reshardBody {
	return reshardBody{Complete: s.Complete, Start: s.Start, Current: s.Current, Target: s.Target}
}

// reshard answers POST …/reshard: always 202 when it is accepted, though a tree
// that is empty, or has as many shards already, is done at once.
func (s *Server) reshard(w http.ResponseWriter, r *request) error {
	target, err := s.parseReshard(w, r)
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	status, _, err := t.Reshard(r.Context(), target)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusAccepted, newReshard(status))
}

// parseReshard reads the number of shards wanted. The tree knows which it can
// have; here only what no tree can have is refused.
func (s *Server) parseReshard(w http.ResponseWriter, r *request) (target int, err error) {
	body, err := s.readBody(w, r, s.jsonLimit())
	if err != nil {
		return 0, err
	}
	err = parseJSON(body, func(p *parser) error {
		return p.object("", func(name string) (known bool, err error) {
			if name != "shardCount" {
				return false, nil
			}
			target, err = p.count(name)
			if err == nil && (target < 1 || target > keyspace.Slots) {
				err = argument(name, "must be 1 to %d", keyspace.Slots)
			}
			return true, err
		})
	})
	if err == nil && target == 0 {
		err = argument("shardCount", "missing")
	}
	return target, err
}

// getReshard answers GET …/reshard.
func (s *Server) getReshard(w http.ResponseWriter, r *request) error {
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	status, err := t.ReshardStatus(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, newReshard(status))
}

// activityBody is how much is on the move in the whole service.
type activityBody struct {
	InFlight       int    `json:"inFlight"`
	ReportingTrees int    `json:"reportingTrees"`
	ObservedAt     string `json:"observedAt"`
	AnyInFlight    bool   `json:"anyInFlight"`
}

// getSplitActivity answers GET /v1/cluster/split-activity.
func (s *Server) getSplitActivity(w http.ResponseWriter, r *request) error {
	a, err := s.db.SplitActivity(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, activityBody{a.InFlight, a.ReportingTrees, formatTime(a.ObservedAt), a.AnyInFlight})
}

// splitRoutes show and change how trees are divided.
func (s *Server) splitRoutes() []route {
	one := func(status int, about, schema string) map[int]answer {
		return map[int]answer{status: {about, []param{digestHeader}, jsonContent(schema)}}
	}
	gone := []Code{CodeTreeNotFound, CodeTreeDeleted}
	return []route{
		{"/v1/trees/{tree}/splits", []operation{{
			method: http.MethodGet, access: asReader, id: "getSplits", summary: "Show the splits in flight and the recent ones", tag: tagTrees, handle: s.getSplits,
			headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "The splits.", "Splits"), problems: gone,
		}}},
		{"/v1/trees/{tree}/reshard", []operation{
			{
				method: http.MethodPost, access: asAdmin, id: "reshard", summary: "Change the number of shards, online", tag: tagTrees, handle: s.reshard,
				headers: []param{digestHeader, wantDigestHeader}, body: jsonBody("ReshardRequest", true),
				answers:  one(http.StatusAccepted, "Accepted; ticks carry it out.", "Reshard"),
				problems: append(slices.Clone(gone), CodeOperationInProgress, CodeRequestTooLarge, CodeDigestMismatch),
			},
			{
				method: http.MethodGet, access: asReader, id: "getReshard", summary: "Show how far a change of the number of shards has come", tag: tagTrees, handle: s.getReshard,
				headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "The progress.", "Reshard"), problems: gone,
			},
		}},
		{"/v1/cluster/split-activity", []operation{{
			method: http.MethodGet, access: asOverseer, id: "getSplitActivity", summary: "Tell how many shards of all trees are being split", tag: tagService, handle: s.getSplitActivity,
			headers: []param{wantDigestHeader}, answers: one(http.StatusOK, "What the monitors last reported.", "SplitActivity"),
		}}},
	}
}

// addSplitSchemas adds the bodies of this file.
func addSplitSchemas(all object) {
	phases := []string{}
	for p := split.PhaseBeginShadowWrite; p <= split.PhaseDone; p++ {
		phases = append(phases, p.String())
	}
	all["Split"] = record([]string{"id", "source", "phase", "movedSlots", "entriesForwarded", "cause", "started", "durationsMs"}, object{
		"id": stringSchema, "source": countSchema, "target": countSchema,
		"phase":      object{"type": "string", "enum": phases},
		"movedSlots": countSchema, "entriesForwarded": countSchema, "cause": stringSchema,
		"started": timeSchema, "ended": timeSchema,
		"durationsMs": dictionary(countSchema), "mapVersion": countSchema,
	})
	all["Splits"] = record([]string{"inFlight", "recent"}, object{"inFlight": list(ref("Split")), "recent": list(ref("Split"))})
	shards := object{"type": "integer", "minimum": 1, "maximum": keyspace.Slots}
	all["ReshardRequest"] = record([]string{"shardCount"}, object{"shardCount": shards})
	all["Reshard"] = record([]string{"complete", "start", "current", "target"}, object{
		"complete": boolSchema, "start": countSchema, "current": countSchema, "target": countSchema,
	})
	all["SplitActivity"] = record([]string{"inFlight", "reportingTrees", "observedAt", "anyInFlight"}, object{
		"inFlight": countSchema, "reportingTrees": countSchema, "observedAt": timeSchema, "anyInFlight": boolSchema,
	})
}
