package timers

import (
	"time"

	"github.com/latticekv/lattice/core/tree"
)

// Ran is what every tick answers, as JSON.
type Ran struct {
	Timer string `json:"timer"`
	// StartedAt is UTC.
	StartedAt time.Time `json:"startedAt"`
	// DurationMs is in milliseconds.
	DurationMs int64 `json:"durationMs"`
	// Failed counts the shards and trees that the tick could not look after;
	// the first ones are named.
	Failed   int       `json:"failed"`
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is what went wrong with one shard.
type Failure struct {
	Tree  string `json:"tree"`
	Shard uint32 `json:"shard"`
	Error string `json:"error"`
}

func failures(all []tree.Failure) []Failure {
	var named []Failure
	for _, f := range all {
		named = append(named, Failure{Tree: f.Tree, Shard: uint32(f.Shard), Error: f.Err.Error()})
	}
	return named
}

// Result is what a tick of checkpoint or collect answers.
type Result struct {
	Ran
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
}

func newResult(ran Ran, r *tree.Report) Result {
	return Result{
		Ran: ran, Trees: r.Trees, Shards: r.Shards, Complete: r.Complete, Rows: r.Rows, Blobs: r.Blobs,
		Merges: r.Merges, Due: r.Due, Finished: r.Finished, Purged: r.Purged,
	}
}

// MigrationResult is what a tick of migrations answers.
type MigrationResult struct {
	Ran
	// Trees and Splits were visited; Completed are splits that ended.
	Trees     int `json:"trees"`
	Splits    int `json:"splits"`
	Completed int `json:"completed"`
}

func newMigrationResult(ran Ran, r *tree.MigrationReport) MigrationResult {
	return MigrationResult{Ran: ran, Trees: r.Trees, Splits: r.Splits, Completed: r.Completed}
}
