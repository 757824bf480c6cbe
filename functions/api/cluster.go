package api

import (
	"net/http"
	"time"

	"github.com/latticekv/lattice/core/heartbeat"
	"github.com/latticekv/lattice/functions/schedule"
)

// timersBody is what is known of the scheduled functions.
type timersBody struct {
	ObservedAt string `json:"observedAt"`
	// Timers are all there are, in the order of the schedule.
	Timers []timerBody `json:"timers"`
}

// timerBody describes one scheduled function. What no tick has told yet is left
// out.
type timerBody struct {
	Timer string `json:"timer"`
	// Interval is the wished time between ticks.
	Interval string `json:"interval"`
	// LastStartedAt, Failed, Error, TookMs and Instance tell of the latest tick
	// that was recorded, LastSucceededAt of the latest one that succeeded.
	LastStartedAt   string `json:"lastStartedAt,omitempty"`
	LastSucceededAt string `json:"lastSucceededAt,omitempty"`
	// Age is the time since LastSucceededAt.
	Age string `json:"age,omitempty"`
	// Late says that no tick has succeeded for too long, or none ever.
	Late bool `json:"late"`
	// LateAfter is how long is too long.
	LateAfter string `json:"lateAfter"`
	Failed    int    `json:"failed"`
	Error     string `json:"error,omitempty"`
	TookMs    *int64 `json:"tookMs,omitempty"`
	Instance  string `json:"instance,omitempty"`
}

// getTimers answers GET /v1/cluster/timers.
func (s *Server) getTimers(w http.ResponseWriter, r *request) error {
	beats, err := s.cfg.Beats.Read(r.Context())
	if err != nil {
		return err
	}
	now := s.cfg.Clock.Now().Time()
	body := timersBody{ObservedAt: formatTime(now), Timers: []timerBody{}}
	for _, t := range schedule.All() {
		body.Timers = append(body.Timers, s.timer(&t, beats, now))
	}
	return writeJSON(w, r, http.StatusOK, body)
}

func (s *Server) timer(t *schedule.Timer, beats []heartbeat.Beat, now time.Time) timerBody {
	limit := t.LateAfter(&s.opts)
	body := timerBody{Timer: t.Name, Interval: t.Interval(&s.opts).String(), LateAfter: limit.String(), Late: true}
	for i := range beats {
		b := &beats[i]
		if b.Timer != t.Name {
			continue
		}
		took := b.Took.Milliseconds()
		body.LastStartedAt, body.TookMs = formatTime(b.Started), &took
		body.Failed, body.Error, body.Instance = b.Failed, b.Error, b.Instance
		if !b.Succeeded.IsZero() {
			age := b.Age(now)
			body.LastSucceededAt, body.Age, body.Late = formatTime(b.Succeeded), age.Round(time.Millisecond).String(), age > limit
		}
	}
	return body
}

// clusterRoutes tell of the service as a whole.
func (s *Server) clusterRoutes() []route {
	return []route{{"/v1/cluster/timers", []operation{{
		method: http.MethodGet, access: asOverseer, id: "getTimers", summary: "Tell when the scheduled functions last ran, on any instance, and which are late", tag: tagService, handle: s.getTimers,
		headers: []param{wantDigestHeader},
		answers: map[int]answer{http.StatusOK: {"What the ticks last recorded.", []param{digestHeader}, jsonContent("Timers")}},
	}}}}
}

// addClusterSchemas adds the bodies of this file.
func addClusterSchemas(all object) {
	span := object{"type": "string", "description": "a duration, such as 30s"}
	all["Timer"] = record([]string{"timer", "interval", "late", "lateAfter", "failed"}, object{
		"timer": object{"type": "string", "enum": schedule.Names()}, "interval": span, "lateAfter": span, "age": span,
		"lastStartedAt": timeSchema, "lastSucceededAt": timeSchema, "late": boolSchema,
		"failed": countSchema, "error": stringSchema, "tookMs": countSchema, "instance": stringSchema,
	})
	all["Timers"] = record([]string{"observedAt", "timers"}, object{"observedAt": timeSchema, "timers": list(ref("Timer"))})
}
