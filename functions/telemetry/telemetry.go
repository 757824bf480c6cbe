// Package telemetry sends traces and metrics to a collector by OTLP over HTTP,
// as the standard variables of OpenTelemetry say, and gives log lines the
// request and the trace that they belong to. Without an endpoint it is off: a
// nil *Telemetry, whose methods do nothing and cost nothing.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// shutdownTimeout bounds the end of a program that a collector does not answer.
	shutdownTimeout = 3 * time.Second
	// flushTimeout bounds what one invocation waits for a collector, flushPause
	// how long the next ones do not wait after that was in vain, or took longer
	// than flushSlow.
	flushTimeout = time.Second
	flushSlow    = 100 * time.Millisecond
	flushPause   = 30 * time.Second
	// instrumentation names what makes the spans.
	instrumentation = "github.com/latticekv/lattice"
)

// Telemetry is what one process sends to collectors. It is safe for concurrent
// use. Nil is off.
type Telemetry struct {
	logger    *slog.Logger
	failures  *failures
	resource  *resource.Resource
	provider  *sdktrace.TracerProvider
	tracer    trace.Tracer // nil without traces
	propagate propagation.TextMapPropagator
	exporter  sdkmetric.Exporter // nil without metrics
	interval  time.Duration
	timeout   time.Duration
	slow      time.Duration

	mu     sync.Mutex
	meters []*sdkmetric.MeterProvider
	// sent is when Flush last had metrics accepted, resume the time from which it waits
	// for the collector again.
	sent, resume time.Time
}

// Open reads the environment and starts what it asks for: nil if that is
// nothing. It connects to nobody. The version is that of the program. The error
// names every fault of the variables, and none of their values that may be a
// secret.
func Open(lookup func(string) (string, bool), logger *slog.Logger, version string) (*Telemetry, error) {
	c, err := readEnv(lookup, version)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if c.idle != "" {
		logger.Warn(c.idle)
	}
	if c.traces == nil && c.metrics == nil {
		return nil, nil
	}
	t := &Telemetry{
		logger: logger, failures: &failures{logger: logger, secrets: c.secrets()}, resource: resource.NewSchemaless(c.resource...), interval: c.interval, timeout: c.exportTimeout,
		slow: flushSlow, sent: time.Now().Round(0),
	}
	listen(t.failures)
	if c.propagate {
		t.propagate = propagation.TraceContext{}
	}
	if c.traces != nil {
		exporter, err := c.traces.spanExporter()
		if err != nil {
			return nil, fmt.Errorf("telemetry: traces: %w", err)
		}
		t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(t.resource), sdktrace.WithSampler(c.sampler), sdktrace.WithBatcher(exporter))
		t.tracer = t.provider.Tracer(instrumentation)
	}
	if c.metrics != nil {
		if t.exporter, err = c.metrics.metricExporter(); err != nil {
			t.Shutdown(context.Background())
			return nil, fmt.Errorf("telemetry: metrics: %w", err)
		}
	}
	return t, nil
}

// Through returns a Telemetry that gives its spans to the caller's provider, for
// programs that bring their own.
func Through(provider *sdktrace.TracerProvider) *Telemetry {
	return &Telemetry{
		logger: slog.Default(), failures: &failures{logger: slog.Default()}, provider: provider, tracer: provider.Tracer(instrumentation),
		slow: flushSlow, propagate: propagation.TraceContext{},
	}
}

// Export sends the figures of a registry from now on, every
// OTEL_METRIC_EXPORT_INTERVAL. The registry stays the place where they are kept.
func (t *Telemetry) Export(figures prometheus.Gatherer) {
	if t == nil || t.exporter == nil {
		return
	}
	reader := sdkmetric.NewPeriodicReader(t.exporter, sdkmetric.WithInterval(t.interval), sdkmetric.WithTimeout(t.timeout),
		sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(figures))))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(t.resource))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.meters = append(t.meters, provider)
}

// Flush sends the spans that wait, and the metrics if their interval has passed:
// for a host that freezes the process between requests. It waits a second at
// most, less if ctx has an earlier deadline, and not at all for a while once that
// was in vain or slow: a collector far away must not delay every answer. What
// was not sent waits for the next time, as far as the bounded queue holds it.
func (t *Telemetry) Flush(ctx context.Context) {
	if t == nil {
		return
	}
	// Without the monotonic clock, which may stand still in a frozen process.
	now := time.Now().Round(0)
	t.mu.Lock()
	if now.Before(t.resume) {
		t.mu.Unlock()
		return
	}
	var meters []*sdkmetric.MeterProvider
	if now.Sub(t.sent) >= t.interval {
		meters = t.meters
	}
	t.mu.Unlock()
	limit := flushTimeout
	if end, bounded := ctx.Deadline(); bounded {
		limit = min(limit, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := t.each(ctx, meters, (*sdktrace.TracerProvider).ForceFlush, (*sdkmetric.MeterProvider).ForceFlush)
	t.flushed(now, len(meters) > 0, err)
	if err != nil {
		t.failures.Handle(err)
	}
}

// flushed notes how a Flush ended that began at a time.
func (t *Telemetry) flushed(began time.Time, metrics bool, err error) {
	end := time.Now().Round(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && metrics {
		t.sent = began
	}
	if err != nil || end.Sub(began) > t.slow {
		t.resume = end.Add(flushPause)
	}
}

// Shutdown sends what waits and ends the export. It takes three seconds at most,
// less if ctx ends earlier; what could not be sent is lost, and the log says so.
func (t *Telemetry) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	t.mu.Lock()
	meters := t.meters
	t.mu.Unlock()
	if err := t.each(ctx, meters, (*sdktrace.TracerProvider).Shutdown, (*sdkmetric.MeterProvider).Shutdown); err != nil {
		t.logger.Warn("the last telemetry was not sent", "error", t.failures.clean(err))
	}
}

// each does the same with all providers at once, and returns when all are done
// or ctx ends.
func (t *Telemetry) each(ctx context.Context, meters []*sdkmetric.MeterProvider,
	traces func(*sdktrace.TracerProvider, context.Context) error, metrics func(*sdkmetric.MeterProvider, context.Context) error) error {
	results := make(chan error, len(meters)+1)
	started := 0
	if t.provider != nil {
		started++
		go func() { results <- traces(t.provider, ctx) }()
	}
	for _, m := range meters {
		started++
		go func() { results <- metrics(m, ctx) }()
	}
	var errs []error
	for range started {
		select {
		case err := <-results:
			errs = append(errs, err)
		case <-ctx.Done():
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	return errors.Join(errs...)
}
