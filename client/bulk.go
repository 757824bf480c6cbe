package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"
)

// BulkOptions qualify a bulk load.
type BulkOptions struct {
	// EnforceLimits refuses entries over MaxKeyLength and MaxValueSizeBytes
	// (ErrKeyTooLong, ErrValueTooLarge) and loads beyond the admission caps
	// (ErrQuotaExceeded). Otherwise they are loaded, and counted.
	EnforceLimits bool
}

func (o BulkOptions) apply(q *call) {
	if o.EnforceLimits {
		q.query.Set("enforceLimits", "true")
	}
}

// OverLimit is the first entry of a load that an ordinary write would be
// refused for.
type OverLimit struct {
	// What is "key" or "value".
	What string `json:"what"`
	// Key may be cut to its beginning.
	Key string `json:"key"`
	// Size and Limit are in bytes.
	Size  int64 `json:"size"`
	Limit int64 `json:"limit"`
}

// BulkResult answers BulkLoad and BulkStream.
type BulkResult struct {
	// Accepted is the number of entries loaded.
	Accepted int64 `json:"acceptedEntryCount"`
	// TotalLiveKeys is the number of live keys of the tree, counted afterwards.
	TotalLiveKeys int64 `json:"totalLiveKeys"`
	// OverLimit is how many entries exceed MaxKeyLength or MaxValueSizeBytes;
	// FirstOverLimit is the first of them, nil if there is none.
	OverLimit      int64      `json:"overLimitCount"`
	FirstOverLimit *OverLimit `json:"firstOverLimit"`
}

// BulkLoad loads entries in any order into an empty tree; one that holds keys,
// or remembers deleted ones, is ErrTreeNotEmpty. The service sorts them, and
// applies nothing before it has them all; a key that comes twice is
// ErrBulkLoadOrder. If the service fails while it applies them the tree may hold
// a part, and must be emptied by dropping it before the load is run again.
//
// The entries are sent as they are yielded; an error that is yielded ends the
// load, is returned, and nothing is loaded. Before the first entry is asked for
// the service is heard, and a refusal that passes is waited for as the
// RetryPolicy says: also another load in one request that is under way
// (ErrOperationInProgress with a RetryAfter). After that the call is not
// repeated. When it returns, entries is no longer running. The body goes without
// a length, which some hosts of the service do not take (ErrLengthRequired, and
// nothing is loaded): a session works everywhere.
func (t *Tree) BulkLoad(ctx context.Context, entries iter.Seq2[BulkEntry, error], o BulkOptions) (BulkResult, error) {
	return t.bulkUpload(ctx, entries, o, "")
}

// BulkStream loads any number of entries in strictly ascending order (bytewise)
// on top of what the tree holds; one out of order is ErrBulkLoadOrder. What was
// loaded before an error stays; Error.Bulk says how much that is. It can be
// run again whole: a load is idempotent. Everything else is as in BulkLoad.
func (t *Tree) BulkStream(ctx context.Context, entries iter.Seq2[BulkEntry, error], o BulkOptions) (BulkResult, error) {
	return t.bulkUpload(ctx, entries, o, "stream")
}

func (t *Tree) bulkUpload(ctx context.Context, entries iter.Seq2[BulkEntry, error], o BulkOptions, mode string) (BulkResult, error) {
	q, err := t.call(http.MethodPost, "/bulk-load", repeatUnsent)
	if err != nil {
		return BulkResult{}, err
	}
	o.apply(q)
	if mode != "" {
		q.query.Set("mode", mode)
	}
	q.header.Set("Content-Type", ndjsonType)
	// Most refusals then come before anything is sent.
	q.header.Set("Expect", "100-continue")
	u := &upload{entries: entries}
	var out BulkResult
	if err := t.c.repeat(ctx, q.repeat, func() error { return t.c.sendUpload(ctx, q, u, &out) }); err != nil {
		return BulkResult{}, err
	}
	if out.Accepted != u.count {
		return out, fmt.Errorf("%w: %d entries were sent and %d accepted", ErrProtocol, u.count, out.Accepted)
	}
	return out, nil
}

const ndjsonType = "application/x-ndjson"

// uploadPortion is how many bytes of lines are handed on at once.
const uploadPortion = 64 << 10

// upload is a body made of an iterator, which can be run once.
type upload struct {
	entries iter.Seq2[BulkEntry, error]
	// begun says that the iterator was asked.
	begun bool
	count int64
	// err is what the iterator failed with.
	err error
}

// uploadBody is the reading end. It tells the writing end of the first read,
// so that an attempt that reaches nobody leaves the iterator alone.
type uploadBody struct {
	*io.PipeReader
	read, gone       sync.Once
	started, stopped chan struct{}
}

// Read implements io.Reader.
func (b *uploadBody) Read(p []byte) (int, error) {
	b.read.Do(func() { close(b.started) })
	return b.PipeReader.Read(p)
}

// Close implements io.Closer.
func (b *uploadBody) Close() error {
	b.gone.Do(func() { close(b.stopped) })
	return b.PipeReader.Close()
}

// sendUpload makes one attempt. The iterator runs in a goroutine that starts
// with the first read, and has ended when sendUpload returns.
func (c *Client) sendUpload(ctx context.Context, q *call, u *upload, out *BulkResult) error {
	req, err := c.request(ctx, q)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	body := &uploadBody{PipeReader: r, started: make(chan struct{}), stopped: make(chan struct{})}
	req.Body, req.ContentLength = body, -1
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-body.started:
			_ = w.CloseWithError(u.run(w))
		case <-body.stopped:
		}
	}()
	resp, err := c.http.Do(req)
	// The transport may go on reading after it has an answer.
	_ = body.Close()
	<-done
	if resp != nil {
		defer drain(resp.Body)
	}
	switch {
	case u.err != nil:
		return fmt.Errorf("read entries: %w", u.err)
	case err != nil:
		return c.unreached(err)
	case resp.StatusCode/100 != 2 && !u.begun:
		return &unsent{readError(resp, time.Now())}
	case resp.StatusCode/100 != 2:
		return readError(resp, time.Now())
	}
	return c.decode(resp, out)
}

// unsent is a refusal that came before anything of the body was sent, so that
// the call can be made again.
type unsent struct{ refusal *Error }

// Error implements error.
func (u *unsent) Error() string { return u.refusal.Error() }

// Unwrap returns the refusal.
func (u *unsent) Unwrap() error { return u.refusal }

// run writes every entry and the end line. A failure that is not the
// iterator's own is that of the reader, which knows it.
func (u *upload) run(w *io.PipeWriter) error {
	u.begun = true
	buf := make([]byte, 0, uploadPortion+4<<10)
	for e, err := range u.entries {
		if err == nil {
			err = checkEntry(&e)
		}
		if err != nil {
			u.err = err
			return err
		}
		buf = appendEntry(buf, &e)
		u.count++
		if len(buf) >= uploadPortion {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(appendEnd(buf, u.count))
	return err
}
