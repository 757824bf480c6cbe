package timers

import (
	"math"
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
	// More says that another tick would find something to do: this one did not
	// come round, or began what takes several. A host that calls seldom need not
	// wait with it.
	More bool `json:"more"`
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
	ran.More = !r.Complete || r.Due
	return Result{
		Ran: ran, Trees: r.Trees, Shards: r.Shards, Complete: r.Complete, Rows: r.Rows, Blobs: r.Blobs,
		Merges: r.Merges, Due: r.Due, Finished: r.Finished, Purged: r.Purged,
	}
}

// MigrationResult is what a tick of migrations answers.
type MigrationResult struct {
	Ran
	// Trees and Splits were visited; Completed are splits that ended. Complete says
	// that the walk came round, otherwise the next tick goes on.
	Trees     int  `json:"trees"`
	Complete  bool `json:"complete"`
	Splits    int  `json:"splits"`
	Completed int  `json:"completed"`
}

func newMigrationResult(ran Ran, r *tree.MigrationReport) MigrationResult {
	ran.More = !r.Complete || r.Splits > r.Completed
	return MigrationResult{Ran: ran, Complete: r.Complete, Trees: r.Trees, Splits: r.Splits, Completed: r.Completed}
}

// TransactionsResult is what a tick of transactions answers.
type TransactionsResult struct {
	Ran
	// Trees and Rows were looked at; Complete says that the walk came round,
	// otherwise the next tick goes on.
	Trees    int  `json:"trees"`
	Rows     int  `json:"rows"`
	Complete bool `json:"complete"`
	// Aborted are batches that were overdue, Told those of which the shards were
	// told how they ended, Removed those that were forgotten.
	Aborted int `json:"aborted"`
	Told    int `json:"told"`
	Removed int `json:"removed"`
}

func newTransactionsResult(ran Ran, r *tree.TransactionsReport) TransactionsResult {
	ran.More = !r.Complete
	return TransactionsResult{
		Ran: ran, Trees: r.Trees, Rows: r.Rows, Complete: r.Complete, Aborted: r.Aborted, Told: r.Told, Removed: r.Removed,
	}
}

// maxCandidates bounds the candidates that one answer names, and maxPasses the
// trees: together they keep it far below a megabyte.
const (
	maxCandidates = 2000
	maxPasses     = 1000
)

// MonitorResult is what a tick of the monitor answers.
type MonitorResult struct {
	Ran
	// Trees were visited; Complete says that the walk came round, otherwise the
	// next tick goes on.
	Trees    int  `json:"trees"`
	Complete bool `json:"complete"`
	// Started counts the splits begun.
	Started int `json:"started"`
	// Passes tell what was seen and decided in each active tree.
	Passes []Pass `json:"passes"`
	// Truncated says that there was more to tell than an answer holds.
	Truncated bool `json:"truncated,omitempty"`
}

// Pass is what a tick of the monitor saw and decided in one tree.
type Pass struct {
	Tree string `json:"tree"`
	// Skipped says why the shards were not looked at; then the rest is empty.
	Skipped string `json:"skipped,omitempty"`
	// Suppressed says why no split may start in this pass.
	Suppressed string `json:"suppressed,omitempty"`
	// InFlight are the migrations that were in flight before the pass.
	InFlight int `json:"inFlight"`
	Shards   int `json:"shards"`
	// Started are the sources of the splits begun.
	Started []uint32 `json:"started,omitempty"`
	// Candidates are the hot shards, hottest first.
	Candidates []Candidate `json:"candidates,omitempty"`
}

// Candidate is a hot shard and what was decided about it.
type Candidate struct {
	Shard uint32 `json:"shard"`
	// Rate is in operations per second, rounded.
	Rate  int64 `json:"rate"`
	Live  int64 `json:"live"`
	Slots int   `json:"slots"`
	// Reason is why the shard is not split now, empty if it is.
	Reason string `json:"reason,omitempty"`
}

func newMonitorResult(ran Ran, r *tree.MonitorReport) MonitorResult {
	ran.More = !r.Complete || r.Started > 0
	res := MonitorResult{Ran: ran, Trees: r.Trees, Complete: r.Complete, Started: r.Started, Passes: []Pass{}}
	room := maxCandidates
	for i := range r.Passes {
		p := newPass(&r.Passes[i])
		if len(res.Passes) == maxPasses {
			res.Truncated = true
			break
		}
		if len(p.Candidates) > room {
			p.Candidates, res.Truncated = p.Candidates[:room], true
		}
		room -= len(p.Candidates)
		res.Passes = append(res.Passes, p)
	}
	return res
}

func newPass(p *tree.MonitorPass) Pass {
	out := Pass{
		Tree: p.Tree, Skipped: p.Skipped, Suppressed: string(p.Suppressed), InFlight: p.InFlight, Shards: len(p.Shards),
	}
	for _, id := range p.Started {
		out.Started = append(out.Started, uint32(id))
	}
	for _, c := range p.Candidates {
		out.Candidates = append(out.Candidates, Candidate{
			Shard: uint32(c.Shard), Rate: int64(math.Round(c.Rate)), Live: c.Live, Slots: c.Slots, Reason: string(c.Reason),
		})
	}
	return out
}
