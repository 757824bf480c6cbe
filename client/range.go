package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// Range selects keys: those from Start, inclusive, to End, exclusive, or those
// that begin with Prefix. Empty bounds are open; the zero Range is every key.
type Range struct {
	Start, End string
	// Prefix excludes Start and End.
	Prefix string
}

func (r Range) apply(q *call) error {
	if r.Prefix != "" && (r.Start != "" || r.End != "") {
		return fmt.Errorf("%w: Prefix excludes Start and End", ErrInvalidRequest)
	}
	for _, b := range []struct{ name, key string }{{"start", r.Start}, {"end", r.End}, {"prefix", r.Prefix}} {
		if b.key == "" {
			continue
		}
		if err := checkKey(b.key); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		q.query.Set(b.name, b.key)
	}
	return nil
}

// IsAll reports whether the range is every key.
func (r Range) IsAll() bool { return r == Range{} }

// DeleteRange deletes every key of the range and returns how many there were.
// Deleting a whole tree's keys must be said with all; it excludes a range.
func (t *Tree) DeleteRange(ctx context.Context, r Range, all bool) (int64, error) {
	if all != r.IsAll() {
		return 0, fmt.Errorf("%w: give a range, or all and no range", ErrInvalidRequest)
	}
	q, err := t.call(http.MethodDelete, "/entries", repeatAlways)
	if err != nil {
		return 0, err
	}
	if err := r.apply(q); err != nil {
		return 0, err
	}
	if all {
		q.query.Set("all", "true")
	}
	var out struct {
		Deleted *int64 `json:"deleted"`
	}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return 0, err
	}
	if out.Deleted == nil {
		return 0, fmt.Errorf("%w: no count of deleted keys", ErrProtocol)
	}
	return *out.Deleted, nil
}

// Count is how many keys a range holds.
type Count struct {
	Total      int64  `json:"count"`
	MapVersion uint64 `json:"mapVersion"`
	// Shards is the part of each shard, if asked for.
	Shards []ShardCount `json:"shards,omitempty"`
}

// ShardCount is the part of one shard.
type ShardCount struct {
	Shard int   `json:"shard"`
	Count int64 `json:"count"`
}

// CountOptions qualify a Count.
type CountOptions struct {
	ReadOptions
	// PerShard asks for the part of each shard.
	PerShard bool
}

// Count counts the live keys of a range, under one shard map.
func (t *Tree) Count(ctx context.Context, r Range, o CountOptions) (Count, error) {
	q, err := t.call(http.MethodGet, "/count", repeatAlways)
	if err != nil {
		return Count{}, err
	}
	if err := r.apply(q); err != nil {
		return Count{}, err
	}
	if err := o.apply(q); err != nil {
		return Count{}, err
	}
	if o.PerShard {
		q.query.Set("perShard", strconv.FormatBool(true))
	}
	out := struct {
		Count
		Total *int64 `json:"count"`
	}{}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return Count{}, err
	}
	if out.Total == nil {
		return Count{}, fmt.Errorf("%w: no count", ErrProtocol)
	}
	out.Count.Total = *out.Total
	return out.Count, nil
}
