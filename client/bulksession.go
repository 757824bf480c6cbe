package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// BulkFailure is what a refused bulk load says of the place at fault.
type BulkFailure struct {
	// OperationID is the session that is in the way, after
	// ErrOperationInProgress, or that does not fit, after ErrOperationMismatch;
	// empty if it is none.
	OperationID string
	// PreviousKey is the key before Error.Key, after ErrBulkLoadOrder. It is
	// the same for a key that comes twice.
	PreviousKey string
	// ChunkIndex is the chunk that was sent, ExpectedChunkIndex the one that
	// must come next, after ErrChunkOutOfSequence; -1 if not told.
	ChunkIndex, ExpectedChunkIndex int64
	// EntryIndex is the place of the entry in the request, from 0; -1 if not
	// told.
	EntryIndex int64
	// Line is the line of the body that is malformed, from 1; 0 if none is.
	Line int64
	// Accepted is how many entries of a stream are loaded all the same.
	Accepted int64
}

// bulkProblem is the part of a problem that only bulk loads have.
type bulkProblem struct {
	OperationID        string `json:"operationId"`
	PreviousKey        string `json:"previousKey"`
	ChunkIndex         *int64 `json:"chunkIndex"`
	ExpectedChunkIndex *int64 `json:"expectedChunkIndex"`
	EntryIndex         *int64 `json:"entryIndex"`
	Line               int64  `json:"line"`
	Accepted           *int64 `json:"acceptedEntryCount"`
}

func (p bulkProblem) failure() *BulkFailure {
	if p == (bulkProblem{}) {
		return nil
	}
	or := func(n *int64, absent int64) int64 {
		if n == nil {
			return absent
		}
		return *n
	}
	return &BulkFailure{
		OperationID: p.OperationID,
		PreviousKey: p.PreviousKey, ChunkIndex: or(p.ChunkIndex, -1), ExpectedChunkIndex: or(p.ExpectedChunkIndex, -1),
		EntryIndex: or(p.EntryIndex, -1), Line: p.Line, Accepted: or(p.Accepted, 0),
	}
}

// BulkStatus is the state of a bulk load session.
type BulkStatus string

// The states of a session.
const (
	BulkOpen      BulkStatus = "open"
	BulkCommitted BulkStatus = "committed"
	BulkAborted   BulkStatus = "aborted"
)

// BulkState describes a bulk load session.
type BulkState struct {
	OperationID string     `json:"operationId"`
	Status      BulkStatus `json:"status"`
	// NextChunk is the index expected next; all before are durable.
	NextChunk int64 `json:"nextChunkIndex"`
	// Accepted and OverLimit count the entries of the chunks before NextChunk.
	Accepted  int64 `json:"acceptedEntryCount"`
	OverLimit int64 `json:"overLimitCount,omitempty"`
	// LastKey is the greatest key of these chunks, empty if there are none.
	LastKey string `json:"lastKey,omitempty"`
	// Pending says that chunk NextChunk was begun and is not acknowledged: the
	// same chunk must be sent again.
	Pending bool      `json:"pending"`
	Started time.Time `json:"startedAt"`
	Updated time.Time `json:"updatedAt"`
	// TotalLiveKeys is the number of live keys of the tree, counted by
	// CommitBulkLoad; 0 from every other call.
	TotalLiveKeys int64 `json:"totalLiveKeys,omitempty"`
}

// BulkAck acknowledges a chunk: all of it is durable.
type BulkAck struct {
	Chunk     int64 `json:"chunkIndex"`
	NextChunk int64 `json:"nextChunkIndex"`
	// Accepted is the number of entries of the chunk.
	Accepted int64 `json:"acceptedEntryCount"`
	// OverLimit is how many of them exceed MaxKeyLength or MaxValueSizeBytes;
	// FirstOverLimit is the first one, nil if there is none.
	OverLimit      int64      `json:"overLimitCount"`
	FirstOverLimit *OverLimit `json:"firstOverLimit"`
}

// loadCall starts a request for a session.
func (t *Tree) loadCall(method, operationID, rest string) (*call, error) {
	if operationID == "" || operationID == "." || operationID == ".." {
		return nil, fmt.Errorf("%w: %q cannot be an operation id", ErrInvalidRequest, operationID)
	}
	return t.call(method, "/bulk-loads/"+url.PathEscape(operationID)+rest, repeatAlways)
}

