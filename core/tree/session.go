package tree

import (
	"context"
	"errors"
	"fmt"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// BeginBulkLoad opens a session under an id that the caller chose, 1 to 128
// letters, digits, '.', '_' or '-'; created says that this call did. A session of
// that id that was begun before, whatever became of it, is returned as it is.
//
// The tree must be empty, of tombstones too, else it is ErrTreeNotEmpty; a shard
// that cannot be asked fails the call. ErrOperationInProgress if another load is
// under way; a session that has been idle for BulkLoadIdleTtl is aborted in
// favour of this one. Durable on return.
func (t *Tree) BeginBulkLoad(ctx context.Context, operationID string) (state BulkState, created bool, err error) {
	if err := checkOperation(operationID); err != nil {
		return BulkState{}, false, err
	}
	m, err := t.refresh(ctx)
	if err != nil {
		return BulkState{}, false, err
	}
	fresh := &session{Operation: operationID, Status: BulkOpen}
	s, created, err := t.db.loads(m.ID).claim(ctx, current{Session: operationID}, fresh, t.db.opts.BulkLoadIdleTtl,
		func(ctx context.Context) error { return t.vacant(ctx, m.ID) })
	if err != nil {
		return BulkState{}, false, fmt.Errorf("begin bulk load of tree %q: %w", t.name, err)
	}
	return s.state(), created, nil
}

// BulkLoadState describes a session: ErrOperationNotFound if there is none, or
// none any more.
func (t *Tree) BulkLoadState(ctx context.Context, operationID string) (BulkState, error) {
	_, s, err := t.session(ctx, operationID)
	if err != nil {
		return BulkState{}, err
	}
	return s.state(), nil
}

// session reads a session of the tree.
func (t *Tree) session(ctx context.Context, operationID string) (*meta, *session, error) {
	if err := checkOperation(operationID); err != nil {
		return nil, nil, err
	}
	m, err := t.meta(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := t.db.loads(m.ID).session(ctx, operationID)
	if !errors.Is(err, ErrOperationNotFound) {
		return m, s, err
	}
	// Perhaps the tree is another by now.
	now, rerr := t.refresh(ctx)
	if rerr != nil || now.ID == m.ID {
		return nil, nil, errors.Join(rerr, err)
	}
	s, err = t.db.loads(now.ID).session(ctx, operationID)
	return now, s, err
}

// CommitBulkLoad ends a session and counts the live keys of the tree. It may be
// repeated, and counts anew. ErrOperationMismatch for a session that was
// aborted, or that has begun a chunk which is not acknowledged.
func (t *Tree) CommitBulkLoad(ctx context.Context, operationID string) (BulkState, error) {
	s, err := t.endSession(ctx, operationID, BulkCommitted)
	if err != nil {
		return BulkState{}, err
	}
	c, err := t.Count(ctx, Bounds{}, ReadOptions{})
	if err != nil {
		return BulkState{}, fmt.Errorf("count after the load: %w", err)
	}
	state := s.state()
	state.TotalLiveKeys = c.Total
	return state, nil
}

// AbortBulkLoad ends a session. What was loaded stays: the state says how much,
// and whether part of one more chunk may be there. It may be repeated;
// ErrOperationMismatch for a session that was committed.
func (t *Tree) AbortBulkLoad(ctx context.Context, operationID string) (BulkState, error) {
	s, err := t.endSession(ctx, operationID, BulkAborted)
	if err != nil {
		return BulkState{}, err
	}
	return s.state(), nil
}

func (t *Tree) endSession(ctx context.Context, operationID string, as BulkStatus) (*session, error) {
	m, _, err := t.session(ctx, operationID)
	if err != nil {
		return nil, err
	}
	return t.db.loads(m.ID).update(ctx, operationID, func(s *session) error {
		switch {
		case s.Status == as:
			return errUnchanged
		case s.Status != BulkOpen:
			return s.ended()
		case as == BulkCommitted && s.Pending != nil:
			return &BulkMismatchError{OperationID: s.Operation, Status: s.Status, Chunk: s.NextChunk, Unacknowledged: true}
		}
		s.Status = as
		return nil
	})
}

// ended reports that the session has ended another way than is needed.
func (s *session) ended() error {
	return &BulkMismatchError{OperationID: s.Operation, Status: s.Status, Chunk: -1}
}

// AppendBulkLoad loads a chunk. Chunks are numbered from 0; their keys ascend
// strictly, within each and from one to the next. When it returns nil all of the
// chunk is durable and seen by every reader.
//
// The last chunk sent again, unchanged, is acknowledged as it was. A chunk whose
// acknowledgement did not come is sent again, unchanged, to the same effect as
// once: its entries have the version of the first attempt, and what was written
// since by other ways stays. With other contents it is ErrOperationMismatch. The
// time at which an entry expires is not part of the contents.
//
// A *SequenceError, *OrderError, *LimitError or *ArgumentError, or an error of
// the source, leaves everything as it was. After any other the chunk may be there
// in part.
func (t *Tree) AppendBulkLoad(ctx context.Context, operationID string, chunk int64, src BulkSource, o BulkOptions) (BulkAck, error) {
	m, s, err := t.session(ctx, operationID)
	if err != nil {
		return BulkAck{}, err
	}
	if err := s.expects(chunk); err != nil {
		return BulkAck{}, err
	}
	release, err := t.db.bulkPlace(ctx)
	if err != nil {
		return BulkAck{}, err
	}
	defer release()
	previous := s.LastKey
	if chunk < s.NextChunk {
		previous = "" // compared by its digest
	}
	in := t.bulkReader(m, src, o)
	c, err := t.readChunk(ctx, in, chunk, previous)
	if err != nil {
		return BulkAck{}, err
	}
	if chunk == s.NextChunk && s.Pending == nil {
		if err := in.admits(ctx, t, c.buf); err != nil {
			return BulkAck{}, err
		}
	}
	a := appending{t: t, treeID: m.ID, operation: operationID, index: chunk, chunk: c}
	if s, err = a.begin(ctx, s); err != nil {
		return BulkAck{}, err
	}
	if ack := s.acknowledged(chunk); ack != nil {
		return *ack, nil
	}
	if err := a.apply(ctx, s); err != nil {
		return BulkAck{}, fmt.Errorf("load chunk %d of %q: %w", chunk, operationID, err)
	}
	return a.acknowledge(ctx)
}

// expects refuses a chunk that is not the next one, nor the last one again.
func (s *session) expects(chunk int64) error {
	switch {
	case s.Status == BulkAborted:
		return s.ended()
	case chunk == s.NextChunk-1 && chunk >= 0:
		return nil
	case s.Status != BulkOpen:
		return s.ended()
	case chunk != s.NextChunk:
		return &SequenceError{Index: chunk, Expected: s.NextChunk}
	}
	return nil
}

// acknowledged returns the acknowledgement of a chunk, nil if it is not the last
// one that has one.
func (s *session) acknowledged(chunk int64) *BulkAck {
	if s.Last == nil || s.Last.Chunk != chunk {
		return nil
	}
	ack := s.Last.ack()
	return &ack
}

// matches refuses a chunk that was begun, or acknowledged, with other contents.
func (s *session) matches(index int64, digest string) error {
	for _, c := range []*chunkRow{s.Last, s.Pending} {
		if c != nil && c.Chunk == index && c.Digest != digest {
			return &BulkMismatchError{OperationID: s.Operation, Status: s.Status, Chunk: index}
		}
	}
	return nil
}

// appending is one chunk on its way.
type appending struct {
	t         *Tree
	treeID    string
	operation string
	index     int64
	chunk     *chunk
}

// begin writes into the session what is about to be done, before any shard is
// touched, unless an attempt did so before. It returns the session as it stands.
func (a *appending) begin(ctx context.Context, s *session) (*session, error) {
	if err := s.matches(a.index, a.chunk.digest); err != nil {
		return nil, err
	}
	if s.acknowledged(a.index) != nil || s.Pending != nil {
		return s, nil
	}
	version, err := a.t.bulkVersion(ctx, a.treeID)
	if err != nil {
		return nil, err
	}
	return a.update(ctx, func(s *session) error {
		if err := s.expects(a.index); err != nil {
			return err
		}
		if err := s.matches(a.index, a.chunk.digest); err != nil {
			return err
		}
		if s.acknowledged(a.index) != nil || s.Pending != nil {
			return errUnchanged // another attempt was quicker
		}
		s.Pending = a.row(version)
		return nil
	})
}

func (a *appending) row(v clock.Version) *chunkRow {
	return &chunkRow{
		Chunk: a.index, Version: v.String(), Digest: a.chunk.digest,
		Accepted: int64(a.chunk.buf.Len()), OverLimit: a.chunk.over, First: limitRowOf(a.chunk.first),
		FirstKey: a.chunk.buf.First(), LastKey: a.chunk.buf.Last(),
	}
}

func (a *appending) update(ctx context.Context, change func(*session) error) (*session, error) {
	return a.t.db.loads(a.treeID).update(ctx, a.operation, change)
}

// apply writes the chunk to the shards, with the version that the session has for
// it.
func (a *appending) apply(ctx context.Context, s *session) error {
	version, err := clock.ParseVersion(s.Pending.Version)
	if err != nil {
		return store.Corruptf("%s: %v", sessionWhere(a.treeID, a.operation), err)
	}
	return a.t.applyBuffer(ctx, a.treeID, version, a.chunk.buf)
}

// acknowledge makes the pending chunk the last one.
func (a *appending) acknowledge(ctx context.Context) (BulkAck, error) {
	s, err := a.update(ctx, func(s *session) error {
		if err := s.matches(a.index, a.chunk.digest); err != nil {
			return err
		}
		if s.acknowledged(a.index) != nil {
			return errUnchanged // another attempt was quicker
		}
		if s.Status != BulkOpen {
			return s.ended()
		}
		if s.Pending == nil || s.Pending.Chunk != a.index {
			return &SequenceError{Index: a.index, Expected: s.NextChunk}
		}
		s.Last, s.Pending = s.Pending, nil
		s.NextChunk++
		s.Accepted += s.Last.Accepted
		s.OverLimit += s.Last.OverLimit
		if s.Last.LastKey != "" {
			s.LastKey = s.Last.LastKey
		}
		return nil
	})
	if err != nil {
		return BulkAck{}, err
	}
	if ack := s.acknowledged(a.index); ack != nil {
		return *ack, nil
	}
	return BulkAck{}, &SequenceError{Index: a.index, Expected: s.NextChunk}
}

// applyBuffer writes all of a buffer to the shards.
func (t *Tree) applyBuffer(ctx context.Context, treeID string, v clock.Version, buf *bulk.Buffer) error {
	b, err := t.bulkRun(ctx, treeID, v, buf)
	if err != nil {
		return err
	}
	return b.apply(ctx)
}

// bulkRun divides a buffer by shards. A key that comes twice is a
// *bulk.DuplicateError.
func (t *Tree) bulkRun(ctx context.Context, treeID string, v clock.Version, buf *bulk.Buffer) (*bulkRun, error) {
	m, err := t.meta(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := sorted(m, buf)
	if err != nil {
		return nil, err
	}
	return &bulkRun{t: t, treeID: treeID, version: v, slices: parts}, nil
}
