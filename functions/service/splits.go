package service

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// splitMetrics are the figures of splits, as this instance sees them: what its
// ticks found and decided, and what its coordinators carried over.
type splitMetrics struct {
	inFlight    *treeGauge
	hotKeys     *treeGauge
	suppressed  *prometheus.CounterVec
	deferred    *prometheus.CounterVec
	retroactive prometheus.Counter
	drained     prometheus.Counter
	phases      *prometheus.HistogramVec
}

func newSplitMetrics(c clock.Source, o *options.Options) *splitMetrics {
	return &splitMetrics{
		inFlight:    newTreeGauge(c, o.HotShardSampleInterval, "split_in_flight", "Splits in flight, as the monitor last saw them."),
		hotKeys:     newTreeGauge(c, o.HotShardSampleInterval, "hot_key_shards", "Hot shards of a single slot, which no split can relieve, as the monitor last saw them."),
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
}

func plainCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func (m *splitMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.inFlight, m.hotKeys, m.suppressed, m.deferred, m.retroactive, m.drained, m.phases)
}

// events are how the coordinators of a DB report.
func (m *splitMetrics) events() split.Events {
	return split.Events{
		Phase: func(_ split.Tree, s *split.State, p split.Phase, took time.Duration) {
			m.phases.WithLabelValues(p.String()).Observe(took.Seconds())
			if p == split.PhaseBeginShadowWrite {
				m.retroactive.Add(float64(s.Retroactive))
			}
		},
		Forwarded: func(_ split.Tree, n int) { m.drained.Add(float64(n)) },
	}
}

// admission are the reasons for which a split is put off though the shard
// could be split: nothing is under way there.
var admission = []split.Reason{split.ReasonShardCeiling, split.ReasonUniformLoad, split.ReasonLowOccupancy, split.ReasonClusterCap}

// monitored counts what a tick of the monitor saw.
func (m *splitMetrics) monitored(r *tree.MonitorReport) {
	for i := range r.Passes {
		p := &r.Passes[i]
		if len(p.Shards) == 0 {
			continue // skipped, or failed before it saw anything
		}
		m.inFlight.set(p.Tree, p.InFlight+len(p.Started))
		single := 0
		for _, c := range p.Candidates {
			if c.Slots == 1 {
				single++
			}
			switch {
			case c.Reason == "":
			case slices.Contains(admission, c.Reason):
				m.deferred.WithLabelValues(string(c.Reason)).Inc()
			default:
				m.suppressed.WithLabelValues(string(c.Reason)).Inc()
			}
		}
		m.hotKeys.set(p.Tree, single)
	}
}

// maxShownTrees bounds the trees that have a figure of their own.
const maxShownTrees = 1000

// treeGauge shows a count by tree, for the trees where it is not 0. A figure
// expires after three samples without news, as when the ticks
// have moved to another instance: what nobody looks after any more must not
// stand there for ever.
type treeGauge struct {
	clock clock.Source
	life  time.Duration
	desc  *prometheus.Desc
	mu    sync.Mutex
	trees map[string]shown
}

type shown struct {
	count int
	until time.Duration
}

func newTreeGauge(c clock.Source, sample time.Duration, name, help string) *treeGauge {
	return &treeGauge{
		clock: c, life: 3 * sample, trees: map[string]shown{},
		desc: prometheus.NewDesc(namespace+"_"+name, help, []string{"tree"}, nil),
	}
}

func (g *treeGauge) set(tree string, count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	_, known := g.trees[tree]
	switch {
	case count == 0:
		delete(g.trees, tree)
	case known || len(g.trees) < maxShownTrees:
		g.trees[tree] = shown{count, g.clock.Now().Mono + g.life}
	}
}

// expire forgets old figures; the caller holds the lock.
func (g *treeGauge) expire() {
	now := g.clock.Now().Mono
	for tree, s := range g.trees {
		if now >= s.until {
			delete(g.trees, tree)
		}
	}
}

// Describe implements prometheus.Collector.
func (g *treeGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *treeGauge) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	for tree, s := range g.trees {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(s.count), tree)
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
