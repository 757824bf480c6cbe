package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/tree"
)

// atomicMetrics are the figures of atomic batches: what became of those that
// this instance was asked for, and what its ticks did for those of others.
type atomicMetrics struct {
	batches *prometheus.CounterVec
	ends    *prometheus.CounterVec
}

func newAtomicMetrics() *atomicMetrics {
	m := &atomicMetrics{
		batches: counter("atomic_batches_total", "Atomic batches by outcome: committed, unknown, or the code for which nothing was written.", "outcome"),
		ends:    counter("transactions_finished_total", "Atomic batches that ticks aborted as overdue, told the shards of, or removed as done.", "action"),
	}
	m.batches.WithLabelValues("committed")
	m.batches.WithLabelValues("unknown")
	m.finished(&tree.TransactionsReport{})
	return m
}

func (m *atomicMetrics) observe(outcome string) { m.batches.WithLabelValues(outcome).Inc() }

// finished counts what a tick did, whole or in part.
func (m *atomicMetrics) finished(r *tree.TransactionsReport) {
	m.ends.WithLabelValues("aborted").Add(float64(r.Aborted))
	m.ends.WithLabelValues("told").Add(float64(r.Told))
	m.ends.WithLabelValues("removed").Add(float64(r.Removed))
}
