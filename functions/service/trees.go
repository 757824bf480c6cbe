package service

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/schedule"
)

// treeMetrics are what the ticks of this instance last saw of each tree: no
// storage is asked for them that the ticks do not ask anyway.
type treeMetrics struct {
	seen *treeFigures[treeSeen]
	open *treeFigures[tree.OpenWork]
}

// treeSeen is what a pass of the monitor saw of a tree.
type treeSeen struct {
	shards, inFlight, hotKeys, snapshots int
	live, bytes, tailRows                int64
	oldestSplit, oldestSnapshot          time.Duration
	// rates are those of the hottest shards, hottest first.
	rates []shardRate
}

type shardRate struct {
	shard keyspace.ShardID
	rate  float64
}

// Figures of the monitor live for three samples, those of the collector, which
// takes longer to come round where there are many shards, for ten intervals. A
// host whose scheduler is slower than the options wish must not lose them in
// between.
const (
	seenSamples   = 3
	openIntervals = 10
)

func newTreeMetrics(c clock.Source, o *options.Options) *treeMetrics {
	return &treeMetrics{
		seen: newTreeFigures(c, seenSamples*max(o.HotShardSampleInterval, schedule.Coarsest),
			column[treeSeen]{"split_in_flight", "Splits in flight, as the monitor last saw them.", func(s *treeSeen) float64 { return float64(s.inFlight) }},
			column[treeSeen]{"split_oldest_age_seconds", "Age of the oldest split in flight, 0 without one, as the monitor last saw it.", func(s *treeSeen) float64 { return s.oldestSplit.Seconds() }},
			column[treeSeen]{"hot_key_shards", "Hot shards of a single slot, which no split can relieve, as the monitor last saw them.", func(s *treeSeen) float64 { return float64(s.hotKeys) }},
			column[treeSeen]{"tree_shards", "Shards that own slots, as the monitor last saw them.", func(s *treeSeen) float64 { return float64(s.shards) }},
			column[treeSeen]{"tree_live_keys", "Estimate of the live keys, as the monitor last saw it.", func(s *treeSeen) float64 { return float64(s.live) }},
			column[treeSeen]{"tree_bytes", "Estimate of the keys and values that are live, as the monitor last saw it.", func(s *treeSeen) float64 { return float64(s.bytes) }},
			column[treeSeen]{"tree_log_rows", "Log rows that no checkpoint holds yet, of the shard with the most, as the monitor last saw them.", func(s *treeSeen) float64 { return float64(s.tailRows) }},
			column[treeSeen]{"snapshots_open", "Snapshots that are kept, as the monitor last saw them.", func(s *treeSeen) float64 { return float64(s.snapshots) }},
			column[treeSeen]{"snapshot_oldest_age_seconds", "Age of the oldest snapshot that is kept, 0 without one, as the monitor last saw it.", func(s *treeSeen) float64 { return s.oldestSnapshot.Seconds() }},
		),
		open: newTreeFigures(c, openIntervals*max(o.CollectInterval, schedule.Coarsest),
			column[tree.OpenWork]{"cursors_open", "Cursors that have neither ended nor expired, as the collector last saw them.", func(w *tree.OpenWork) float64 { return float64(w.Cursors) }},
			column[tree.OpenWork]{"loads_open", "Sessions of bulk loads that are open, as the collector last saw them.", func(w *tree.OpenWork) float64 { return float64(w.Loads) }},
		),
	}
}

func (m *treeMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.seen, m.open, newHottestShards(m.seen))
}

// monitored takes over what a tick of the monitor saw.
func (m *treeMetrics) monitored(r *tree.MonitorReport) {
	for i := range r.Passes {
		p := &r.Passes[i]
		if len(p.Shards) == 0 {
			continue // skipped, or failed before it saw anything
		}
		s := seenOf(p)
		m.seen.set(p.Tree, s, s.inFlight+s.hotKeys+s.snapshots > 0)
	}
}

func seenOf(p *tree.MonitorPass) treeSeen {
	s := treeSeen{
		shards: len(p.Shards), inFlight: p.InFlight + len(p.Started), snapshots: p.Snapshots,
		oldestSplit: p.OldestSplit, oldestSnapshot: p.OldestSnapshot,
	}
	for i := range p.Shards {
		x := &p.Shards[i]
		s.live += max(x.Live, 0)
		s.bytes += max(x.Bytes, 0)
		s.tailRows = max(s.tailRows, x.TailRows)
		if x.Known && x.Rate > 0 {
			s.rates = append(s.rates, shardRate{x.Shard, x.Rate})
		}
	}
	for _, c := range p.Candidates {
		if c.Slots == 1 {
			s.hotKeys++
		}
	}
	slices.SortFunc(s.rates, func(a, b shardRate) int { return cmp.Compare(b.rate, a.rate) })
	s.rates = slices.Clone(s.rates[:min(len(s.rates), maxHottest)])
	return s
}

// collected takes over what a tick of the collector saw.
func (m *treeMetrics) collected(r *tree.Report) {
	for _, w := range r.Open {
		m.open.set(w.Tree, w, w.Cursors+w.Loads > 0)
	}
}

// maxHottest bounds the shards that are shown by themselves, in all trees.
const maxHottest = 50

// hottestShards shows the rates of the hottest shards of all trees.
type hottestShards struct {
	trees *treeFigures[treeSeen]
	desc  *prometheus.Desc
}

func newHottestShards(trees *treeFigures[treeSeen]) *hottestShards {
	return &hottestShards{trees, prometheus.NewDesc(namespace+"_shard_operations_per_second",
		"Reads and writes of the hottest shards, 50 in all, as the monitor last saw them.", []string{"tree", "shard"}, nil)}
}

// Describe implements prometheus.Collector.
func (h *hottestShards) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *hottestShards) Collect(ch chan<- prometheus.Metric) {
	type named struct {
		tree string
		shardRate
	}
	var all []named
	h.trees.each(func(tree string, s *treeSeen) {
		for _, r := range s.rates {
			all = append(all, named{tree, r})
		}
	})
	slices.SortFunc(all, func(a, b named) int { return cmp.Compare(b.rate, a.rate) })
	for _, x := range all[:min(len(all), maxHottest)] {
		ch <- prometheus.MustNewConstMetric(h.desc, prometheus.GaugeValue, x.rate, x.tree, strconv.Itoa(int(x.shard)))
	}
}
