package timers

import (
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

// Result is what a tick answers, as JSON.
type Result struct {
	Timer string `json:"timer"`
	// StartedAt is UTC.
	StartedAt time.Time `json:"startedAt"`
	// DurationMs is in milliseconds.
	DurationMs int64 `json:"durationMs"`
	// Trees and Shards were visited; Complete says that the walk came round,
	// otherwise the next tick goes on.
	Trees    int  `json:"trees"`
	Shards   int  `json:"shards"`
	Complete bool `json:"complete"`
	// Rows and Blobs were folded into checkpoints, or collected.
	Rows  int `json:"rows"`
	Blobs int `json:"blobs"`
	// Merges were done; Due says that more are waiting.
	Merges int  `json:"merges"`
	Due    bool `json:"due"`
	// Finished and Purged are trees brought to an end of their change.
	Finished []string `json:"finished,omitempty"`
	Purged   []string `json:"purged,omitempty"`
	// Failed counts what could not be maintained; the first ones are named.
	Failed   int       `json:"failed"`
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is what went wrong with one shard.
type Failure struct {
	Tree  string `json:"tree"`
	Shard uint32 `json:"shard"`
	Error string `json:"error"`
}

func newResult(name string, start clock.Instant, took time.Duration, r *tree.Report) Result {
	res := Result{
		Timer: name, StartedAt: start.Time(), DurationMs: took.Milliseconds(),
		Trees: r.Trees, Shards: r.Shards, Complete: r.Complete, Rows: r.Rows, Blobs: r.Blobs,
		Merges: r.Merges, Due: r.Due, Finished: r.Finished, Purged: r.Purged, Failed: r.Failed,
	}
	for _, f := range r.Failures {
		res.Failures = append(res.Failures, Failure{Tree: f.Tree, Shard: uint32(f.Shard), Error: f.Err.Error()})
	}
	return res
}
