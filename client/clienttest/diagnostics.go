package clienttest

import (
	"net/http"
	"time"
)

// diagnostics describes a tree whose keys all lie in shard 0.
func (s *Server) diagnostics(w http.ResponseWriter, r *http.Request, name string) *refusal {
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	live, size := 0, 0
	for _, k := range s.keys(t, bounds{}) {
		live++
		size += len(k) + len(t.entries[k].value) + len(t.entries[k].kind)
	}
	at := s.now().UTC().Format(time.RFC3339Nano)
	pending := t.openLoad() != nil
	shards := []map[string]any{}
	for i := range t.shards {
		sh := map[string]any{
			"shard": i, "slots": 4096 / t.shards, "liveKeys": 0, "tombstones": 0, "expired": 0, "bytes": 0, "depth": 1, "leaves": 1, "storedBytes": 0,
			"walTailRows": 0, "walTailBytes": 0, "splitting": false, "bulkPending": false, "lease": map[string]any{"held": false}, "hotKeys": []any{}, "sampledAt": at,
		}
		if i == 0 {
			sh["liveKeys"], sh["tombstones"], sh["bytes"], sh["storedBytes"] = live, len(t.graves), size, size
		}
		shards = append(shards, sh)
	}
	answer(w, http.StatusOK, map[string]any{
		"tree": name, "mapVersion": 0, "deep": r.URL.Query().Get("deep") == "true", "incomplete": false, "bulkPending": pending, "instance": "00", "sampledAt": at,
		"totals": map[string]any{"liveKeys": live, "tombstones": len(t.graves), "expired": 0, "bytes": size, "shards": t.shards}, "shards": shards,
	})
	return nil
}
