package client

import (
	"context"
	"net/http"
	"time"
)

// Diagnostics describe a tree as a whole and shard by shard.
type Diagnostics struct {
	Tree string `json:"tree"`
	// MapVersion is that of the shard map whose shards are described.
	MapVersion uint64 `json:"mapVersion"`
	// Deep says that keys and bytes were counted; otherwise they are estimates.
	Deep bool `json:"deep"`
	// Incomplete says that some shard could not be sampled: its Error says why,
	// and the totals lack it.
	Incomplete bool `json:"incomplete"`
	// BulkPending says that a bulk load of the tree is open.
	BulkPending bool `json:"bulkPending"`
	// Instance names the instance whose requests the hot keys were seen among.
	Instance string `json:"instance"`
	// SampledAt is when sampling began; the answer may be cached.
	SampledAt time.Time          `json:"sampledAt"`
	Totals    DiagnosticsTotals  `json:"totals"`
	Shards    []ShardDiagnostics `json:"shards"`
}

// DiagnosticsTotals sum up the shards.
type DiagnosticsTotals struct {
	LiveKeys   int64 `json:"liveKeys"`
	Tombstones int64 `json:"tombstones"`
	// Expired are entries past their expiry that are still stored; known only
	// of deep diagnostics.
	Expired int64 `json:"expired"`
	// Bytes are keys, values and media types of the live entries.
	Bytes  int64 `json:"bytes"`
	Shards int   `json:"shards"`
}

// ShardDiagnostics describe one shard.
type ShardDiagnostics struct {
	Shard int `json:"shard"`
	Slots int `json:"slots"`
	// LiveKeys, Tombstones, Expired and Bytes are as in DiagnosticsTotals.
	LiveKeys   int64 `json:"liveKeys"`
	Tombstones int64 `json:"tombstones"`
	Expired    int64 `json:"expired"`
	Bytes      int64 `json:"bytes"`
	// Depth is the number of sorted runs that a read may have to ask. Leaves and
	// StoredBytes are the blobs they consist of.
	Depth       int   `json:"depth"`
	Leaves      int   `json:"leaves"`
	StoredBytes int64 `json:"storedBytes"`
	// WALTailRows and WALTailBytes are what the log holds above the checkpoint.
	WALTailRows  int   `json:"walTailRows"`
	WALTailBytes int64 `json:"walTailBytes"`
	// OpsPerSecond is nil until the monitor has seen the shard twice.
	OpsPerSecond *float64 `json:"opsPerSecond,omitempty"`
	Splitting    bool     `json:"splitting"`
	// Split is the shard's part in a split, nil if Splitting is false.
	Split *ShardSplit `json:"split,omitempty"`
	// BulkPending says that a chunk of a bulk load may be half-way into the
	// shard.
	BulkPending bool       `json:"bulkPending"`
	Lease       ShardLease `json:"lease"`
	// HotKeys get much of the load of a shard that no split can help.
	HotKeys   []HotKey  `json:"hotKeys"`
	SampledAt time.Time `json:"sampledAt"`
	// Error says why the shard could not be sampled; empty if it could.
	Error string `json:"error,omitempty"`
}

// ShardSplit is the part of a shard in a split.
type ShardSplit struct {
	// Role is "source" or "target".
	Role string `json:"role"`
	// Peer is the other shard; nil if it is not known yet.
	Peer  *int   `json:"peer,omitempty"`
	Phase string `json:"phase"`
}

// ShardLease is the lease of a shard.
type ShardLease struct {
	// Owner is empty if nobody has it.
	Owner string `json:"owner,omitempty"`
	// ExpiresAt is nil if nobody ever had it.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Held says that it has an owner and has not expired.
	Held bool `json:"held"`
}

// HotKey is a key that gets much of the load of its shard.
type HotKey struct {
	Key string `json:"key"`
	// Share is the estimated part of the operations, 0 to 1, and Certain a lower
	// bound of it.
	Share   float64 `json:"share"`
	Certain float64 `json:"certain"`
}

// Diagnostics describes the tree and its shards. With deep, keys and bytes are
// counted, which reads the whole tree; else they are estimates.
func (t *Tree) Diagnostics(ctx context.Context, deep bool) (Diagnostics, error) {
	q, err := t.call(http.MethodGet, "/diagnostics", repeatAlways)
	if err != nil {
		return Diagnostics{}, err
	}
	if deep {
		q.query.Set("deep", "true")
	}
	var out Diagnostics
	err = t.c.doJSON(ctx, q, &out)
	return out, err
}
