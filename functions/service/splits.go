package service

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/telemetry"
)

// splitMetrics are the figures of splits, as this instance sees them: what its
// ticks found and decided, and what its coordinators carried over.
type splitMetrics struct {
	suppressed  *prometheus.CounterVec
	deferred    *prometheus.CounterVec
	retroactive prometheus.Counter
	drained     prometheus.Counter
	phases      *prometheus.HistogramVec
}

func newSplitMetrics() *splitMetrics {
	m := &splitMetrics{
		suppressed:  counter("split_candidates_suppressed_total", "Hot shards that were not split because something is under way, or too young, or forbids it.", "reason"),
		deferred:    counter("split_admission_deferred_total", "Hot shards whose split was put off: it would not help, or there is no room.", "reason"),
		retroactive: plainCounter("split_retroactive_forward_entries_total", "Prepared mutations carried over because they were older than the split."),
		drained:     plainCounter("split_drained_entries_total", "Entries that drains carried over."),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "split_phase_duration_seconds", Help: "Time of a phase of a split, from its beginning to its end.",
			// A millisecond to an hour and a half.
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 18),
		}, []string{"phase"}),
	}
	for _, r := range split.Reasons() {
		m.of(r).WithLabelValues(string(r))
	}
	return m
}

// of returns the counter of a reason.
func (m *splitMetrics) of(r split.Reason) *prometheus.CounterVec {
	if slices.Contains(admission, r) {
		return m.deferred
	}
	return m.suppressed
}

func plainCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func (m *splitMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.suppressed, m.deferred, m.retroactive, m.drained, m.phases)
}

// events are how the coordinators of a DB report: in figures, and with a line for
// every phase that is over.
func (m *splitMetrics) events(logger *slog.Logger) split.Events {
	return split.Events{
		Phase: func(ctx context.Context, t split.Tree, s *split.State, p split.Phase, took time.Duration) {
			m.phases.WithLabelValues(p.String()).Observe(took.Seconds())
			if p == split.PhaseBeginShadowWrite {
				m.retroactive.Add(float64(s.Retroactive))
			}
			logger.LogAttrs(ctx, slog.LevelInfo, "split phase is over", slog.String(telemetry.Tree, t.Name()),
				slog.Int64("source", int64(s.Source)), slog.Int64("target", int64(s.Target)), slog.String(telemetry.Phase, p.String()),
				slog.Duration("took", took), slog.String("split", s.ID))
		},
		Forwarded: func(_ split.Tree, n int) { m.drained.Add(float64(n)) },
	}
}

// admission are the reasons for which a split is put off though the shard
// could be split: nothing is under way there.
var admission = []split.Reason{split.ReasonShardCeiling, split.ReasonUniformLoad, split.ReasonLowOccupancy, split.ReasonClusterCap}

// monitored counts why hot shards were not split.
func (m *splitMetrics) monitored(r *tree.MonitorReport) {
	for i := range r.Passes {
		for _, c := range r.Passes[i].Candidates {
			if c.Reason != "" {
				m.of(c.Reason).WithLabelValues(string(c.Reason)).Inc()
			}
		}
	}
}

// watchDB adds the figures that a DB keeps itself.
func (m *metrics) watchDB(db *tree.DB) {
	count := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, f))
	}
	show := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, f))
	}
	count("split_mirrored_entries_total", "Entries mirrored to the target of a split by the writes themselves.", func() float64 {
		entries, _ := db.Mirrored()
		return float64(entries)
	})
	count("split_mirror_failures_total", "Mirrors that failed, and were left to the drain.", func() float64 {
		_, failures := db.Mirrored()
		return float64(failures)
	})
	count("cache_hits_total", "Leaves found in memory.", func() float64 { return float64(db.CacheStats().Hits) })
	count("cache_misses_total", "Leaves that had to be read.", func() float64 { return float64(db.CacheStats().Misses) })
	show("cache_pages", "Leaves in memory.", func() float64 { return float64(db.CacheStats().Pages) })
	show("cache_bytes", "Memory of the leaves.", func() float64 { return float64(db.CacheStats().Bytes) })
}
