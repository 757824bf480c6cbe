package spool

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/klauspost/compress/zstd"
)

// fanIn is how many of the runs can be read at once within the memory.
func (s *Spool) fanIn() (int, error) {
	widest := 1
	for _, r := range s.runs {
		rd, err := openRun(s.dir.Join(r.name()), nil)
		if err != nil {
			return 0, err
		}
		widest = max(widest, rd.want.memory())
		rd.close()
	}
	return max(2, min(s.o.MaxFanIn, s.o.MergeMemory/widest)), nil
}

// merged yields the records of several runs in order; a record is valid until
// the next one is asked for.
func (s *Spool) merged(ctx context.Context, runs []span) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		m, err := s.openMerge(runs)
		if err != nil {
			yield(nil, err)
			return
		}
		defer m.close()
		for n := 0; ; n++ {
			if n%4096 == 0 && ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			rec, err := m.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// merge is a heap of runs by their next record.
type merge struct {
	all   []*cursor
	queue []*cursor
	zip   *zstd.Decoder
}

// cursor stands at a record of a run; place orders runs of the same key.
type cursor struct {
	*runReader
	rec, key []byte
	place    int
}

func (s *Spool) openMerge(runs []span) (*merge, error) {
	zip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		return nil, err
	}
	m := &merge{zip: zip}
	for i, r := range runs {
		rd, err := openRun(s.dir.Join(r.name()), zip)
		if err != nil {
			m.close()
			return nil, err
		}
		c := &cursor{runReader: rd, place: i}
		m.all = append(m.all, c)
		if more, err := c.advance(); err != nil {
			m.close()
			return nil, err
		} else if more {
			m.queue = append(m.queue, c)
		}
	}
	heap.Init(m)
	return m, nil
}

// advance moves to the next record and reports whether there is one.
func (c *cursor) advance() (bool, error) {
	c.last = append(c.last[:0], c.key...)
	rec, err := c.next()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.rec, c.key = rec, recordKey(rec)
	if c.started && bytes.Compare(c.key, c.last) < 0 {
		return false, c.corrupt("its records are not in order")
	}
	c.started = true
	return true, nil
}

// next returns the least record. The cursor it came from moves on with the
// next call, for it owns the record's memory.
func (m *merge) next() ([]byte, error) {
	if len(m.queue) > 0 && m.queue[0].rec == nil {
		more, err := m.queue[0].advance()
		if err != nil {
			return nil, err
		}
		if more {
			heap.Fix(m, 0)
		} else {
			heap.Pop(m)
		}
	}
	if len(m.queue) == 0 {
		return nil, io.EOF
	}
	top := m.queue[0]
	rec := top.rec
	top.rec = nil
	return rec, nil
}

func (m *merge) close() {
	for _, c := range m.all {
		c.close()
	}
	m.zip.Close()
}

// Len implements heap.Interface.
func (m *merge) Len() int { return len(m.queue) }

// Less implements heap.Interface.
func (m *merge) Less(i, j int) bool {
	if c := bytes.Compare(m.queue[i].key, m.queue[j].key); c != 0 {
		return c < 0
	}
	return m.queue[i].place < m.queue[j].place
}

// Swap implements heap.Interface.
func (m *merge) Swap(i, j int) { m.queue[i], m.queue[j] = m.queue[j], m.queue[i] }

// Push implements heap.Interface.
func (m *merge) Push(x any) { m.queue = append(m.queue, x.(*cursor)) }

// Pop implements heap.Interface.
func (m *merge) Pop() any {
	last := m.queue[len(m.queue)-1]
	m.queue = m.queue[:len(m.queue)-1]
	return last
}
