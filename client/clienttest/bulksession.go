package clienttest

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// session is a bulk load session.
type session struct {
	id, status       string
	next             int64
	accepted, over   int
	last             string
	started, updated time.Time
	// digest and ack are of the chunk before next.
	digest [sha256.Size]byte
	ack    map[string]any
}

func (t *tree) openLoad() *session {
	for _, l := range t.loads {
		if l.status == "open" {
			return l
		}
	}
	return nil
}

// bulkSession serves what lies under bulk-loads.
func (s *Server) bulkSession(w http.ResponseWriter, r *http.Request, name, rest string) *refusal {
	id, step, _ := strings.Cut(rest, "/")
	if id == "" && r.Method == http.MethodGet {
		return s.listLoads(w, r, name)
	}
	t, f := s.open(name, r.Method == http.MethodPut && step == "")
	if f != nil {
		return f
	}
	if r.Method == http.MethodPut && step == "" {
		return s.beginLoad(w, t, id)
	}
	l := t.loads[id]
	if l == nil {
		return refuse(404, "operation_not_found", "no bulk load %q", id)
	}
	index, isChunk := strings.CutPrefix(step, "chunks/")
	switch {
	case r.Method == http.MethodPut && isChunk:
		return s.appendChunk(w, r, t, l, index)
	case r.Method == http.MethodPost && step == "commit":
		return s.endLoad(w, t, l, "committed")
	case r.Method == http.MethodDelete && step == "":
		return s.endLoad(w, t, l, "aborted")
	case r.Method == http.MethodGet && step == "":
		answer(w, http.StatusOK, l.state())
		return nil
	}
	return refuse(404, "route_not_found", "no such resource")
}

// listLoads lists the sessions, the one changed last first.
func (s *Server) listLoads(w http.ResponseWriter, r *http.Request, name string) *refusal {
	t, f := s.open(name, false)
	if f != nil {
		return f
	}
	limit := 100
	if given := r.URL.Query().Get("limit"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 || n > 1000 {
			return refuse(400, "invalid_argument", "limit: must be 1 to 1000")
		}
		limit = n
	}
	all := slices.SortedFunc(maps.Values(t.loads), func(x, y *session) int {
		return cmp.Or(y.updated.Compare(x.updated), strings.Compare(x.id, y.id))
	})
	states := []map[string]any{}
	for _, l := range all[:min(limit, len(all))] {
		states = append(states, l.state())
	}
	answer(w, http.StatusOK, map[string]any{"bulkLoads": states})
	return nil
}

func (s *Server) beginLoad(w http.ResponseWriter, t *tree, id string) *refusal {
	if l := t.loads[id]; l != nil {
		answer(w, http.StatusOK, l.state())
		return nil
	}
	if open := t.openLoad(); open != nil {
		return refuse(409, "operation_in_progress", "the bulk load session %s is open", open.id).with("operationId", open.id)
	}
	if !t.empty() {
		return refuse(409, "tree_not_empty", "the tree holds keys or tombstones")
	}
	l := &session{id: id, status: "open", started: s.now(), updated: s.now()}
	if t.loads == nil {
		t.loads = map[string]*session{}
	}
	t.loads[id] = l
	answer(w, http.StatusCreated, l.state())
	return nil
}

func (s *Server) appendChunk(w http.ResponseWriter, r *http.Request, t *tree, l *session, text string) *refusal {
	index, err := strconv.ParseInt(text, 10, 64)
	if err != nil || index < 0 {
		return refuse(400, "invalid_argument", "index: not a number")
	}
	raw, f := body(r, MaxChunkBytes, "request_too_large")
	if f != nil {
		return f
	}
	entries, f := s.bulkEntries(r, raw)
	if f != nil {
		return f
	}
	sum := sha256.Sum256(raw)
	replay := index == l.next-1 && index >= 0
	switch {
	case l.status == "aborted" || l.status != "open" && !replay:
		return refuse(409, "operation_mismatch", "bulk load %s is %s", l.id, l.status).with("operationId", l.id)
	case replay && sum == l.digest:
		answer(w, http.StatusOK, l.ack)
		return nil
	case replay:
		return refuse(409, "operation_mismatch", "chunk %d of bulk load %s was begun with other contents", index, l.id).with("operationId", l.id).with("chunkIndex", index)
	case index != l.next:
		return refuse(409, "chunk_out_of_sequence", "chunk %d is expected", l.next).with("chunkIndex", index).with("expectedChunkIndex", l.next)
	}
	if _, f := checkAscending(entries, l.last, 0); f != nil {
		return f.with("chunkIndex", index)
	}
	ack, f := accept(r, entries)
	if f != nil {
		return f
	}
	s.store(t, entries)
	over, _ := ack["overLimitCount"].(int)
	l.next, l.accepted, l.over, l.updated, l.digest = index+1, l.accepted+len(entries), l.over+over, s.now(), sum
	if len(entries) > 0 {
		l.last = entries[len(entries)-1].key
	}
	ack["chunkIndex"], ack["nextChunkIndex"] = index, l.next
	l.ack = ack
	answer(w, http.StatusOK, ack)
	return nil
}

func (s *Server) endLoad(w http.ResponseWriter, t *tree, l *session, status string) *refusal {
	if l.status != "open" && l.status != status {
		return refuse(409, "operation_mismatch", "bulk load %s is %s", l.id, l.status).with("operationId", l.id)
	}
	if l.status == "open" {
		l.status, l.updated = status, s.now()
	}
	out := l.state()
	if status == "committed" {
		out["totalLiveKeys"] = len(s.keys(t, bounds{}))
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (l *session) state() map[string]any {
	out := map[string]any{
		"operationId": l.id, "status": l.status, "nextChunkIndex": l.next, "acceptedEntryCount": l.accepted, "pending": false,
		"startedAt": l.started.UTC().Format(time.RFC3339Nano), "updatedAt": l.updated.UTC().Format(time.RFC3339Nano),
	}
	if l.over > 0 {
		out["overLimitCount"] = l.over
	}
	if l.last != "" {
		out["lastKey"] = l.last
	}
	return out
}
