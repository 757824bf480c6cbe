package telemetry

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// The names under which log lines and spans tell where they belong.
const (
	RequestID = "requestId"
	TraceID   = "traceId"
	SpanID    = "spanId"
	Tree      = "tree"
	Shard     = "shard"
	Phase     = "phase"
	Timer     = "timer"
)

// attrsKey is where a context has what its log lines are about.
type attrsKey struct{}

// With returns a context whose log lines carry the attributes, besides those
// that it has already. An attribute given again replaces the former.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	have, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	all := make([]slog.Attr, 0, len(have)+len(attrs))
	for _, a := range have {
		if !slices.ContainsFunc(attrs, func(b slog.Attr) bool { return b.Key == a.Key }) {
			all = append(all, a)
		}
	}
	return context.WithValue(ctx, attrsKey{}, append(all, attrs...))
}

// WithRequestID returns a context of a request or tick of this id; one is drawn if
// none is given. What is called under it takes the id over.
func WithRequestID(ctx context.Context, id string) context.Context {
	if id == "" {
		id = rand.Text()
	}
	return With(ctx, slog.String(RequestID, id))
}

// Attr returns the text of one attribute of a context, empty if it has none.
func Attr(ctx context.Context, key string) string {
	have, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	for _, a := range have {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// LogHandler adds to every line what stands in its context: the request or
// tick, its tree, and the trace. What a line says itself goes first. A handler
// that does so already is returned as it is.
func LogHandler(next slog.Handler) slog.Handler {
	if h, ok := next.(*logHandler); ok {
		return h
	}
	return &logHandler{next: next}
}

// logHandler adds attributes at the top of a line.
type logHandler struct {
	next slog.Handler
	// in is whether the logger has opened a group.
	in bool
	// given are the keys of the logger's own attributes.
	given []string
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, line slog.Record) error {
	add, _ := ctx.Value(attrsKey{}).([]slog.Attr)
	span := trace.SpanContextFromContext(ctx)
	if len(add) == 0 && !span.IsValid() || h.in {
		return h.next.Handle(ctx, line)
	}
	has := slices.Clone(h.given)
	line.Attrs(func(a slog.Attr) bool {
		has = append(has, a.Key)
		return true
	})
	line = line.Clone()
	for _, a := range add {
		if !slices.Contains(has, a.Key) {
			line.AddAttrs(a)
		}
	}
	if span.IsValid() {
		line.AddAttrs(slog.String(TraceID, span.TraceID().String()), slog.String(SpanID, span.SpanID().String()))
	}
	return h.next.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	out.next = h.next.WithAttrs(attrs)
	out.given = slices.Clone(h.given)
	if !h.in {
		for _, a := range attrs {
			out.given = append(out.given, a.Key)
		}
	}
	return &out
}

// WithGroup implements slog.Handler. In a group nothing is added: it would come
// under the group's name.
func (h *logHandler) WithGroup(name string) slog.Handler {
	out := *h
	out.next, out.in = h.next.WithGroup(name), true
	return &out
}
