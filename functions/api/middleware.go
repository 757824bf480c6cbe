package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/telemetry"
)

// statusClientGone marks, in logs and metrics only, a request whose client
// went away first.
const statusClientGone = 499

// recorder watches a response on its way out.
type recorder struct {
	http.ResponseWriter
	status int
	sent   int64
	// head drops the body: hosts other than net/http do not.
	head bool
	// req is set once a route is found; err is what the handler failed with.
	req *request
	err error
	// timeout bounds each piece of a long answer; timed says that a deadline
	// stands.
	timeout time.Duration
	timed   bool
}

// longAnswer is the size from which an answer may block on a reader that has
// stopped; it is also the size of the pieces that then get a deadline each.
const longAnswer = 64 << 10

// WriteHeader implements http.ResponseWriter.
func (rec *recorder) WriteHeader(status int) {
	if rec.status != 0 {
		return
	}
	rec.status = status
	rec.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (rec *recorder) Write(b []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if rec.head {
		return len(b), nil
	}
	written := 0
	for {
		piece := b[written:min(len(b), written+longAnswer)]
		if rec.sent+int64(len(piece)) > longAnswer {
			rec.setDeadline(time.Now().Add(rec.timeout))
		}
		n, err := rec.ResponseWriter.Write(piece)
		written += n
		rec.sent += int64(n)
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// setDeadline bounds the next write where the host knows deadlines; another
// host bounds the whole answer by itself.
func (rec *recorder) setDeadline(t time.Time) {
	rec.timed = http.NewResponseController(rec.ResponseWriter).SetWriteDeadline(t) == nil
}

// liftDeadline keeps the deadline from hitting the next request of the
// connection.
func (rec *recorder) liftDeadline() {
	if rec.timed {
		rec.setDeadline(time.Time{})
	}
}

// Unwrap lets http.ResponseController reach flushing and deadlines.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

func noteRequest(w http.ResponseWriter, r *request) {
	if rec, ok := w.(*recorder); ok {
		rec.req = r
	}
}

func noteError(w http.ResponseWriter, err error) {
	if rec, ok := w.(*recorder); ok {
		rec.err = err
	}
}

func headerSent(w http.ResponseWriter) bool {
	rec, ok := w.(*recorder)
	return ok && rec.status != 0
}

// ServeHTTP implements http.Handler: it names the request, recovers from a
// panic, and leaves one log line and one observation behind.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := s.cfg.Clock.Now()
	rec := &recorder{ResponseWriter: w, head: r.Method == http.MethodHead, timeout: s.opts.RequestTimeout}
	id := RequestID(r.Header, s.cfg.Clock)
	rec.Header().Set("X-Request-Id", id)
	body := &countedBody{ReadCloser: r.Body}
	r.Body = body
	r, span := s.cfg.Telemetry.StartRequest(r, knownMethod(r.Method), id)
	s.guarded(rec, r)
	rec.liftDeadline()
	s.report(rec, r, id, body.n, s.cfg.Clock.Now().Mono-start.Mono, span)
}

// guarded serves the request and turns a panic into a 500. It does not panic
// again, not even after the header went out: on some hosts that would end the
// process, and every kind of answer shows by itself that it broke off.
func (s *Server) guarded(rec *recorder, r *http.Request) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		req := rec.req
		if req == nil {
			req = &request{Request: r}
		}
		s.fail(rec, req, fmt.Errorf("handler panicked: %v\n%s", cause, debug.Stack()))
	}()
	if size := headerBytes(r); size > s.opts.MaxHeaderBytes {
		f := failf(CodeRequestTooLarge, "the request line and headers have %d bytes, at most %d are allowed", size, s.opts.MaxHeaderBytes)
		f.Limit = s.opts.MaxHeaderBytes
		s.fail(rec, &request{Request: r}, f)
		return
	}
	s.router.ServeHTTP(rec, r)
}

// headerBytes is the size of the request line and the header as sent.
func headerBytes(r *http.Request) int64 {
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return int64(n)
}

func (s *Server) report(rec *recorder, r *http.Request, id string, received int64, took time.Duration, span *telemetry.RequestSpan) {
	x := Exchange{
		Method: knownMethod(r.Method), Route: unmatched, Status: rec.status,
		Duration: took, Received: received, Sent: rec.sent,
	}
	if rec.status == 0 {
		x.Status = http.StatusOK
	}
	if rec.err != nil && errors.Is(r.Context().Err(), context.Canceled) {
		x.Status = statusClientGone
	}
	if rec.err != nil && x.Status != statusClientGone {
		p := classify(rec.err)
		x.Code, x.OutcomeUnknown, x.Corrupt = p.Code, p.OutcomeUnknown, errors.Is(rec.err, store.ErrCorrupt)
	}
	req := rec.req
	if req == nil {
		req = &request{}
	} else {
		x.Route = req.route
	}
	s.cfg.Observe(x)
	s.log(r.Context(), x, id, req, rec.err)
	span.End(spanned(x, req, rec.err))
}

// spanned is what the span of a request tells.
func spanned(x Exchange, r *request, err error) telemetry.Answer {
	a := telemetry.Answer{Method: x.Method, Route: r.route, Tree: r.tree, Status: x.Status}
	if err != nil && x.Status != statusClientGone {
		a.Code = string(classify(err).Code)
	}
	return a
}

// log writes the one line of a request. Keys, values, queries and tokens never
// stand in it; the name of the credential does.
func (s *Server) log(ctx context.Context, x Exchange, id string, r *request, err error) {
	attrs := []slog.Attr{
		slog.String("method", x.Method), slog.String("route", x.Route), slog.Int("status", x.Status),
		slog.Int64("bytes", x.Sent), slog.Int64("received", x.Received),
		slog.Duration("duration", x.Duration), slog.String("requestId", id),
	}
	if r.tree != "" {
		attrs = append(attrs, slog.String("tree", r.tree))
	}
	if r.caller != nil {
		attrs = append(attrs, slog.String("credential", r.caller.ID))
	}
	level := slog.LevelInfo
	if underInternal(x.Route) && err == nil {
		// A schedule calls day and night; whoever runs it logs what came of it.
		level = slog.LevelDebug
	}
	if err != nil && x.Status != statusClientGone {
		// A stream that broke off has the status 200 all the same.
		p := classify(err)
		attrs = append(attrs, slog.String("code", string(p.Code)))
		if u := (*auth.UnauthenticatedError)(nil); errors.As(err, &u) {
			attrs = append(attrs, slog.String("reason", u.Reason))
		}
		if p.Status >= http.StatusInternalServerError {
			level = slog.LevelError
			attrs = append(attrs, slog.String("error", err.Error()))
			if _, shard, ok := tree.FindShard(err.Error()); ok {
				attrs = append(attrs, slog.Int64(telemetry.Shard, int64(shard)))
			}
		}
	}
	s.cfg.Logger.LogAttrs(ctx, level, "request", attrs...)
}

// knownMethod keeps made-up methods out of logs and metrics.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

var saneID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// RequestID returns the client's own id if it is sane, else a new one: the
// X-Request-Id of the answer, also where a host answers before this package does.
func RequestID(h http.Header, c clock.Source) string {
	if given := h.Values("X-Request-Id"); len(given) == 1 && saneID.MatchString(given[0]) {
		return given[0]
	}
	return fmt.Sprintf("%016x%016x", c.Uint64(), c.Uint64())
}
