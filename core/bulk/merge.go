package bulk

import (
	"container/heap"
	"context"
	"strings"

	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/run"
)

// Merge merges iterators that are each in ascending order of keys. Where a key
// comes twice, in one or in two of them, it ends with a *DuplicateError.
func Merge(inputs ...run.Iterator) run.Iterator { return &merger{inputs: inputs} }

// merger is a heap of iterators that stand on an entry.
type merger struct {
	inputs  []run.Iterator
	started bool
	last    string
	err     error
}

// Next implements run.Iterator.
func (m *merger) Next(ctx context.Context) bool {
	if m.err != nil {
		return false
	}
	if !m.started {
		m.start(ctx)
	} else if len(m.inputs) > 0 {
		m.last = m.inputs[0].Entry().Key
		m.advance(ctx)
	}
	if m.err != nil || len(m.inputs) == 0 {
		return false
	}
	if key := m.inputs[0].Entry().Key; m.last != "" && key <= m.last {
		m.err = &DuplicateError{Key: strings.Clone(key), Index: -1}
		return false
	}
	return true
}

func (m *merger) start(ctx context.Context) {
	m.started = true
	standing := m.inputs[:0:0]
	for _, it := range m.inputs {
		if it.Next(ctx) {
			standing = append(standing, it)
		} else if m.err = it.Err(); m.err != nil {
			return
		}
	}
	m.inputs = standing
	heap.Init(m)
}

func (m *merger) advance(ctx context.Context) {
	top := m.inputs[0]
	if top.Next(ctx) {
		heap.Fix(m, 0)
		return
	}
	if m.err = top.Err(); m.err == nil {
		heap.Pop(m)
	}
}

// Entry implements run.Iterator.
func (m *merger) Entry() *record.Entry { return m.inputs[0].Entry() }

// Err implements run.Iterator.
func (m *merger) Err() error { return m.err }

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (m *merger) Len() int           { return len(m.inputs) }
func (m *merger) Less(i, j int) bool { return m.inputs[i].Entry().Key < m.inputs[j].Entry().Key }
func (m *merger) Swap(i, j int)      { m.inputs[i], m.inputs[j] = m.inputs[j], m.inputs[i] }
func (m *merger) Push(x any)         { m.inputs = append(m.inputs, x.(run.Iterator)) }
func (m *merger) Pop() any {
	last := m.inputs[len(m.inputs)-1]
	m.inputs = m.inputs[:len(m.inputs)-1]
	return last
}
