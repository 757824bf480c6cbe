package tree

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/record"
)

// BulkStream loads entries in strictly ascending order of keys, of any number, on
// top of what the tree holds: what a key has is replaced, unless it is written
// after its portion of the stream was begun. Memory is bounded by
// BulkLoadBufferBytes.
//
// The stream takes effect portion by portion. After an error the result says how
// many entries, from the first on, are durable: an *OrderError, *LimitError or
// *ArgumentError, or an error of the source, concerns the portion at hand, of
// which nothing is applied; after another error the portion may be there in part,
// and only the portions before are counted. ErrOperationInProgress if another
// load of the tree is under way.
func (t *Tree) BulkStream(ctx context.Context, src BulkSource, o BulkOptions) (BulkResult, error) {
	m, err := t.refresh(ctx)
	if err != nil {
		return BulkResult{}, err
	}
	place, err := t.db.bulkPlace(ctx)
	if err != nil {
		return BulkResult{}, err
	}
	defer place()
	h, err := t.hold(ctx, m.ID, func(context.Context) error { return nil })
	if err != nil {
		return BulkResult{}, err
	}
	defer h.release()
	s := stream{t: t, treeID: m.ID, in: t.bulkReader(m, src, o), buf: bulk.NewBuffer(m.opts.BulkLoadBufferBytes / portionShare)}
	if err := s.load(h.ctx); err != nil {
		return s.res, h.explain(err)
	}
	c, err := t.Count(ctx, Bounds{}, ReadOptions{})
	if err != nil {
		return s.res, fmt.Errorf("count after the load: %w", err)
	}
	s.res.TotalLiveKeys = c.Total
	return s.res, nil
}

// portionShare is the share of BulkLoadBufferBytes that a portion of a stream has.
const portionShare = 4

// stream is a load of ascending entries.
type stream struct {
	t      *Tree
	treeID string
	in     *bulkReader
	buf    *bulk.Buffer
	// over and first are those of the entries in the buffer and before.
	over  int64
	first *LimitError
	res   BulkResult
}

func (s *stream) load(ctx context.Context) error {
	var e record.Entry
	for {
		index, err := s.in.read(ctx, &e)
		if errors.Is(err, io.EOF) {
			return s.flush(ctx)
		}
		if err != nil {
			return err
		}
		// The buffer is empty at the beginning alone: the entry that fills it goes
		// into the next portion.
		if last := s.buf.Last(); last != "" && e.Key <= last {
			return s.t.orderError(-1, index, e.Key, last)
		}
		if !s.buf.Fits(len(e.Key), len(e.Value)) {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		s.buf.Add(&e, index)
		s.over, s.first = s.in.over, s.in.first
	}
}

// flush applies what is in the buffer.
func (s *stream) flush(ctx context.Context) error {
	if s.buf.Len() == 0 {
		return nil
	}
	if err := s.in.admits(ctx, s.t, s.buf); err != nil {
		return err
	}
	version, err := s.t.bulkVersion(ctx, s.treeID)
	if err != nil {
		return err
	}
	if err := s.t.applyBuffer(ctx, s.treeID, version, s.buf); err != nil {
		return err
	}
	s.res.Accepted += int64(s.buf.Len())
	s.res.OverLimit, s.res.FirstOverLimit = s.over, s.first
	s.buf.Reset()
	return nil
}
