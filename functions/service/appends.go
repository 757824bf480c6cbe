package service

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/trace"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/telemetry"
)

// appendMetrics are the figures of appends to the logs of shards.
type appendMetrics struct {
	appends *prometheus.CounterVec
	seconds prometheus.Histogram
	records prometheus.Histogram
}

func newAppendMetrics() *appendMetrics {
	m := &appendMetrics{
		appends: counter("shard_appends_total", "Attempts to append to the log of a shard. One that lost a race is made again.", "outcome"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "shard_append_duration_seconds", Help: "Time of an attempt to append, however it ended.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 15),
		}),
		records: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "shard_append_records", Help: "Records of an append that landed: the size of the group that it committed.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
	}
	for _, outcome := range trace.Outcomes() {
		m.appends.WithLabelValues(outcome)
	}
	return m
}

// observe counts an append.
func (m *appendMetrics) observe(a trace.Append, e trace.Appended) {
	m.appends.WithLabelValues(e.Outcome.String()).Inc()
	m.seconds.Observe(e.Took.Seconds())
	if e.Outcome == trace.Landed {
		m.records.Observe(float64(a.Records))
	}
}

// appended returns what hears of every append: it counts, and logs those that did
// not end well, which the logs of those who waited for them may not tell.
func (m *metrics) appended(logger *slog.Logger) func(context.Context, trace.Append, trace.Appended) {
	return func(ctx context.Context, a trace.Append, e trace.Appended) {
		m.appends.observe(a, e)
		if e.Err == nil {
			return
		}
		level := slog.LevelWarn
		if errors.Is(e.Err, context.Canceled) && e.Outcome == trace.Failed {
			level = slog.LevelDebug // whoever asked has gone
		}
		attrs := []slog.Attr{
			slog.String("outcome", e.Outcome.String()), slog.Duration("took", e.Took), slog.Int("requests", a.Requests),
			slog.Int("records", a.Records), slog.Int("bytes", a.Bytes), slog.String("error", e.Err.Error()),
		}
		if a.Tree != "" {
			attrs = append(attrs, slog.String(telemetry.Tree, a.Tree))
		}
		if _, id, ok := tree.ParsePartition(a.Partition); ok {
			attrs = append(attrs, slog.Int64(telemetry.Shard, int64(id)))
		}
		logger.LogAttrs(ctx, level, "append", attrs...)
	}
}
