package service

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/core/clock"
)

// maxShownTrees bounds the trees that have figures of their own.
const maxShownTrees = 1000

// treeFigures shows what a tick last saw of each tree: a row of figures by tree,
// one metric for each column. A row expires when its life has passed without
// news, as when the ticks have moved to another instance: what nobody looks
// after any more must not stand there for ever. Of more trees than can be shown,
// those at rest give way to those that are not.
//
// It is a prometheus.Collector, and safe for concurrent use.
type treeFigures[T any] struct {
	clock   clock.Source
	life    time.Duration
	columns []column[T]
	descs   []*prometheus.Desc
	mu      sync.Mutex
	rows    map[string]figureRow[T]
}

// column is one figure of a row.
type column[T any] struct {
	name, help string
	of         func(*T) float64
}

type figureRow[T any] struct {
	T     T
	busy  bool
	until time.Duration
}

func newTreeFigures[T any](c clock.Source, life time.Duration, columns ...column[T]) *treeFigures[T] {
	f := &treeFigures[T]{clock: c, life: life, columns: columns, rows: map[string]figureRow[T]{}}
	for _, c := range columns {
		f.descs = append(f.descs, prometheus.NewDesc(namespace+"_"+c.name, c.help, []string{"tree"}, nil))
	}
	return f
}

// set replaces the row of a tree. busy says that something goes on there.
func (f *treeFigures[T]) set(tree string, row T, busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.rows[tree]; !known && !f.room(busy) {
		return
	}
	f.rows[tree] = figureRow[T]{row, busy, f.clock.Now().Mono + f.life}
}

// room makes room for another tree, if there can be any; the caller holds the
// lock.
func (f *treeFigures[T]) room(busy bool) bool {
	if len(f.rows) < maxShownTrees {
		return true
	}
	f.expire()
	for tree := range f.rows {
		if len(f.rows) < maxShownTrees {
			break
		}
		if busy && !f.rows[tree].busy {
			delete(f.rows, tree)
		}
	}
	return len(f.rows) < maxShownTrees
}

// expire forgets old rows; the caller holds the lock.
func (f *treeFigures[T]) expire() {
	now := f.clock.Now().Mono
	for tree, r := range f.rows {
		if now >= r.until {
			delete(f.rows, tree)
		}
	}
}

// each visits the rows that have not expired, under the lock.
func (f *treeFigures[T]) each(visit func(tree string, row *T)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	for tree, r := range f.rows {
		visit(tree, &r.T)
	}
}

// Describe implements prometheus.Collector.
func (f *treeFigures[T]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range f.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (f *treeFigures[T]) Collect(ch chan<- prometheus.Metric) {
	f.each(func(tree string, row *T) {
		for i, c := range f.columns {
			ch <- prometheus.MustNewConstMetric(f.descs[i], prometheus.GaugeValue, c.of(row), tree)
		}
	})
}
