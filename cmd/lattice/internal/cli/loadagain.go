package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"

	"github.com/latticekv/lattice/client"
)

// repeated compares the input with a session that is committed, and loads
// nothing: the number of entries, the greatest key and, by its digest, the chunk
// that was acknowledged last.
type repeated struct {
	t     *client.Tree
	state client.BulkState
	o     client.BulkOptions
	cut   chunkCut

	chunk         client.ChunkWriter
	count, chunks int64
	last          string
}

func (r *repeated) compare(ctx context.Context, entries iter.Seq2[client.BulkEntry, error]) error {
	for entry, err := range entries {
		if err == nil {
			err = r.add(&entry)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case r.count != r.state.Accepted:
		return r.differs("the input has %s", entryCount(r.count))
	case r.last != r.state.LastKey:
		return r.differs("the last key of the input is %s, not %s", show(r.last), show(r.state.LastKey))
	case r.chunks != r.state.NextChunk:
		return r.differs("the values cannot be compared, since --chunk-entries and --chunk-bytes cut other chunks than it has")
	case r.chunks == 0:
		return nil
	}
	_, err := r.t.AppendBulkLoad(ctx, r.state.OperationID, r.chunks-1, r.chunk.Bytes(), r.o)
	if errors.Is(err, client.ErrOperationMismatch) {
		return r.differs("its last chunk holds something else; the contents of the input, or --chunk-entries and --chunk-bytes, are others")
	}
	return err
}

// add takes the next entry; of the chunks, only the last one is kept.
func (r *repeated) add(e *client.BulkEntry) error {
	if r.count == r.state.Accepted {
		return r.differs("the input has more rows than it loaded")
	}
	if r.chunk.Entries() == 0 || r.cut.full(&r.chunk) {
		r.chunk.Reset()
		r.chunks++
	}
	r.count, r.last = r.count+1, e.Key
	return r.chunk.Append(e)
}

func (r *repeated) differs(format string, args ...any) error {
	return stop("session %s is already committed with %s, and nothing was loaded now: %s",
		r.state.OperationID, entryCount(r.state.Accepted), fmt.Sprintf(format, args...))
}

// maxBreaks bounds the memory for the places of rows.
const maxBreaks = 1 << 20

// lineNumbers are the lines of the rows that were sent, in the order of sending.
// Rows on consecutive lines take no memory; beyond maxBreaks gaps the rest is not
// known.
type lineNumbers struct {
	breaks []lineBreak
	next   lineBreak
}

// lineBreak says that row index, from 0, is on a line, and the rows after it on
// the lines that follow.
type lineBreak struct{ index, line int64 }

func (l *lineNumbers) add(line int64) {
	if at := (lineBreak{l.next.index, line}); at != l.next && len(l.breaks) < maxBreaks {
		l.breaks = append(l.breaks, at)
	}
	l.next = lineBreak{l.next.index + 1, line + 1}
}

// line returns the line of a row, 0 if it is not known.
func (l *lineNumbers) line(index int64) int64 {
	i := sort.Search(len(l.breaks), func(i int) bool { return l.breaks[i].index > index }) - 1
	if i < 0 || index >= l.next.index || i == maxBreaks-1 {
		return 0
	}
	return l.breaks[i].line + index - l.breaks[i].index
}

// explain names the line of the row that a refusal is about.
func (l *lineNumbers) explain(refused *client.Error, err error) error {
	line := l.line(refused.Bulk.EntryIndex)
	if line == 0 || refused.Key == "" {
		return err
	}
	if refused.Key == refused.Bulk.PreviousKey {
		return fmt.Errorf("line %d: key %s comes twice: %w", line, show(refused.Key), err)
	}
	return fmt.Errorf("line %d: key %s: %w", line, show(refused.Key), err)
}
