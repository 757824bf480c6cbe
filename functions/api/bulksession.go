package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gorilla/mux"

	"github.com/latticekv/lattice/core/tree"
)

// stateBody describes a bulk load session.
type stateBody struct {
	OperationID string `json:"operationId"`
	// Status is open, committed or aborted.
	Status             string `json:"status"`
	NextChunkIndex     int64  `json:"nextChunkIndex"`
	AcceptedEntryCount int64  `json:"acceptedEntryCount"`
	OverLimitCount     int64  `json:"overLimitCount,omitempty"`
	LastKey            string `json:"lastKey,omitempty"`
	// Pending says that the next chunk was begun and is not acknowledged.
	Pending   bool   `json:"pending"`
	StartedAt string `json:"startedAt"`
	UpdatedAt string `json:"updatedAt"`
	// TotalLiveKeys is counted by a commit, and left out otherwise.
	TotalLiveKeys *int64 `json:"totalLiveKeys,omitempty"`
}

func newState(s tree.BulkState) stateBody {
	return stateBody{
		OperationID: s.OperationID, Status: string(s.Status), NextChunkIndex: s.NextChunk,
		AcceptedEntryCount: s.Accepted, OverLimitCount: s.OverLimit, LastKey: s.LastKey, Pending: s.Pending,
		StartedAt: formatTime(s.Started), UpdatedAt: formatTime(s.Updated),
	}
}

// ackBody acknowledges a chunk.
type ackBody struct {
	ChunkIndex         int64 `json:"chunkIndex"`
	AcceptedEntryCount int64 `json:"acceptedEntryCount"`
	NextChunkIndex     int64 `json:"nextChunkIndex"`
	overLimitBody
}

const (
	maxOperationID = 128
	operationChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
)

// operationID reads the operation of the path.
func (r *request) operationID() (string, error) {
	id, err := url.PathUnescape(mux.Vars(r.Request)["operationId"])
	if err != nil || id == "" || len(id) > maxOperationID || strings.Trim(id, operationChars) != "" {
		return "", argument("operationId", "must be 1 to %d of A-Z a-z 0-9 . _ -", maxOperationID)
	}
	return id, nil
}

// chunkIndex reads the index of the path.
func (r *request) chunkIndex() (int64, error) {
	text := mux.Vars(r.Request)["index"]
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return 0, argument("index", "must be a whole number")
	}
	return n, nil
}

// beginBulkLoad answers PUT …/bulk-loads/{operationId}.
func (s *Server) beginBulkLoad(w http.ResponseWriter, r *request) error {
	id, err := r.operationID()
	if err != nil {
		return err
	}
	if err := s.noMembers(w, r); err != nil {
		return err
	}
	t, err := s.db.openOrCreate(r.Context(), r.tree)
	if err != nil {
		return err
	}
	state, created, err := t.BeginBulkLoad(r.Context(), id)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return writeJSON(w, r, status, newState(state))
}

// appendBulkLoad answers PUT …/bulk-loads/{operationId}/chunks/{index}. The
// chunk is there as a whole, with the digest that was sent, before any of it
// is looked at.
func (s *Server) appendBulkLoad(w http.ResponseWriter, r *request) error {
	id, err := r.operationID()
	if err != nil {
		return err
	}
	index, err := r.chunkIndex()
	if err != nil {
		return err
	}
	options, err := r.bulkOptions()
	if err != nil {
		return err
	}
	lines, err := s.bulkLines(r)
	if err != nil {
		return err
	}
	entries, err := s.heldSource(w, r, lines)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.stepTime(r.held.Load()))
	defer cancel()
	t, err := s.db.open(ctx, r.tree)
	if err != nil {
		return err
	}
	ack, err := t.AppendBulkLoad(ctx, id, index, entries, options)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, ackBody{ack.Chunk, ack.Accepted, ack.NextChunk, newOverLimit(ack.OverLimit, ack.FirstOverLimit)})
}

// noMembers reads a body that has nothing to say: none, or an object without
// members.
func (s *Server) noMembers(w http.ResponseWriter, r *request) error {
	body, err := s.readBody(w, r, s.jsonLimit())
	if err != nil || len(body) == 0 {
		return err
	}
	return parseJSON(body, func(p *parser) error {
		return p.object("", func(string) (known bool, err error) { return false, nil })
	})
}

// defaultListedLoads is how many sessions a list has if nothing else is asked for.
const defaultListedLoads = 100

// loadsBody lists bulk load sessions.
type loadsBody struct {
	BulkLoads []stateBody `json:"bulkLoads"`
}

// listBulkLoads answers GET …/bulk-loads.
func (s *Server) listBulkLoads(w http.ResponseWriter, r *request) error {
	limit, err := r.limit(defaultListedLoads, tree.MaxListedLoads)
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	states, err := t.ListBulkLoads(r.Context(), limit)
	if err != nil {
		return err
	}
	body := loadsBody{make([]stateBody, len(states))}
	for i, state := range states {
		body.BulkLoads[i] = newState(state)
	}
	return writeJSON(w, r, http.StatusOK, body)
}

// commitBulkLoad answers POST …/bulk-loads/{operationId}/commit.
func (s *Server) commitBulkLoad(w http.ResponseWriter, r *request) error {
	if err := s.noMembers(w, r); err != nil {
		return err
	}
	return s.answerState(w, r, func(t loader, id string) (stateBody, error) {
		state, err := t.CommitBulkLoad(r.Context(), id)
		body := newState(state)
		body.TotalLiveKeys = &state.TotalLiveKeys
		return body, err
	})
}

// getBulkLoad answers GET …/bulk-loads/{operationId}.
func (s *Server) getBulkLoad(w http.ResponseWriter, r *request) error {
	return s.answerState(w, r, func(t loader, id string) (stateBody, error) {
		state, err := t.BulkLoadState(r.Context(), id)
		return newState(state), err
	})
}

// abortBulkLoad answers DELETE …/bulk-loads/{operationId}.
func (s *Server) abortBulkLoad(w http.ResponseWriter, r *request) error {
	return s.answerState(w, r, func(t loader, id string) (stateBody, error) {
		state, err := t.AbortBulkLoad(r.Context(), id)
		return newState(state), err
	})
}

func (s *Server) answerState(w http.ResponseWriter, r *request, ask func(t loader, id string) (stateBody, error)) error {
	id, err := r.operationID()
	if err != nil {
		return err
	}
	t, err := s.db.open(r.Context(), r.tree)
	if err != nil {
		return err
	}
	body, err := ask(t, id)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, body)
}
