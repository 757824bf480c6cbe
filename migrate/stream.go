package migrate

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

type entrySeq = iter.Seq2[*spool.Entry, error]

// stream makes chunks of the pages of a source that is in order. Whole pages
// go into a batch of chunks; when they are on the disk, the position after the
// pages and the chunks are saved together, and then the chunks are sent.
func (m *migration) stream(ctx context.Context) error {
	at, err := m.enter(ctx)
	if err != nil {
		return err
	}
	if err := m.settle(ctx, at.NextChunk); err != nil {
		return err
	}
	if err := m.streamAll(ctx); err != nil {
		return m.interruptedOr(ctx, err)
	}
	if c := &m.st.Counts; c.Loaded != c.left() {
		return fmt.Errorf("%w: %d entries are loaded, and there are %d", ErrUnbalanced, c.Loaded, c.left())
	}
	m.st.Position = nil
	return m.commit(ctx)
}

// batch is the chunks of the pages since the last save.
type batch struct {
	*builder
	parcels []parcel
}

func (m *migration) streamAll(ctx context.Context) error {
	pace := newPace(m.Rate)
	b := &batch{builder: newBuilder(&m.Options)}
	b.last, b.hasLast = m.st.Last, m.st.Last.Key != ""
	for restarts := 0; !m.st.ReadAll; {
		err := m.pages(ctx, func(p *source.Page) error {
			if err := m.chunkPage(p, b); err != nil {
				return err
			}
			m.st.Position, m.st.ReadAll = p.Next, p.Next == nil
			if len(b.parcels) > 0 {
				if err := m.sendBatch(ctx, b); err != nil {
					return err
				}
			}
			return pace.wait(ctx, len(p.Records)+len(p.Faults))
		})
		if !errors.Is(err, source.ErrRestart) {
			if err != nil {
				return err
			}
			break
		}
		if restarts++; restarts > maxRestarts {
			return fmt.Errorf("the source was begun anew %d times and never read to its end: %w", maxRestarts, err)
		}
		m.note("%v: reading begins anew; what is loaded is passed over", err)
		m.st.Passed = b.last.Key
		if err := m.rewind(); err != nil {
			return err
		}
	}
	return m.sendBatch(ctx, b)
}

// chunkPage adds a page to the batch.
func (m *migration) chunkPage(p *source.Page, b *batch) error {
	c := &m.st.Counts
	c.Read += p.Expired
	c.Expired += p.Expired
	for i := range p.Faults {
		c.Read++
		if err := m.reject(p.Faults[i]); err != nil {
			return err
		}
	}
	var e spool.Entry
	for i := range p.Records {
		c.Read++
		ok, err := m.entry(&p.Records[i], &e)
		if ok && err == nil {
			ok, err = m.inOrder(&e, b)
		}
		if err == nil && ok {
			err = m.chunkEntry(&e, b)
		}
		if err != nil {
			return err
		}
	}
	m.count(c.Read)
	return m.tooMany()
}

func (m *migration) chunkEntry(e *spool.Entry, b *batch) error {
	if b.full(e) {
		if err := m.cut(b); err != nil {
			return err
		}
	}
	m.st.Counts.Mapped++
	if e.Expiry != 0 {
		m.st.Counts.Expiring++
	}
	m.Stats.Bytes.Add(int64(len(e.Key) + len(e.Value)))
	return b.add(e)
}

// cut writes what was gathered as the next chunk of the batch.
func (m *migration) cut(b *batch) error {
	p, body := b.take(m.st.Chunks + int64(len(b.parcels)))
	if err := m.write(p, body); err != nil {
		return err
	}
	b.parcels = append(b.parcels, p)
	return nil
}

// inOrder compares the entry with the one before, and reports whether it is to
// be loaded. An entry of the same key is accounted for.
func (m *migration) inOrder(e *spool.Entry, b *batch) (bool, error) {
	if m.st.Passed != "" && e.Key <= m.st.Passed {
		m.st.Counts.Mapped++
		m.duplicate(e.Key, e.Origin, e.Origin)
		return false, nil
	}
	if !b.hasLast || e.Key > b.last.Key {
		return true, nil
	}
	if e.Key < b.last.Key {
		return false, fmt.Errorf("%w: key %q of %s follows key %q of %s and sorts before it; run with --order sort and --restart, in an empty tree, to have it sorted on disk",
			ErrOrder, e.Key, e.Origin, b.last.Key, b.last.Origin)
	}
	m.st.Counts.Mapped++
	if b.last.Origin == e.Origin || b.last.Digest == contentDigest(e) {
		m.duplicate(e.Key, b.last.Origin, e.Origin)
		return false, nil
	}
	return false, m.reject(conflict(e, b.last.Origin))
}

// sendBatch saves the position with the chunks before it, and sends them.
func (m *migration) sendBatch(ctx context.Context, b *batch) error {
	if b.w.Entries() > 0 {
		if err := m.cut(b); err != nil {
			return err
		}
	}
	m.st.Pending, m.st.Chunks = b.parcels, m.st.Chunks+int64(len(b.parcels))
	m.st.Last = b.last
	next := m.st.Chunks - int64(len(b.parcels))
	b.parcels = nil
	if err := m.save(); err != nil {
		return err
	}
	return m.settle(ctx, next)
}

// again reads the source once more, for a comparison.
func (m *migration) again(ctx context.Context, after string, yield func(*spool.Entry, error) bool) {
	mapper, err := m.Mapper(m.st.Started)
	if err != nil {
		yield(nil, err)
		return
	}
	last := ""
	for page, err := range m.Source.Read(ctx, nil) {
		if err != nil {
			yield(nil, fmt.Errorf("read the source: %w", err))
			return
		}
		for i := range page.Records {
			var e spool.Entry
			// What cannot be mapped now was rejected then, or has expired.
			if mapper.Map(&page.Records[i], &e) != nil || e.Key <= max(last, after) {
				continue
			}
			last = e.Key
			if !yield(&e, nil) {
				return
			}
		}
	}
}
