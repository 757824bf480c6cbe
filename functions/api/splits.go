package api

import (
	"net/http"
	"time"

	"github.com/latticekv/lattice/core/split"
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

// splitRoutes show how a tree's shards are divided.
func (s *Server) splitRoutes() []route {
	return []route{
		{"/v1/trees/{tree}/splits", []operation{{
			method: http.MethodGet, id: "getSplits", summary: "Show the splits in flight and the recent ones", tag: tagTrees, handle: s.getSplits,
			headers:  []param{wantDigestHeader},
			answers:  map[int]answer{http.StatusOK: {"The splits.", []param{digestHeader}, jsonContent("Splits")}},
			problems: []Code{CodeTreeNotFound, CodeTreeDeleted},
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
}
