package migrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/migrate/spool"
)

// load sends the spool.
func (m *migration) load(ctx context.Context) error {
	if err := m.tooMany(); err != nil {
		return err
	}
	at, err := m.enter(ctx)
	if err != nil {
		return err
	}
	if err := m.settle(ctx, at.NextChunk); err != nil {
		return err
	}
	if err := m.sendSorted(ctx); err != nil {
		return err
	}
	if c := &m.st.Counts; c.Loaded != c.left() {
		return fmt.Errorf("%w: %d entries are loaded, and there are %d", ErrUnbalanced, c.Loaded, c.left())
	}
	return m.commit(ctx)
}

// built is a chunk that is ready to be sent.
type built struct {
	parcel
	body []byte
	last mark
	err  error
}

// sendSorted makes chunks of what is behind the last one, and sends them. One
// chunk is made while the one before is under way.
func (m *migration) sendSorted(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ready := make(chan built)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(ready)
		m.buildSorted(ctx, m.st.Last.Key, m.st.Chunks, ready)
	}()
	defer func() {
		cancel()
		<-done
	}()
	for b := range ready {
		if b.err != nil {
			return m.interruptedOr(ctx, b.err)
		}
		if err := m.write(b.parcel, b.body); err != nil {
			return err
		}
		m.st.Pending, m.st.Last, m.st.Chunks = []parcel{b.parcel}, b.last, b.Index+1
		if err := m.save(); err != nil {
			return err
		}
		if err := m.settle(ctx, b.Index); err != nil {
			return err
		}
	}
	return m.interruptedOr(ctx, ctx.Err())
}

// buildSorted makes chunks until the end, or until the context ends.
func (m *migration) buildSorted(ctx context.Context, after string, index int64, out chan<- built) {
	b := newBuilder(&m.Options)
	hand := func(err error) bool {
		c := built{err: err}
		if err == nil {
			p, body := b.take(index)
			c = built{parcel: p, body: slices.Clone(body), last: b.last}
			index++
		}
		select {
		case out <- c:
			return err == nil
		case <-ctx.Done():
			return false
		}
	}
	for e, err := range m.sorted(ctx, after, nil) {
		if err == nil && b.full(e) && !hand(nil) {
			return
		}
		if err == nil {
			err = b.add(e)
		}
		if err != nil {
			hand(err)
			return
		}
	}
	if b.w.Entries() > 0 {
		hand(nil)
	}
}

// entriesAfter yields what was loaded: from the spool, or from the source once
// more.
func (m *migration) entriesAfter(ctx context.Context, after string) entrySeq {
	if m.Order == OrderSort {
		return m.sorted(ctx, after, nil)
	}
	return func(yield func(*spool.Entry, error) bool) {
		m.again(ctx, after, yield)
	}
}
