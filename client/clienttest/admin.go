package clienttest

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// admin serves what concerns a tree as a whole.
func (s *Server) admin(w http.ResponseWriter, r *http.Request, name, resource string) *refusal {
	if r.Method == http.MethodPut && resource == "" {
		return s.createTree(w, r, name)
	}
	t := s.trees[name]
	if t == nil {
		return refuse(404, "tree_not_found", "tree %q", name)
	}
	switch r.Method + " " + resource {
	case "GET ":
		answer(w, http.StatusOK, s.info(name, t, true))
	case "PATCH ":
		return s.patchTree(w, r, name, t)
	case "DELETE ", "POST recover":
		return s.setDeleted(w, name, t, r.Method == http.MethodDelete)
	case "POST purge":
		if !t.deleted {
			return refuse(409, "operation_mismatch", "tree %q is not deleted", name)
		}
		delete(s.trees, name)
		w.WriteHeader(http.StatusNoContent)
	case "GET shard-map":
		answer(w, http.StatusOK, t.shardMap())
	case "GET splits":
		answer(w, http.StatusOK, map[string]any{"inFlight": []any{}, "recent": slices.Concat([]map[string]any{}, t.splits)})
	case "POST reshard":
		return t.reshard(w, r)
	case "GET reshard":
		answer(w, http.StatusOK, t.reshardStatus(t.shards))
	default:
		return refuse(404, "route_not_found", "no such resource")
	}
	return nil
}

// reshard divides the tree at once, as a service does with an empty one.
func (t *tree) reshard(w http.ResponseWriter, r *http.Request) *refusal {
	var in settings
	if f := decode(r, &in); f != nil {
		return f
	}
	if in.ShardCount < t.shards || in.ShardCount > 4096 {
		return refuse(400, "invalid_argument", "shardCount: must be %d to 4096", t.shards)
	}
	start, now := t.shards, time.Now().UTC().Format(time.RFC3339)
	for ; t.shards < in.ShardCount; t.shards++ {
		t.splits = append(t.splits, map[string]any{
			"id": strconv.Itoa(t.shards), "source": t.shards - start, "target": t.shards, "phase": "Done", "movedSlots": 1, "entriesForwarded": 0,
			"cause": "reshard", "started": now, "ended": now, "durationsMs": map[string]int{"Drain": 1}, "mapVersion": t.shards,
		})
	}
	answer(w, http.StatusAccepted, t.reshardStatus(start))
	return nil
}

func (t *tree) reshardStatus(start int) map[string]any {
	return map[string]any{"complete": true, "start": start, "current": t.shards, "target": t.shards}
}

func (s *Server) setDeleted(w http.ResponseWriter, name string, t *tree, deleted bool) *refusal {
	if t.deleted == deleted {
		return refuse(409, "tree_deleted", "tree %q: deleted is %v already", name, deleted)
	}
	t.deleted = deleted
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// settings is the body of a create or a patch.
type settings struct {
	ShardCount int                        `json:"shardCount"`
	Options    map[string]json.RawMessage `json:"options"`
}

func (s *Server) createTree(w http.ResponseWriter, r *http.Request, name string) *refusal {
	in := settings{ShardCount: 4}
	if f := decode(r, &in); f != nil {
		return f
	}
	status := http.StatusOK
	t := s.trees[name]
	switch {
	case t == nil:
		t, _ = s.open(name, true)
		t.shards, t.options = in.ShardCount, in.Options
		status = http.StatusCreated
	case t.deleted:
		return refuse(409, "tree_deleted", "tree %q", name)
	case t.shards != in.ShardCount || !reflect.DeepEqual(t.options, in.Options):
		return refuse(409, "tree_exists", "tree %q has other settings", name)
	}
	answer(w, status, s.info(name, t, false))
	return nil
}

func (s *Server) patchTree(w http.ResponseWriter, r *http.Request, name string, t *tree) *refusal {
	var in settings
	if f := decode(r, &in); f != nil {
		return f
	}
	if t.options == nil {
		t.options = map[string]json.RawMessage{}
	}
	for k, v := range in.Options {
		if string(v) == "null" {
			delete(t.options, k)
			continue
		}
		t.options[k] = v
	}
	answer(w, http.StatusOK, s.info(name, t, true))
	return nil
}

func (s *Server) info(name string, t *tree, full bool) map[string]any {
	out := map[string]any{"name": name, "state": "active", "shards": t.shards,
		"mapVersion": 0, "created": t.created.UTC().Format(time.RFC3339)}
	if t.deleted {
		out["state"] = "deleted"
	}
	if full {
		opts := map[string]any{"CursorIdleTtl": map[string]any{"value": "48h", "origin": "default"}}
		for k, v := range t.options {
			opts[k] = map[string]any{"value": v, "origin": "tree"}
		}
		out["options"] = opts
	}
	return out
}

func (s *Server) listTrees(w http.ResponseWriter) *refusal {
	trees := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.trees)) {
		trees = append(trees, s.info(name, s.trees[name], false))
	}
	answer(w, http.StatusOK, map[string]any{"trees": trees})
	return nil
}

func (t *tree) shardMap() map[string]any {
	shards := []map[string]any{}
	for i := range t.shards {
		from, to := i*4096/t.shards, (i+1)*4096/t.shards-1
		shards = append(shards, map[string]any{"shard": i, "slots": [][2]int{{from, to}}})
	}
	return map[string]any{"version": 0, "slots": 4096, "shards": shards}
}
