package clienttest

import (
	"net/http"
	"slices"
)

// maxOperationID bounds the name of an atomic batch, in bytes.
const maxOperationID = 256

// named is what became of an atomic batch with an operation id.
type named struct {
	// keys are those of the batch, sorted.
	keys []string
	// results are by key; refused is set instead if conditions did not hold.
	results map[string]result
	refused *refusal
}

// failed is an operation whose condition did not hold.
type failed struct {
	Index   int    `json:"index"`
	Key     string `json:"key"`
	Version string `json:"version,omitempty"`
}

// atomic carries out a batch, all or nothing, once under each name.
func (s *Server) atomic(w http.ResponseWriter, t *tree, ops []op, entries []entry, operation string) *refusal {
	keys, f := distinctKeys(ops)
	if f != nil {
		return f
	}
	if len(operation) > maxOperationID {
		return refuse(400, "invalid_argument", "operationId: over %d bytes", maxOperationID)
	}
	done, ok := t.operations[operation]
	if operation == "" || !ok {
		done = s.allOrNone(t, ops, entries)
		done.keys = keys
	}
	if !slices.Equal(done.keys, keys) {
		return refuse(409, "operation_mismatch", "an atomic batch of other keys has this operation id")
	}
	if operation != "" {
		if t.operations == nil {
			t.operations = map[string]named{}
		}
		t.operations[operation] = done
	}
	if done.refused != nil {
		return done.refused
	}
	results := make([]result, len(ops))
	for i := range ops {
		results[i] = done.results[ops[i].Key]
	}
	answer(w, http.StatusOK, map[string]any{"results": results})
	return nil
}

// distinctKeys returns the keys of a batch in order.
func distinctKeys(ops []op) ([]string, *refusal) {
	keys, seen := make([]string, 0, len(ops)), map[string]bool{}
	for i := range ops {
		if seen[ops[i].Key] {
			return nil, refuse(400, "invalid_argument", "operations[%d].key: occurs twice", i)
		}
		keys, seen[ops[i].Key] = append(keys, ops[i].Key), true
		if f := checkKey(ops[i].Key); f != nil {
			return nil, f
		}
	}
	slices.Sort(keys)
	return keys, nil
}

func (s *Server) allOrNone(t *tree, ops []op, entries []entry) named {
	var all []failed
	for i := range ops {
		old, ok := s.live(t, ops[i].Key)
		if f := (condition{ops[i].IfVersion, ops[i].IfAbsent}).check(old, ok); f != nil {
			all = append(all, failed{i, ops[i].Key, f.current})
		}
	}
	if len(all) > 0 {
		f := refuse(412, "version_mismatch", "%d conditions do not hold; nothing was written", len(all))
		f.key, f.current = all[0].Key, all[0].Version
		return named{refused: f.with("failed", all).with("failedCount", len(all))}
	}
	version, results := s.version(), map[string]result{}
	for i := range ops {
		_, ok := s.live(t, ops[i].Key)
		r := result{Key: ops[i].Key, Status: "ok", Existed: ok}
		if ops[i].Op == "delete" {
			t.remove(r.Key)
		} else {
			entries[i].version, r.Version = version, version
			t.put(r.Key, entries[i])
		}
		results[r.Key] = r
	}
	return named{results: results}
}
