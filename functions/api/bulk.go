package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

const modeStream = "stream"

// loadedBody answers a load in one request.
type loadedBody struct {
	AcceptedEntryCount int64 `json:"acceptedEntryCount"`
	TotalLiveKeys      int64 `json:"totalLiveKeys"`
	overLimitBody
}

// overLimitBody says how many entries an ordinary write would be refused for.
type overLimitBody struct {
	OverLimitCount int64            `json:"overLimitCount,omitempty"`
	FirstOverLimit *limitExceedBody `json:"firstOverLimit,omitempty"`
}

type limitExceedBody struct {
	// What is "key" or "value".
	What  string `json:"what"`
	Key   string `json:"key"`
	Size  int64  `json:"size"`
	Limit int64  `json:"limit"`
}

func newOverLimit(count int64, first *tree.LimitError) overLimitBody {
	body := overLimitBody{OverLimitCount: count}
	if first != nil {
		body.FirstOverLimit = &limitExceedBody{What: first.What, Key: clip(first.Key, maxProblemKeyBytes), Size: first.Size, Limit: first.Limit}
	}
	return body
}

// streamError says how much of a stream is loaded though it failed.
type streamError struct {
	accepted int64
	err      error
}

// Error implements error.
func (e *streamError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *streamError) Unwrap() error { return e.err }

// bulkLoad answers POST …/bulk-load. The entries of a one-shot load are applied
// once all have arrived, in form and with the digest that was sent; those of a
// stream as they come.
func (s *Server) bulkLoad(w http.ResponseWriter, r *request) error {
	load, err := s.parseBulkLoad(w, r)
	if err != nil {
		return err
	}
	ctx, watch, cancel := s.withSteps(r)
	defer cancel()
	load.entries = watch(load.entries)
	ahead := linesPortion
	if load.stream {
		ahead = 0 // its entries take effect as they come
	}
	t, err := s.openToLoad(ctx, r, load.entries, ahead)
	if err != nil {
		return err
	}
	res, err := load.run(ctx, t)
	if err == nil {
		return writeJSON(w, r, http.StatusOK, loadedBody{res.Accepted, res.TotalLiveKeys, newOverLimit(res.OverLimit, res.FirstOverLimit)})
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if load.stream {
		return &streamError{res.Accepted, err}
	}
	return err
}

// loadRequest is a load in one request whose form has been checked.
type loadRequest struct {
	stream  bool
	options tree.BulkOptions
	entries bulkSource
}

func (l *loadRequest) run(ctx context.Context, t loader) (tree.BulkResult, error) {
	if l.stream {
		return t.BulkStream(ctx, l.entries, l.options)
	}
	return t.BulkLoad(ctx, l.entries, l.options)
}

func (s *Server) parseBulkLoad(w http.ResponseWriter, r *request) (load loadRequest, err error) {
	if mode, ok := r.query["mode"]; ok {
		if mode != modeStream {
			return load, argument("mode", "the only mode is %s", modeStream)
		}
		load.stream = true
	}
	if load.options, err = r.bulkOptions(); err != nil {
		return load, err
	}
	lines, err := s.bulkLines(r)
	if err != nil {
		return load, err
	}
	switch {
	case lines:
		load.entries, err = s.streamSource(w, r)
	case load.stream:
		err = argument("Content-Type", "a stream must be %s", ndjsonType)
	default:
		load.entries, err = s.heldSource(w, r, false)
	}
	return load, err
}

func (r *request) bulkOptions() (o tree.BulkOptions, err error) {
	o.EnforceLimits, err = r.flag("enforceLimits")
	return o, err
}

// openToLoad opens the tree of a load. It makes one only for a body that has
// begun well: its first entry, and others up to so many bytes, are in form.
func (s *Server) openToLoad(ctx context.Context, r *request, src bulkSource, ahead int) (loader, error) {
	t, err := s.db.open(ctx, r.tree)
	if !errors.Is(err, tree.ErrTreeNotFound) {
		return t, err
	}
	if err := src.peek(ahead); err != nil {
		return nil, err
	}
	return s.db.openOrCreate(ctx, r.tree)
}

// stepBytes is how much a load is expected to write within RequestTimeout, at
// least. A load that has more at hand is given more time.
const stepBytes = 16 << 20

// stepTime bounds the work on n bytes.
func (s *Server) stepTime(n int64) time.Duration {
	return s.opts.RequestTimeout * time.Duration(1+n/stepBytes)
}

// errStepTooLong ends a load of which one step took too long.
var errStepTooLong = fmt.Errorf("the load did not get on: %w", context.DeadlineExceeded)

// withSteps bounds each step of a load in place of the whole: what is done
// between two entries, for which a buffer may have to be written, and what is
// left when all have arrived. The time for which the service waits for the body
// is bounded by the body's own reader.
func (s *Server) withSteps(r *request) (ctx context.Context, watch func(bulkSource) bulkSource, cancel func()) {
	ctx, stop := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(s.stepTime(s.opts.BulkLoadBufferBytes), func() { stop(errStepTooLong) })
	watch = func(src bulkSource) bulkSource { return &steppedSource{src: src, server: s, timer: timer} }
	return ctx, watch, func() {
		timer.Stop()
		stop(nil)
	}
}

// steppedSource stops the timer of a step while it waits for an entry.
type steppedSource struct {
	src    bulkSource
	server *Server
	timer  *time.Timer
	bytes  int64
}

// Next implements tree.BulkSource.
func (s *steppedSource) Next(ctx context.Context, e *tree.BulkEntry) error {
	s.timer.Stop()
	err := s.src.Next(ctx, e)
	if err == nil {
		s.bytes += int64(len(e.Key) + len(e.Value))
	}
	s.begin(err != nil)
	return err
}

func (s *steppedSource) peek(most int) error {
	s.timer.Stop()
	defer s.begin(false)
	return s.src.peek(most)
}

// begin starts the timer of a step; the last one has everything at hand.
func (s *steppedSource) begin(last bool) {
	n := s.server.opts.BulkLoadBufferBytes
	if last {
		n += s.bytes
	}
	s.timer.Reset(s.server.stepTime(n))
}
