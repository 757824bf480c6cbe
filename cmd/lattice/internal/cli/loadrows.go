package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// stopped ends a load for a reason of the input or of its session, which is no
// failure of the service.
type stopped struct{ err error }

func stop(format string, args ...any) error { return &stopped{fmt.Errorf(format, args...)} }

// Error implements error.
func (s *stopped) Error() string { return s.err.Error() }

// Unwrap returns the cause.
func (s *stopped) Unwrap() error { return s.err }

// feed makes entries of rows.
type feed struct {
	src     rows.Source
	rejects *rejects
	ttl     time.Duration
	skipBad bool
	// ascending demands that keys ascend.
	ascending bool
	now       func() time.Time

	read, rejected atomic.Int64
	// lines are the places in the input of what was yielded; they are looked at
	// when that is over.
	lines lineNumbers
	// ended says that all rows were yielded, likewise.
	ended bool
}

// pulled is what the source said.
type pulled struct {
	row rows.Row
	err error
}

// entries yields the entries until the input ends, a row is no good, or ctx
// ends, which does not wait for an input that is silent. sent counts them.
func (f *feed) entries(ctx context.Context, sent *atomic.Int64) iter.Seq2[client.BulkEntry, error] {
	return func(yield func(client.BulkEntry, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		last := ""
		for p := range f.pull(ctx) {
			e, err := f.take(p, last)
			if errors.Is(err, errLeftOut) {
				continue
			}
			if err == nil {
				sent.Add(1)
				last = e.Key
				f.lines.add(p.row.Line)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(client.BulkEntry{}, err)
			return
		}
		f.ended = true
	}
}

// pull reads rows in a goroutine of its own, which ends with the input or, once
// the input gives another row, with ctx.
func (f *feed) pull(ctx context.Context) iter.Seq[pulled] {
	out := make(chan pulled)
	go func() {
		defer close(out)
		for {
			row, err := f.src.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case out <- pulled{row, err}:
			case <-ctx.Done():
				return
			}
			if fault := (*rows.Fault)(nil); err != nil && !errors.As(err, &fault) {
				return
			}
		}
	}()
	return func(yield func(pulled) bool) {
		for {
			select {
			case p, ok := <-out:
				if !ok || !yield(p) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// errLeftOut: the row was rejected, and the load goes on.
var errLeftOut = errors.New("left out")

func (f *feed) take(p pulled, last string) (client.BulkEntry, error) {
	fault := (*rows.Fault)(nil)
	if p.err != nil && !errors.As(p.err, &fault) {
		return client.BulkEntry{}, p.err
	}
	f.read.Add(1)
	if p.err == nil {
		e, err := f.entry(&p.row)
		switch {
		case err != nil:
			fault = &rows.Fault{Line: p.row.Line, Key: p.row.Op.Key, Reason: err.Error(), Raw: p.row.Raw}
		case f.ascending && e.Key <= last:
			return e, stop("line %d: key %s does not sort after %s, the one before; rows must ascend bytewise, each key once",
				p.row.Line, show(e.Key), show(last))
		default:
			return e, nil
		}
	}
	if !f.skipBad {
		return client.BulkEntry{}, stop("%w; --skip-bad leaves such rows out", fault)
	}
	f.rejected.Add(1)
	f.rejects.add(fault)
	return client.BulkEntry{}, errLeftOut
}

// entry makes an entry of a row, with the media type that the service would
// give it.
func (f *feed) entry(r *rows.Row) (client.BulkEntry, error) {
	e := client.BulkEntry{Key: r.Op.Key, Value: r.Op.Value, ContentType: r.ContentType, ExpiresAt: r.ExpiresAt}
	kind := ""
	switch {
	case r.Op.JSON != nil:
		var b bytes.Buffer
		if err := json.Compact(&b, r.Op.JSON); err != nil {
			return e, fmt.Errorf("malformed JSON: %w", err)
		}
		e.Value, kind = b.Bytes(), "application/json"
	case r.Op.Text:
		kind = "text/plain; charset=utf-8"
	}
	if e.ContentType == "" {
		e.ContentType = kind
	}
	if ttl := r.Op.TTL; ttl > 0 {
		e.ExpiresAt = f.now().Add(ttl)
	} else if f.ttl > 0 && e.ExpiresAt.IsZero() {
		e.ExpiresAt = f.now().Add(f.ttl)
	}
	return e, nil
}

// sending cuts entries into the chunks of a session. Each begins behind the last
// key acknowledged and ends by the same rule, so that a chunk of which nobody
// knows whether it arrived comes out the same in another run.
type sending struct {
	t     *client.Tree
	state client.BulkState
	o     client.BulkOptions
	sum   *loaded
	chunk client.ChunkWriter
	cut   chunkCut
}

// sendAll sends everything.
func (s *sending) sendAll(ctx context.Context, entries iter.Seq2[client.BulkEntry, error]) error {
	for entry, err := range entries {
		if err == nil {
			err = s.add(ctx, &entry)
		}
		if err != nil {
			return err
		}
	}
	return s.finish(ctx)
}

// chunkCut ends a chunk: at so many entries, or bytes.
type chunkCut struct{ entries, bytes int }

func (c chunkCut) full(w *client.ChunkWriter) bool {
	return w.Entries() >= c.entries || w.Len() >= c.bytes
}

// add takes the next entry. What is acknowledged already is passed over.
func (s *sending) add(ctx context.Context, e *client.BulkEntry) error {
	if s.state.LastKey != "" && e.Key <= s.state.LastKey && s.chunk.Entries() == 0 {
		s.sum.Skipped++
		return nil
	}
	if err := s.checkSkipped(); err != nil {
		return err
	}
	if err := s.chunk.Append(e); err != nil {
		return err
	}
	if !s.cut.full(&s.chunk) {
		return nil
	}
	return s.send(ctx)
}

// checkSkipped refuses another input than the one the session was begun with,
// as far as its number of rows tells.
func (s *sending) checkSkipped() error {
	if s.sum.Skipped == s.state.Accepted {
		return nil
	}
	return stop("session %s has loaded %s up to key %s, of which the input has %s: it is not the same",
		s.state.OperationID, entryCount(s.state.Accepted), show(s.state.LastKey), entryCount(s.sum.Skipped))
}

func (s *sending) send(ctx context.Context) error {
	ack, err := s.t.AppendBulkLoad(ctx, s.state.OperationID, s.state.NextChunk, s.chunk.Bytes(), s.o)
	if errors.Is(err, client.ErrOperationMismatch) && s.state.Pending {
		return fmt.Errorf("chunk %d was begun by an earlier run; use the same input, --chunk-entries and --chunk-bytes: %w", s.state.NextChunk, err)
	}
	if err != nil {
		return err
	}
	s.chunk.Reset()
	s.state.NextChunk, s.state.Pending = ack.NextChunk, false
	s.sum.Accepted += ack.Accepted
	s.sum.OverLimit += ack.OverLimit
	if s.sum.FirstOverLimit == nil {
		s.sum.FirstOverLimit = ack.FirstOverLimit
	}
	return nil
}

// finish sends what is left.
func (s *sending) finish(ctx context.Context) error {
	if err := s.checkSkipped(); err != nil {
		return err
	}
	if s.chunk.Entries() == 0 {
		return nil
	}
	return s.send(ctx)
}
