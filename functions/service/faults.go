package service

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/functions/api"
	"github.com/latticekv/lattice/functions/timers"
)

// faultMetrics say why requests failed, and count what must never happen. Every
// series is there from the beginning: the first fault is a change then, and not
// the birth of a series, which a rate does not see.
type faultMetrics struct {
	problems *prometheus.CounterVec
	unknown  prometheus.Counter
	corrupt  *prometheus.CounterVec
}

// Who met data that nobody can read.
const (
	byRequest = "request"
	byTick    = "tick"
)

func newFaultMetrics() *faultMetrics {
	m := &faultMetrics{
		problems: counter("http_problems_total", "Requests that failed, by the code of the answer; those whose client went away are not among them.", "code"),
		unknown:  plainCounter("http_unknown_outcomes_total", "Requests answered with an unknown outcome: the write may have been applied or not."),
		corrupt:  counter("corrupt_data_total", "Requests, and failures of ticks, that met stored data which cannot be read.", "source"),
	}
	for _, code := range api.Codes() {
		m.problems.WithLabelValues(string(code))
	}
	m.corrupt.WithLabelValues(byRequest)
	m.corrupt.WithLabelValues(byTick)
	return m
}

func (m *faultMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.problems, m.unknown, m.corrupt)
}

func (m *faultMetrics) observeRequest(x *api.Exchange) {
	if x.Code == "" {
		return
	}
	m.problems.WithLabelValues(string(x.Code)).Inc()
	if x.OutcomeUnknown {
		m.unknown.Inc()
	}
	if x.Corrupt {
		m.corrupt.WithLabelValues(byRequest).Inc()
	}
}

func (m *faultMetrics) observeTick(r *timers.Run) {
	m.corrupt.WithLabelValues(byTick).Add(float64(r.Corrupt))
}
