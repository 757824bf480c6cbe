package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/bulk"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

const (
	// hardKeyBytes and hardValueBytes bound what a bulk load takes, whatever the
	// options allow to ordinary writes: they are the greatest values of those.
	hardKeyBytes   = 4096
	hardValueBytes = 64 << 20
	// hardTypeBytes bounds a media type.
	hardTypeBytes = 255
)

// bulkReader reads the entries of a load and checks each by itself.
type bulkReader struct {
	src  BulkSource
	m    *meta
	o    BulkOptions
	in   BulkEntry
	next int64
	// over counts the entries beyond the limits of ordinary writes.
	over  int64
	first *LimitError
}

func (t *Tree) bulkReader(m *meta, src BulkSource, o BulkOptions) *bulkReader {
	return &bulkReader{src: src, m: m, o: o}
}

// read sets e to the next entry, which is valid until the next call, and returns
// its index; io.EOF at the end.
func (r *bulkReader) read(ctx context.Context, e *record.Entry) (int64, error) {
	r.in = BulkEntry{}
	if err := r.src.Next(ctx, &r.in); err != nil {
		return r.next, err
	}
	index := r.next
	r.next++
	*e = record.Entry{Key: r.in.Key, Value: r.in.Value, Type: r.in.Type, Expiry: bulkExpiry(r.in.Expiry)}
	return index, r.admit(e, index)
}

// bulkExpiry returns the Unix millisecond of an expiry, rounded up; 0 is never.
func bulkExpiry(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	ms := at.UnixMilli()
	if at.Sub(time.UnixMilli(ms)) > 0 {
		ms++
	}
	return max(ms, 1)
}

func (r *bulkReader) admit(e *record.Entry, index int64) error {
	field := func(name string) string { return fmt.Sprintf("entries[%d].%s", index, name) }
	switch {
	case e.Key == "":
		return &ArgumentError{Field: field("key"), Reason: "must not be empty"}
	case !utf8.ValidString(e.Key):
		return &ArgumentError{Field: field("key"), Reason: "must be valid UTF-8"}
	case len(e.Type) > hardTypeBytes:
		return &ArgumentError{Field: field("type"), Reason: fmt.Sprintf("longer than %d bytes", hardTypeBytes)}
	case len(e.Key) > hardKeyBytes:
		return limitError("key", e.Key, len(e.Key), hardKeyBytes)
	case len(e.Value) > hardValueBytes:
		return limitError("value", e.Key, len(e.Value), hardValueBytes)
	}
	return r.limits(e)
}

// admits refuses what would take the tree beyond an admission cap, where these
// are to be enforced: the entries of buf on top of what the tree holds now.
func (r *bulkReader) admits(ctx context.Context, t *Tree, buf *bulk.Buffer) error {
	c, err := r.caps(ctx, t)
	if err != nil {
		return err
	}
	return c.admit(int64(buf.Len()), buf.Bytes())
}

// caps looks how far the tree is from its admission caps: nil where they are not
// to be enforced, or there are none.
func (r *bulkReader) caps(ctx context.Context, t *Tree) (*caps, error) {
	if o := &r.m.opts; !r.o.EnforceLimits || o.MaxLiveKeys == 0 && o.MaxEstimatedBytes == 0 {
		return nil, nil
	}
	m, err := t.meta(ctx)
	if err != nil {
		return nil, err
	}
	u, err := t.measure(ctx, m, nil)
	if err != nil {
		return nil, fmt.Errorf("compare tree %q with its admission caps: %w", t.name, err)
	}
	return &caps{usage: u, live: int64(r.m.opts.MaxLiveKeys), bytes: r.m.opts.MaxEstimatedBytes}, nil
}

// caps are the admission caps of a tree, 0 for none, and what it holds.
type caps struct {
	usage       *usage
	live, bytes int64
}