// BeginBulkLoad opens a session, for which the tree must be empty, and reports
// whether it is new. The caller chooses the operation id: 1 to 128 of A-Z a-z
// 0-9 . _ -. Beginning the same operation again is no error: the state says
// where to go on, or how it ended. While another one is open it is
// ErrOperationInProgress. After a repetition that followed a lost reply it
// reports false even if this call opened the session.
func (t *Tree) BeginBulkLoad(ctx context.Context, operationID string) (BulkState, bool, error) {
	q, err := t.loadCall(http.MethodPut, operationID, "")
	if err != nil {
		return BulkState{}, false, err
	}
	var out BulkState
	created := false
	err = t.c.do(ctx, q, func(resp *http.Response) error {
		created = resp.StatusCode == http.StatusCreated
		return t.c.decodeState(resp, operationID, &out)
	})
	return out, created, err
}

// AppendBulkLoad sends a chunk, as a ChunkWriter makes it: its keys ascend and
// follow those of the chunks before. It returns when all of it is durable. The
// chunk acknowledged last may be sent again and changes nothing; an earlier one
// or one too far ahead is ErrChunkOutOfSequence, with the index expected in
// Error.Bulk. A chunk whose outcome is unknown must be sent again with the same
// bytes; with others it is ErrOperationMismatch. Calls of one session must not
// overlap. body is not changed and not kept.
func (t *Tree) AppendBulkLoad(ctx context.Context, operationID string, chunk int64, body []byte, o BulkOptions) (BulkAck, error) {
	if chunk < 0 {
		return BulkAck{}, fmt.Errorf("%w: the chunk index %d is negative", ErrInvalidRequest, chunk)
	}
	q, err := t.loadCall(http.MethodPut, operationID, "/chunks/"+strconv.FormatInt(chunk, 10))
	if err != nil {
		return BulkAck{}, err
	}
	o.apply(q)
	q.setBody(body, ndjsonType)
	var out BulkAck
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return BulkAck{}, err
	}
	if out.Chunk != chunk || out.NextChunk != chunk+1 {
		return BulkAck{}, fmt.Errorf("%w: chunk %d was sent, %d acknowledged, and %d is to be next", ErrProtocol, chunk, out.Chunk, out.NextChunk)
	}
	return out, nil
}

// CommitBulkLoad ends a session and returns its state with the number of live
// keys that the tree has now, counted. It can be repeated.
func (t *Tree) CommitBulkLoad(ctx context.Context, operationID string) (BulkState, error) {
	return t.loadState(ctx, http.MethodPost, operationID, "/commit")
}

// BulkLoadState returns where a session stands.
func (t *Tree) BulkLoadState(ctx context.Context, operationID string) (BulkState, error) {
	return t.loadState(ctx, http.MethodGet, operationID, "")
}

// ListBulkLoads returns the sessions of the tree that the service knows, the one
// changed last first, at most limit of them (1 to 1,000; 0 is 100). Sessions that
// ended are forgotten after a time.
func (t *Tree) ListBulkLoads(ctx context.Context, limit int) ([]BulkState, error) {
	if limit < 0 {
		return nil, fmt.Errorf("%w: the limit %d is negative", ErrInvalidRequest, limit)
	}
	q, err := t.call(http.MethodGet, "/bulk-loads", repeatAlways)
	if err != nil {
		return nil, err
	}
	if limit > 0 {
		q.query.Set("limit", strconv.Itoa(limit))
	}
	var out struct {
		BulkLoads []BulkState `json:"bulkLoads"`
	}
	if err := t.c.doJSON(ctx, q, &out); err != nil {
		return nil, err
	}
	return out.BulkLoads, nil
}

// AbortBulkLoad ends a session without taking anything back: what was loaded
// stays, and the state says how much that is. It can be repeated.
func (t *Tree) AbortBulkLoad(ctx context.Context, operationID string) (BulkState, error) {
	return t.loadState(ctx, http.MethodDelete, operationID, "")
}

func (t *Tree) loadState(ctx context.Context, method, operationID, rest string) (BulkState, error) {
	q, err := t.loadCall(method, operationID, rest)
	if err != nil {
		return BulkState{}, err
	}
	var out BulkState
	err = t.c.do(ctx, q, func(resp *http.Response) error { return t.c.decodeState(resp, operationID, &out) })
	return out, err
}

func (c *Client) decodeState(resp *http.Response, operationID string, out *BulkState) error {
	if err := c.decode(resp, out); err != nil {
		return err
	}
	if out.OperationID != operationID || out.Status == "" {
		return fmt.Errorf("%w: the answer is not the state of operation %q", ErrProtocol, operationID)
	}
	return nil
}
