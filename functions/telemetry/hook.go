package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/trace"
	"github.com/latticekv/lattice/core/tree"
)

// maxLinks bounds the requests that the span of an append names beside its own.
const maxLinks = 128

// Hook is what core tells its appends and splits; nil without traces, and then
// core spends nothing on them.
func (t *Telemetry) Hook() trace.Hook {
	if t == nil || t.tracer == nil {
		return nil
	}
	return hook{t.tracer}
}

// hook makes spans of what core tells.
type hook struct{ tracer oteltrace.Tracer }

// Ref implements trace.Hook.
func (hook) Ref(ctx context.Context) trace.Ref {
	span := oteltrace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return nil
	}
	return span.SpanContext()
}

// Append implements trace.Hook. The span belongs to the trace of the request that
// leads the group, and is linked to those of the others. If the leader is not
// recorded, the first that is stands in for it.
func (h hook) Append(ctx context.Context, a trace.Append, serves []trace.Ref) (context.Context, trace.AppendSpan) {
	if !oteltrace.SpanFromContext(ctx).IsRecording() {
		if len(serves) == 0 {
			return ctx, nil
		}
		first, _ := serves[0].(oteltrace.SpanContext)
		ctx, serves = oteltrace.ContextWithSpanContext(ctx, first), serves[1:]
	}
	if !admit(ctx) {
		return ctx, nil
	}
	var links []oteltrace.Link
	for _, ref := range serves[:min(len(serves), maxLinks)] {
		if at, ok := ref.(oteltrace.SpanContext); ok {
			links = append(links, oteltrace.Link{SpanContext: at})
		}
	}
	attributes := append(place(a.Tree, a.Partition),
		attribute.Int("lattice.append.requests", a.Requests), attribute.Int("lattice.append.records", a.Records), attribute.Int("lattice.append.bytes", a.Bytes))
	ctx, span := h.tracer.Start(ctx, "shard append", oteltrace.WithLinks(links...), oteltrace.WithAttributes(attributes...))
	return ctx, appendSpan{span}
}

// place tells the tree and the shard of a partition.
func place(name, partition string) []attribute.KeyValue {
	var at []attribute.KeyValue
	if name != "" {
		at = append(at, attribute.String(attrTree, name))
	}
	if _, id, ok := tree.ParsePartition(partition); ok {
		at = append(at, attribute.Int64(attrShard, int64(id)))
	}
	return at
}

type appendSpan struct{ span oteltrace.Span }

// End implements trace.AppendSpan. The text of the error stays in the log: it may
// say more than a trace should.
func (s appendSpan) End(e trace.Appended) {
	s.span.SetAttributes(attribute.String("lattice.append.outcome", e.Outcome.String()))
	if e.Err != nil {
		s.span.SetAttributes(attribute.String(attrError, e.Outcome.String()))
		s.span.SetStatus(codes.Error, e.Outcome.String())
	}
	s.span.End()
}

// Phase implements trace.Hook.
func (h hook) Phase(ctx context.Context, p trace.Phase) (context.Context, trace.PhaseSpan) {
	if !oteltrace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	ctx, span := h.tracer.Start(ctx, "split "+p.Name, oteltrace.WithAttributes(
		attribute.String(attrTree, p.Tree), attribute.String("lattice.split.id", p.ID),
		attribute.String("lattice.split.phase", p.Name), attribute.Int64("lattice.split.source", int64(p.Source))))
	return ctx, phaseSpan{span}
}

type phaseSpan struct{ span oteltrace.Span }

// End implements trace.PhaseSpan.
func (s phaseSpan) End(e trace.PhaseEnd) {
	if e.Target >= 0 {
		s.span.SetAttributes(attribute.Int64("lattice.split.target", e.Target))
	}
	s.span.SetAttributes(attribute.Bool("lattice.split.phase_over", e.Over))
	if e.Err != nil && !errors.Is(e.Err, split.ErrDriven) {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