// admit refuses entries that go beyond a cap.
func (c *caps) admit(entries, bytes int64) error {
	if c == nil || entries == 0 {
		return nil
	}
	held := c.usage.total
	switch {
	case c.live > 0 && held.live+entries > c.live:
		return &QuotaError{Option: "MaxLiveKeys", Limit: c.live, Current: held.live, Adding: entries, SampledAt: c.usage.at}
	case c.bytes > 0 && held.bytes+bytes > c.bytes:
		return &QuotaError{Option: "MaxEstimatedBytes", Limit: c.bytes, Current: held.bytes, Adding: bytes, SampledAt: c.usage.at}
	}
	return nil
}

// limits refuses, or counts, what an ordinary write would be refused for.
func (r *bulkReader) limits(e *record.Entry) error {
	keys, values := int64(r.m.opts.MaxKeyLength), r.m.opts.MaxValueSizeBytes
	var err *LimitError
	switch {
	case int64(len(e.Key)) > keys:
		err = limitError("key", e.Key, len(e.Key), keys)
	case int64(len(e.Value)) > values:
		err = limitError("value", e.Key, len(e.Value), values)
	default:
		return nil
	}
	if r.o.EnforceLimits {
		return err
	}
	if r.over++; r.first == nil {
		r.first = err
	}
	return nil
}

func limitError(what, key string, size int, limit int64) *LimitError {
	return &LimitError{What: what, Key: strings.Clone(cut(key)), Size: int64(size), Limit: limit}
}

// orderError reports that key does not follow previous.
func (t *Tree) orderError(chunk, index int64, key, previous string) error {
	return &OrderError{Tree: t.name, Chunk: chunk, Index: index, Key: strings.Clone(key), Previous: strings.Clone(previous)}
}

// duplicate translates the finding of package bulk.
func (t *Tree) duplicate(err error) error {
	var twice *bulk.DuplicateError
	if errors.As(err, &twice) {
		return t.orderError(-1, twice.Index, twice.Key, twice.Key)
	}
	return err
}

// chunk is a chunk in memory, checked and in order.
type chunk struct {
	buf    *bulk.Buffer
	digest string
	over   int64
	first  *LimitError
}

// readChunk takes a whole chunk in. Its keys must be above previous, unless that
// is empty.
func (t *Tree) readChunk(ctx context.Context, r *bulkReader, index int64, previous string) (*chunk, error) {
	c := &chunk{buf: bulk.NewBuffer(r.m.opts.MaxBulkChunkBytes)}
	digest := bulk.NewDigest()
	var e record.Entry
	for {
		at, err := r.read(ctx, &e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if last := lastOr(c.buf, previous); last != "" && e.Key <= last {
			return nil, t.orderError(index, at, e.Key, last)
		}
		// One entry is always a chunk: a value is not to be too large for a load
		// that an ordinary write would take.
		if size := c.buf.Bytes() + int64(len(e.Key)+len(e.Value)); c.buf.Len() > 0 && size > r.m.opts.MaxBulkChunkBytes {
			return nil, &LimitError{What: "chunk", Size: size, Limit: r.m.opts.MaxBulkChunkBytes}
		}
		if c.buf.Len() == r.m.opts.MaxBulkChunkEntries {
			most := int64(r.m.opts.MaxBulkChunkEntries)
			return nil, &LimitError{What: limitEntries, Size: most + 1, Limit: most}
		}
		c.buf.Add(&e, at)
		digest.Add(&e)
	}
	c.digest, c.over, c.first = digest.String(), r.over, r.first
	return c, nil
}

// lastOr returns the last key of a buffer, or what came before it.
func lastOr(b *bulk.Buffer, previous string) string {
	if b.Len() > 0 {
		return b.Last()
	}
	return previous
}

// bulkPlace waits until the instance may work on another bulk load, and returns
// what gives the place back. Memory is bounded by the number of places.
func (db *DB) bulkPlace(ctx context.Context) (func(), error) {
	select {
	case db.bulks <- struct{}{}:
		return func() { <-db.bulks }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("too many bulk loads at once: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
}
