package api

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/tree"
)

const (
	streamBuffer = 32 << 10
	// flushInterval bounds how long an entry waits in the buffer while others
	// follow.
	flushInterval = 200 * time.Millisecond
)

// errStalled ends a stream of which one step took longer than RequestTimeout.
var errStalled = fmt.Errorf("stream stalled: %w", context.DeadlineExceeded)

// endLine closes a complete stream. One that breaks off lacks it.
type endLine struct {
	End   bool  `json:"end"`
	Count int64 `json:"count"`
}

// errorLine is the last word of a stream that failed on the way.
type errorLine struct {
	Error Problem `json:"error"`
}

// streamEntries writes the whole range, one entry a line. Nothing is sent
// before the first entry is there, so that most failures still get a status.
func (s *Server) streamEntries(w http.ResponseWriter, r *request, q tree.ScanQuery, f form) error {
	for _, name := range []string{"limit", "pageToken"} {
		if _, ok := r.query[name]; ok {
			return argument(name, "does not go with a stream, which is the whole range")
		}
	}
	ctx, progress, cancel := s.withProgress(r)
	defer cancel()
	t, err := s.db.open(ctx, r.tree)
	if err != nil {
		return err
	}
	out := s.newStream(w, f, q.KeysOnly)
	if r.Method == http.MethodHead {
		out.begin()
		return nil
	}
	n, err := t.Stream(s.reading(ctx, r), q, func(item *tree.Item) error {
		progress()
		if err := s.holdAnswer(r, int64(len(item.Value))); err != nil {
			return err
		}
		// The reader may take its time for each.
		defer r.releaseBody(s)
		return out.entry(item)
	})
	if err == nil {
		return out.finish(endLine{End: true, Count: n})
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	return s.breakOff(r, out, err)
}

// breakOff ends a stream that failed. Once lines are out only an error line can
// tell; the end line stays away.
func (s *Server) breakOff(r *request, out *stream, err error) error {
	if !out.started {
		return err
	}
	p := classify(err)
	p.Tree, p.RequestID = r.tree, out.w.Header().Get("X-Request-Id")
	// The stream is broken already; its own failure adds nothing.
	_ = out.finish(errorLine{p})
	return err
}

// stream writes lines of JSON.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	lines   *entryWriter
	now     func() time.Duration
	flushed time.Duration
	started bool
}

func (s *Server) newStream(w http.ResponseWriter, f form, keysOnly bool) *stream {
	return &stream{
		w: w, control: http.NewResponseController(w), lines: newEntryWriter(w, streamBuffer, f, keysOnly),
		now: func() time.Duration { return s.cfg.Clock.Now().Mono },
	}
}

func (o *stream) begin() {
	if o.started {
		return
	}
	o.started = true
	h := o.w.Header()
	h.Set("Content-Type", ndjsonType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	o.w.WriteHeader(http.StatusOK)
	o.flushed = o.now()
}

func (o *stream) entry(item *tree.Item) error {
	first := !o.started
	o.begin()
	o.lines.entry(item)
	if err := o.lines.WriteByte('\n'); err != nil {
		return fmt.Errorf("write entry: %w", err)
	}
	if first || o.now()-o.flushed >= flushInterval {
		return o.flush()
	}
	return nil
}

func (o *stream) flush() error {
	o.flushed = o.now()
	if err := o.lines.Flush(); err != nil {
		return fmt.Errorf("flush entries: %w", err)
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("flush response: %w", err)
	}
	return nil
}

func (o *stream) finish(line any) error {
	o.begin()
	if _, err := o.lines.Write(append(mustMarshal(line), '\n')); err != nil {
		return fmt.Errorf("write last line: %w", err)
	}
	return o.flush()
}

// withTimeout bounds a handler that serves both pages and streams.
func (s *Server) withTimeout(r *request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), s.opts.RequestTimeout)
}

// withProgress bounds each step of a stream: the context ends when progress is
// not called for RequestTimeout.
func (s *Server) withProgress(r *request) (ctx context.Context, progress func(), cancel func()) {
	ctx, stop := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(s.opts.RequestTimeout, func() { stop(errStalled) })
	progress = func() { timer.Reset(s.opts.RequestTimeout) }
	return ctx, progress, func() {
		timer.Stop()
		stop(nil)
	}
}

// prefersStream reports whether an Accept header ranks newline-delimited JSON
// above JSON. It must be named: a wildcard means JSON.
func prefersStream(lines []string) bool {
	streamQ, jsonQ := 0.0, 0.0
	for _, part := range splitQuoted(strings.Join(lines, ","), ',') {
		mediaType, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := quality(params)
		switch mediaType {
		case ndjsonType:
			streamQ = max(streamQ, q)
		case jsonType:
			jsonQ = max(jsonQ, q)
		}
	}
	return streamQ > 0 && streamQ >= jsonQ
}

func quality(params map[string]string) float64 {
	text, ok := params["q"]
	if !ok {
		return 1
	}
	q, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return q
}
