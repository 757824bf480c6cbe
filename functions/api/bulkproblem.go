package api

import (
	"errors"

	"github.com/latticekv/lattice/core/tree"
)

// bulkProblem is where a bulk load failed.
type bulkProblem struct {
	// OperationID is the session that is in the way, or that does not fit.
	OperationID string `json:"operationId,omitempty"`
	// PreviousKey is the key before Key, equal to it if that came twice.
	PreviousKey string `json:"previousKey,omitempty"`
	// ChunkIndex is the chunk that was sent, ExpectedChunkIndex the one that
	// must come next.
	ChunkIndex         *int64 `json:"chunkIndex,omitempty"`
	ExpectedChunkIndex *int64 `json:"expectedChunkIndex,omitempty"`
	// EntryIndex is the place of the entry in the request, from 0.
	EntryIndex *int64 `json:"entryIndex,omitempty"`
	// Line is the line of the body that is at fault, from 1.
	Line int64 `json:"line,omitempty"`
	// AcceptedEntryCount is how much of a stream is loaded all the same.
	AcceptedEntryCount *int64 `json:"acceptedEntryCount,omitempty"`
}

// classifySession handles what stands in the way of a bulk load, or does not fit
// a session.
func classifySession(err error) (Problem, bool) {
	if b := (*tree.BusyError)(nil); errors.As(err, &b) {
		p := newProblem(CodeOperationInProgress, b.Error())
		p.OperationID = b.OperationID
		if b.RetryAfter > 0 {
			p.RetryAfter = retrySeconds(b.RetryAfter)
		}
		return p, true
	}
	if m := (*tree.BulkMismatchError)(nil); errors.As(err, &m) {
		p := newProblem(CodeOperationMismatch, m.Error())
		p.OperationID = m.OperationID
		if m.Chunk >= 0 {
			p.ChunkIndex = &m.Chunk
		}
		return p, true
	}
	return Problem{}, false
}
