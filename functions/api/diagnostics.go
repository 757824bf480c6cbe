package api

import (
	"fmt"
	"net/http"

	"github.com/latticekv/lattice/core/tree"
)

// diagnosticsBody describes a tree and its shards.
type diagnosticsBody struct {
	Tree       string `json:"tree"`
	MapVersion uint64 `json:"mapVersion"`
	// Deep says that keys and bytes were counted, not estimated.
	Deep bool `json:"deep"`
	// Incomplete says that some shard could not be sampled: its error says why.
	Incomplete  bool `json:"incomplete"`
	BulkPending bool `json:"bulkPending"`
	// Instance is the one whose requests the hot keys were seen among.
	Instance  string           `json:"instance"`
	SampledAt string           `json:"sampledAt"`
	Totals    totalsBody       `json:"totals"`
	Shards    []shardDiagsBody `json:"shards"`
}

type totalsBody struct {
	LiveKeys   int64 `json:"liveKeys"`
	Tombstones int64 `json:"tombstones"`
	Expired    int64 `json:"expired"`
	Bytes      int64 `json:"bytes"`
	Shards     int   `json:"shards"`
}

type shardDiagsBody struct {
	Shard       uint32 `json:"shard"`
	Slots       int    `json:"slots"`
	LiveKeys    int64  `json:"liveKeys"`
	Tombstones  int64  `json:"tombstones"`
	Expired     int64  `json:"expired"`
	Bytes       int64  `json:"bytes"`
	Depth       int    `json:"depth"`
	Leaves      int    `json:"leaves"`
	StoredBytes int64  `json:"storedBytes"`
	// WALTailRows and WALTailBytes are what the log holds above the checkpoint.
	WALTailRows  int   `json:"walTailRows"`
	WALTailBytes int64 `json:"walTailBytes"`
	// OpsPerSecond is left out until the monitor has seen the shard twice.
	OpsPerSecond *float64     `json:"opsPerSecond,omitempty"`
	Splitting    bool         `json:"splitting"`
	Split        *splitRole   `json:"split,omitempty"`
	BulkPending  bool         `json:"bulkPending"`
	Lease        leaseBody    `json:"lease"`
	HotKeys      []hotKeyBody `json:"hotKeys"`
	SampledAt    string       `json:"sampledAt"`
	Error        string       `json:"error,omitempty"`
}

const (
	roleSource = "source"
	roleTarget = "target"
)

type splitRole struct {
	Role  string  `json:"role"`
	Peer  *uint32 `json:"peer,omitempty"`
	Phase string  `json:"phase"`
}

type leaseBody struct {
	Owner     string `json:"owner,omitempty"`
	ExpiresAt string `json:"expiresAt,omitempty"`
	Held      bool   `json:"held"`
}

type hotKeyBody struct {
	Key     string  `json:"key"`
	Share   float64 `json:"share"`
	Certain float64 `json:"certain"`
}

// getDiagnostics answers GET …/diagnostics.
func (s *Server) getDiagnostics(w http.ResponseWriter, r *request) error {
	deep, err := r.flag("deep")
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	d, err := t.Diagnostics(r.Context(), deep)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, newDiagnostics(&d))
}

func newDiagnostics(d *tree.Diagnostics) diagnosticsBody {
	body := diagnosticsBody{
		Tree: d.Tree, MapVersion: d.MapVersion, Deep: d.Deep, Incomplete: d.Incomplete, BulkPending: d.BulkPending,
		Instance: hexID(d.Instance), SampledAt: formatTime(d.SampledAt),
		Totals: totalsBody{d.LiveKeys, d.Tombstones, d.Expired, d.Bytes, len(d.Shards)},
		Shards: make([]shardDiagsBody, len(d.Shards)),
	}
	for i := range d.Shards {
		body.Shards[i] = newShardDiagnostics(&d.Shards[i])
	}
	return body
}

func newShardDiagnostics(d *tree.ShardDiagnostics) shardDiagsBody {
	body := shardDiagsBody{
		Shard: uint32(d.Shard), Slots: d.Slots, LiveKeys: d.LiveKeys, Tombstones: d.Tombstones, Expired: d.Expired, Bytes: d.Bytes,
		Depth: d.Depth, Leaves: d.Leaves, StoredBytes: d.StoredBytes, WALTailRows: d.TailRows, WALTailBytes: d.TailBytes,
		Splitting: d.Splitting != nil, BulkPending: d.BulkPending, Lease: newLease(d.Lease),
		HotKeys: make([]hotKeyBody, len(d.HotKeys)), SampledAt: formatTime(d.SampledAt), Error: clip(d.Error, maxDetailBytes),
	}
	if d.RateKnown {
		body.OpsPerSecond = &d.Rate
	}
	if p := d.Splitting; p != nil {
		body.Split = &splitRole{Role: roleSource, Phase: p.Phase}
		if p.Target {
			body.Split.Role = roleTarget
		}
		if p.PeerKnown {
			peer := uint32(p.Peer)
			body.Split.Peer = &peer
		}
	}
	for i, h := range d.HotKeys {
		body.HotKeys[i] = hotKeyBody{h.Key, h.Share, h.Certain}
	}
	return body
}

func newLease(l tree.ShardLease) leaseBody {
	body := leaseBody{Held: l.Held}
	if l.Owner != 0 {
		body.Owner = hexID(l.Owner)
	}
	if !l.Expiry.IsZero() {
		body.ExpiresAt = formatTime(l.Expiry)
	}
	return body
}

func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }
