package service

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/heartbeat"
	"github.com/latticekv/lattice/functions/schedule"
)

const (
	// beatsTTL is how long what was read of the heartbeats is used again, so that
	// scraping often does not cost reads.
	beatsTTL = 15 * time.Second
	// beatsTimeout bounds such a read: a scrape must not hang with the storage.
	beatsTimeout = 2 * time.Second
)

// timerAges is the metric of how long ago each scheduled function last
// succeeded on any instance. One that never has has no figure. While the
// storage does not answer, the last known success goes on ageing.
type timerAges struct {
	beats *heartbeat.Book
	clock clock.Source
	desc  *prometheus.Desc

	mu    sync.Mutex
	read  bool
	at    clock.Instant
	known []heartbeat.Beat
}

// watchTimers adds the ages of the timers.
func (m *metrics) watchTimers(beats *heartbeat.Book) {
	m.registry.MustRegister(&timerAges{beats: beats, clock: m.clock, desc: prometheus.NewDesc(
		namespace+"_timer_age_seconds", "Time since a scheduled function last succeeded on any instance.", []string{"timer"}, nil,
	)})
}

// Describe implements prometheus.Collector.
func (a *timerAges) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector.
func (a *timerAges) Collect(ch chan<- prometheus.Metric) {
	known, now := a.look(), a.clock.Now().Time()
	for i := range known {
		b := &known[i]
		if _, ok := schedule.Find(b.Timer); ok && !b.Succeeded.IsZero() {
			ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, b.Age(now).Seconds(), b.Timer)
		}
	}
}

// look returns the heartbeats, read anew if the last look is older than
// beatsTTL by either clock: one stands still in a freeze. A read that failed
// counts as a look.
func (a *timerAges) look() []heartbeat.Beat {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if age := max(now.Mono-a.at.Mono, time.Duration(now.Wall-a.at.Wall)); a.read && age < beatsTTL {
		return a.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatsTimeout)
	defer cancel()
	if known, err := a.beats.Read(ctx); err == nil {
		a.known = known
	}
	a.read, a.at = true, a.clock.Now()
	return a.known
}
