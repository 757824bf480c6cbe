package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxParentBytes and maxStateBytes bound what is read of a caller's trace.
	maxParentBytes = 128
	maxStateBytes  = 512
	// maxChildren bounds the spans below one request or tick. A scan of a large
	// tree makes one storage operation for every leaf.
	maxChildren = 1000
)

// The attributes of spans that no convention names.
const (
	attrTree    = "lattice.tree"
	attrShard   = "lattice.shard"
	attrRequest = "lattice.request_id"
	attrTimer   = "lattice.timer"
	attrDropped = "lattice.spans_dropped"
	attrError   = "error.type"
)

// RequestSpan is the span of one HTTP request. Nil is none.
type RequestSpan struct {
	span  trace.Span
	below *children
}

// children counts the spans below one.
type children struct{ n atomic.Int64 }

type childrenKey struct{}

// admit reports whether there may be another span below the request or tick of
// ctx.
func admit(ctx context.Context) bool {
	c, ok := ctx.Value(childrenKey{}).(*children)
	return !ok || c.n.Add(1) <= maxChildren
}

// dropped is how many spans there were too many.
func (c *children) dropped() int64 { return max(c.n.Load()-maxChildren, 0) }

// StartRequest returns the request, of a method of HTTP or "other", in a context whose log lines carry its id and,
// where there are traces, in a span. It continues the trace that the caller
// names in a traceparent header.
func (t *Telemetry) StartRequest(r *http.Request, method, id string) (*http.Request, *RequestSpan) {
	ctx := With(r.Context(), slog.String(RequestID, id))
	if t == nil || t.tracer == nil {
		return r.WithContext(ctx), nil
	}
	method = conventional(method)
	ctx, span := t.tracer.Start(t.parent(ctx, r.Header), method, trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return r.WithContext(ctx), nil
	}
	span.SetAttributes(attribute.String("http.request.method", method), attribute.String(attrRequest, id))
	s := &RequestSpan{span: span, below: &children{}}
	return r.WithContext(context.WithValue(ctx, childrenKey{}, s.below)), s
}

// conventional is the name of a method that is none of HTTP's, as the conventions
// of OpenTelemetry have it.
func conventional(method string) string {
	if method == "other" {
		return "_OTHER"
	}
	return method
}

// parent puts the caller's trace into the context, unless a trace stands there
// already. What is malformed or overlong is as good as absent.
func (t *Telemetry) parent(ctx context.Context, h http.Header) context.Context {
	given := h["Traceparent"]
	if t.propagate == nil || len(given) != 1 || len(given[0]) > maxParentBytes || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	carrier := propagation.MapCarrier{"traceparent": given[0]}
	if state := strings.Join(h["Tracestate"], ","); len(state) <= maxStateBytes {
		carrier["tracestate"] = state
	}
	return t.propagate.Extract(ctx, carrier)
}

// Answer is what a span tells of the answer to a request.
type Answer struct {
	Method string
	// Route is the path template, empty if none fits; Tree the name of the tree,
	// empty if there is none.
	Route, Tree string
	Status      int
	// Code is that of the problem, empty if there is none.
	Code string
}

// End ends the span.
func (s *RequestSpan) End(a Answer) {
	if s == nil {
		return
	}
	if a.Route != "" {
		s.span.SetName(conventional(a.Method) + " " + a.Route)
		s.span.SetAttributes(attribute.String("http.route", a.Route))
	}
	s.span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
	if a.Tree != "" {
		s.span.SetAttributes(attribute.String(attrTree, a.Tree))
	}
	if a.Code != "" {
		s.span.SetAttributes(attribute.String(attrError, a.Code))
	}
	if a.Status >= http.StatusInternalServerError || a.Code != "" && a.Status < http.StatusBadRequest {
		s.span.SetStatus(codes.Error, a.Code)
	}
	endParent(s.span, s.below)
}

func endParent(span trace.Span, below *children) {
	if n := below.dropped(); n > 0 {
		span.SetAttributes(attribute.Int64(attrDropped, n))
	}
	span.End()
}

// StartTick returns a context for a scheduled function whose log lines carry its
// name, within a span if there are traces. The function returned ends it; failed
// counts the shards and trees that could not be looked after.
func (t *Telemetry) StartTick(ctx context.Context, timer string) (context.Context, func(failed int, err error)) {
	ctx = With(ctx, slog.String(Timer, timer))
	if t == nil || t.tracer == nil {
		return ctx, func(int, error) {}
	}
	ctx, span := t.tracer.Start(ctx, "tick "+timer, trace.WithAttributes(attribute.String(attrTimer, timer)))
	below, _ := ctx.Value(childrenKey{}).(*children)
	if below == nil {
		below = &children{}
		ctx = context.WithValue(ctx, childrenKey{}, below)
	}
	return ctx, func(failed int, err error) {
		span.SetAttributes(attribute.Int("lattice.tick.failed", failed))
		if err != nil || failed > 0 {
			span.SetStatus(codes.Error, "")
		}
		endParent(span, below)
	}
}

// StorageSpan is the span of one call of the table or the blob store. The zero
// value is none.
type StorageSpan struct{ span trace.Span }

// StartStorage begins the span of a storage operation, below a request or tick
// that is recorded.
func (t *Telemetry) StartStorage(ctx context.Context, kind string) (context.Context, StorageSpan) {
	if t == nil || t.tracer == nil || !trace.SpanFromContext(ctx).IsRecording() || !admit(ctx) {
		return ctx, StorageSpan{}
	}
	ctx, span := t.tracer.Start(ctx, "storage "+kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("db.system.name", "lattice.storage"), attribute.String("db.operation.name", kind)))
	return ctx, StorageSpan{span}
}

// AtShard says whose data the operation is for.
func (s StorageSpan) AtShard(shard uint32) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(attrShard, int64(shard)))
	}
}

// End ends the span. A lost race and a missing row are outcomes like others; only
// a fault of the storage is an error.
func (s StorageSpan) End(bytes int, outcome string, fault bool) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.Int("lattice.storage.bytes", bytes), attribute.String("lattice.storage.outcome", outcome))
	if fault {
		s.span.SetAttributes(attribute.String(attrError, outcome))
		s.span.SetStatus(codes.Error, outcome)
	}
	s.span.End()
}

// Recording reports whether there is a span.
func (s StorageSpan) Recording() bool { return s.span != nil }
