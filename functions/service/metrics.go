package service

import (
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/functions/api"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/timers"
)

// metrics are the figures of one service, in a registry of their own so that
// several services of one process do not collide.
type metrics struct {
	registry *prometheus.Registry
	clock    clock.Source

	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
	ticks    *prometheus.CounterVec
	tickTime *prometheus.HistogramVec
	lastTick *prometheus.GaugeVec
	failures *prometheus.CounterVec
	storage  *storageMetrics
	splits   *splitMetrics
	batches  *atomicMetrics
	trees    *treeMetrics
	faults   *faultMetrics
	appends  *appendMetrics
}

func newMetrics(c clock.Source, o *options.Options, version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(), clock: c,
		requests: counter("http_requests_total", "Requests answered.", "route", "method", "status"),
		seconds:  histogram("http_request_duration_seconds", "Time to answer a request.", "route", "method"),
		bytes:    counter("http_bytes_total", "Bytes of request and response bodies.", "route", "direction"),
		ticks:    counter("tick_runs_total", "Scheduled functions run.", "timer", "outcome"),
		tickTime: histogram("tick_duration_seconds", "Time of a scheduled function.", "timer"),
		lastTick: gauge("tick_last_success_timestamp_seconds", "When a scheduled function last succeeded.", "timer"),
		failures: counter("tick_failures_total", "Shards and trees that a scheduled function could not maintain.", "timer"),
		storage:  newStorageMetrics(c),
		splits:   newSplitMetrics(),
		batches:  newAtomicMetrics(),
		trees:    newTreeMetrics(c, o),
		faults:   newFaultMetrics(),
		appends:  newAppendMetrics(),
	}
	for _, timer := range schedule.Names() {
		m.failures.WithLabelValues(timer)
		m.ticks.WithLabelValues(timer, "ok")
		m.ticks.WithLabelValues(timer, "error")
	}
	build := gauge("build_info", "1, labelled with the version of the program.", "version")
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.requests, m.seconds, m.bytes, m.ticks, m.tickTime, m.lastTick, m.failures, build, optionGauge(o), lateGauge(o))
	m.registry.MustRegister(m.storage.operations, m.storage.seconds, m.storage.bytes, m.storage.lastAnswer())
	m.splits.register(m.registry)
	m.trees.register(m.registry)
	m.faults.register(m.registry)
	m.registry.MustRegister(m.batches.batches, m.batches.ends)
	m.registry.MustRegister(m.appends.appends, m.appends.seconds, m.appends.records)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

const namespace = "lattice"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 15),
	}, labels)
}

// watch adds the figures that the API server keeps itself.
func (m *metrics) watch(s *api.Server) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "http_requests_in_flight", Help: "Requests in work.",
	}, func() float64 { return float64(s.InFlight()) }))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) observeRequest(x api.Exchange) {
	m.requests.WithLabelValues(x.Route, x.Method, strconv.Itoa(x.Status)).Inc()
	m.seconds.WithLabelValues(x.Route, x.Method).Observe(x.Duration.Seconds())
	m.bytes.WithLabelValues(x.Route, "received").Add(float64(x.Received))
	m.bytes.WithLabelValues(x.Route, "sent").Add(float64(x.Sent))
	m.faults.observeRequest(&x)
}

// monitored takes over what a tick of the monitor saw.
func (m *metrics) monitored(r *tree.MonitorReport) {
	m.splits.monitored(r)
	m.trees.monitored(r)
}

func (m *metrics) observeTick(r timers.Run) {
	m.faults.observeTick(&r)
	outcome := "ok"
	if r.Err != nil {
		outcome = "error"
	}
	m.ticks.WithLabelValues(r.Timer, outcome).Inc()
	m.tickTime.WithLabelValues(r.Timer).Observe(r.Duration.Seconds())
	m.failures.WithLabelValues(r.Timer).Add(float64(r.Failed))
	if r.Err == nil {
		m.lastTick.WithLabelValues(r.Timer).Set(float64(m.clock.Now().Wall) / float64(time.Second))
	}
}

// storageMetrics counts storage operations by kind and outcome. A lost race
// and a missing row are outcomes of their own, for they are normal.
type storageMetrics struct {
	clock      clock.Source
	operations *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	bytes      *prometheus.CounterVec
	// answered is when the storage last answered, a Unix nanosecond.
	answered atomic.Int64
}

// storageKinds are the kinds of calls.
var storageKinds = []string{"table_get", "table_range", "table_apply", "blob_put", "blob_get", "blob_range", "blob_list", "blob_delete"}

func newStorageMetrics(c clock.Source) *storageMetrics {
	s := &storageMetrics{
		clock:      c,
		operations: counter("storage_operations_total", "Calls of the table and the blob store.", "kind", "outcome"),
		seconds:    histogram("storage_operation_duration_seconds", "Time of a call of the table or the blob store.", "kind"),
		bytes:      counter("storage_bytes_total", "Payload bytes read and written.", "kind"),
	}
	for _, kind := range storageKinds {
		for _, o := range outcomes {
			s.operations.WithLabelValues(kind, o.name)
		}
	}
	return s
}

// lastAnswer shows when the storage last answered, be it that there is no such
// row. It costs the storage nothing.
func (s *storageMetrics) lastAnswer() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "storage_last_answer_timestamp_seconds", Help: "When the storage last answered a call, 0 if it never did.",
	}, func() float64 { return float64(s.answered.Load()) / float64(time.Second) })
}

// observe counts one call, which ended with err.
func (s *storageMetrics) observe(kind, outcome string, took time.Duration, bytes int, err error) {
	s.operations.WithLabelValues(kind, outcome).Inc()
	s.seconds.WithLabelValues(kind).Observe(took.Seconds())
	if err == nil || answers(err) {
		s.answered.Store(s.clock.Now().Wall)
	}
	s.bytes.WithLabelValues(kind).Add(float64(bytes))
}

// answers reports whether an error is what the storage had to say, and not that
// it had no answer.
func answers(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrPrecondition)
}

var outcomes = []struct {
	err  error
	name string
}{
	{nil, "ok"}, {store.ErrNotFound, "not_found"}, {store.ErrExists, "exists"}, {store.ErrPrecondition, "precondition"},
	{store.ErrThrottled, "throttled"}, {store.ErrUnavailable, "unavailable"}, {store.ErrOutcomeUnknown, "unknown"},
	{store.ErrTooLarge, "too_large"}, {store.ErrInvalid, "invalid"}, {store.ErrCorrupt, "corrupt"},
}

func outcomeOf(err error) string {
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "error"
}
