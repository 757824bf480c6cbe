package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/schedule"
)

// shownOptions are the settings that figures are held against. A tree may have
// others of its own.
func shownOptions(o *options.Options) map[string]float64 {
	truth := map[bool]float64{true: 1}
	return map[string]float64{
		"AutoSplitEnabled":               truth[o.AutoSplitEnabled],
		"CacheBytes":                     float64(o.CacheBytes),
		"CheckpointTailRows":             float64(o.CheckpointTailRows),
		"HotShardOpsPerSecondThreshold":  float64(o.HotShardOpsPerSecondThreshold),
		"HotShardSampleInterval":         o.HotShardSampleInterval.Seconds(),
		"Leases":                         truth[o.Leases],
		"MaxClusterConcurrentAutoSplits": float64(o.MaxClusterConcurrentAutoSplits),
		"MaxConcurrentAutoSplits":        float64(o.MaxConcurrentAutoSplits),
		"MaxConcurrentRequests":          float64(o.MaxConcurrentRequests),
		"MaxPhysicalShardsPerTree":       float64(o.MaxPhysicalShardsPerTree),
		"RequestTimeout":                 o.RequestTimeout.Seconds(),
		"SnapshotCursorTtl":              o.SnapshotCursorTtl.Seconds(),
	}
}

func optionGauge(o *options.Options) *prometheus.GaugeVec {
	g := gauge("option", "Settings of the service that other figures are held against; times are in seconds, yes is 1.", "name")
	for name, value := range shownOptions(o) {
		g.WithLabelValues(name).Set(value)
	}
	return g
}

// lateGauge shows from which age on a timer counts as late.
func lateGauge(o *options.Options) *prometheus.GaugeVec {
	g := gauge("timer_late_after_seconds", "Age from which on a scheduled function counts as late.", "timer")
	for _, t := range schedule.All() {
		g.WithLabelValues(t.Name).Set(t.LateAfter(o).Seconds())
	}
	return g
}
