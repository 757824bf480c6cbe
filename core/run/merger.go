package run

import (
	"context"

	"github.com/latticekv/lattice/core/record"
)

// merger merges sources: a binary heap ordered by key, then by age.
type merger struct {
	reverse bool
	sources []source
	heap    []ranked
	started bool
	current record.Entry
	err     error
}

// ranked is a source with its current key and its age.
type ranked struct {
	source source
	key    string
	rank   int
}

func newMerger(reverse bool) *merger { return &merger{reverse: reverse} }

// add adds a source that is older than all before.
func (m *merger) add(s source) { m.sources = append(m.sources, s) }

// Next implements Iterator.
func (m *merger) Next(ctx context.Context) bool {
	if !m.step(ctx) || len(m.heap) == 0 {
		return false
	}
	return m.fail(m.heap[0].source.entry(ctx, &m.current))
}

// Entry implements Iterator.
func (m *merger) Entry() *record.Entry { return &m.current }

// Err implements Iterator.
func (m *merger) Err() error { return m.err }

// fail notes an error and reports whether there is none.
func (m *merger) fail(err error) bool {
	if err != nil {
		m.err = err
	}
	return m.err == nil
}

// step moves past the current key, or to the first one. It reports false after
// an error.
func (m *merger) step(ctx context.Context) bool {
	if m.err != nil {
		return false
	}
	if !m.started {
		m.started = true
		return m.start(ctx)
	}
	return m.skip(ctx)
}

func (m *merger) start(ctx context.Context) bool {
	for i, s := range m.sources {
		ok, err := s.start(ctx)
		if !m.fail(err) {
			return false
		}
		if ok {
			m.heap = append(m.heap, ranked{source: s, key: s.key(), rank: i})
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return true
}

// skip moves every source that stands at the top's key past it.
func (m *merger) skip(ctx context.Context) bool {
	if len(m.heap) == 0 {
		return true
	}
	for key := m.heap[0].key; len(m.heap) > 0 && m.heap[0].key == key; {
		if !m.advanceTop(ctx) {
			return false
		}
	}
	return true
}

// advanceTop moves the top source on by one entry.
func (m *merger) advanceTop(ctx context.Context) bool {
	ok, err := m.heap[0].source.advance(ctx)
	if !m.fail(err) {
		return false
	}
	m.settleTop(ok)
	return true
}

// settleTop restores the heap after the top source moved; it leaves the heap if
// it is not ok.
func (m *merger) settleTop(ok bool) {
	if ok {
		m.heap[0].key = m.heap[0].source.key()
	} else {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap[last] = ranked{}
		m.heap = m.heap[:last]
	}
	m.down(0)
}

// second returns the key that follows the top's, of another source.
func (m *merger) second() (string, bool) {
	switch {
	case len(m.heap) < 2:
		return "", false
	case len(m.heap) == 2 || m.less(1, 2):
		return m.heap[1].key, true
	}
	return m.heap[2].key, true
}

func (m *merger) less(i, j int) bool {
	a, b := &m.heap[i], &m.heap[j]
	if a.key != b.key {
		return (a.key < b.key) != m.reverse
	}
	return a.rank < b.rank
}

func (m *merger) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.less(child+1, child) {
			child++
		}
		if !m.less(child, i) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
