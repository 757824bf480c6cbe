package client

import (
	"context"
	"net/http"
	"time"
)

// Splits are the splits of a tree's shards.
type Splits struct {
	// InFlight are in order of their sources.
	InFlight []Split `json:"inFlight"`
	// Recent are over, the latest first.
	Recent []Split `json:"recent"`
}

// Split is one division of a shard: the source gives slots to the target.
type Split struct {
	ID     string `json:"id"`
	Source int    `json:"source"`
	// Target is nil until the split has one.
	Target *int `json:"target,omitempty"`
	// Phase is BeginShadowWrite, Drain, Swap, Reject, Complete or Done.
	Phase            string `json:"phase"`
	MovedSlots       int    `json:"movedSlots"`
	EntriesForwarded int64  `json:"entriesForwarded"`
	// Cause says who began it, such as "monitor" or "reshard".
	Cause   string    `json:"cause"`
	Started time.Time `json:"started"`
	// Ended is nil while the split is in flight.
	Ended *time.Time `json:"ended,omitempty"`
	// DurationsMs are those of the phases that are over, in milliseconds.
	DurationsMs map[string]int64 `json:"durationsMs"`
	// MapVersion is that of the shard map which moved the slots; 0 until then.
	MapVersion uint64 `json:"mapVersion,omitempty"`
}

// Splits returns the splits in flight and the recent ones.
func (t *Tree) Splits(ctx context.Context) (Splits, error) {
	q, err := t.call(http.MethodGet, "/splits", repeatAlways)
	if err != nil {
		return Splits{}, err
	}
	var out Splits
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}

// Reshard is how far a change of the number of shards has come.
type Reshard struct {
	// Complete says that none is running.
	Complete bool `json:"complete"`
	// Start, Current and Target are numbers of shards; equal when none is
	// running.
	Start   int `json:"start"`
	Current int `json:"current"`
	Target  int `json:"target"`
}

// Reshard asks for another number of shards, and returns once that is recorded:
// the service carries it out online. Asking for the same again is no error;
// while one is running another is ErrOperationInProgress.
func (t *Tree) Reshard(ctx context.Context, shardCount int) (Reshard, error) {
	q, err := t.call(http.MethodPost, "/reshard", repeatAlways)
	if err != nil {
		return Reshard{}, err
	}
	if err := q.jsonBody(map[string]int{"shardCount": shardCount}); err != nil {
		return Reshard{}, err
	}
	var out Reshard
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}

// ReshardStatus returns how far a reshard has come.
func (t *Tree) ReshardStatus(ctx context.Context) (Reshard, error) {
	q, err := t.call(http.MethodGet, "/reshard", repeatAlways)
	if err != nil {
		return Reshard{}, err
	}
	var out Reshard
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}

// SplitActivity is how many splits are in flight in all trees, as the monitors
// of the service last reported it.
type SplitActivity struct {
	InFlight       int       `json:"inFlight"`
	ReportingTrees int       `json:"reportingTrees"`
	ObservedAt     time.Time `json:"observedAt"`
	AnyInFlight    bool      `json:"anyInFlight"`
}

// SplitActivity returns how much is on the move in the whole service.
func (c *Client) SplitActivity(ctx context.Context) (SplitActivity, error) {
	var out SplitActivity
	err := c.doJSON(ctx, newCall(http.MethodGet, "/v1/cluster/split-activity", repeatAlways), &out)
	return out, err
}
