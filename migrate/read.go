package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// read fills the spool.
func (m *migration) read(ctx context.Context) error {
	err := m.readAll(ctx)
	if errors.Is(err, errDisk) {
		return err
	}
	// Whatever ended the reading, what was read is kept.
	if serr := m.checkpoint(); serr != nil {
		return errors.Join(err, serr)
	}
	if err != nil {
		return m.interruptedOr(ctx, err)
	}
	m.st.Phase, m.st.Position = PhaseCheck, nil
	return nil
}

// errDisk marks a failure of the state's own disk, after which nothing more is
// tried.
var errDisk = errors.New("the state cannot be saved")

// checkpoint saves position, counts and generation, once all entries up to the
// position are durable.
func (m *migration) checkpoint() error {
	generation, err := m.spool.Checkpoint()
	if err == nil {
		m.st.Generation = generation
		err = m.save()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	return nil
}

func (m *migration) readAll(ctx context.Context) error {
	pace := newPace(m.Rate)
	saved := time.Now()
	for restarts := 0; !m.st.ReadAll; {
		err := m.pages(ctx, func(p *source.Page) error {
			if err := m.take(p); err != nil {
				return err
			}
			m.st.Position, m.st.ReadAll = p.Next, p.Next == nil
			if time.Since(saved) >= m.CheckpointEvery {
				if err := m.checkpoint(); err != nil {
					return err
				}
				saved = time.Now()
			}
			return pace.wait(ctx, len(p.Records)+len(p.Faults))
		})
		if !errors.Is(err, source.ErrRestart) {
			return err
		}
		if restarts++; restarts > maxRestarts {
			return fmt.Errorf("the source was begun anew %d times and never read to its end: %w", maxRestarts, err)
		}
		if err := m.anew(err); err != nil {
			return err
		}
	}
	return nil
}

// pages reads from the position on.
func (m *migration) pages(ctx context.Context, each func(*source.Page) error) error {
	for page, err := range m.Source.Read(ctx, m.st.Position) {
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, source.ErrRestart) {
			return err
		}
		if err != nil {
			return fmt.Errorf("read the source: %w", err)
		}
		if err := each(&page); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// A source without a last page is at its end all the same.
	m.st.ReadAll = true
	return nil
}

// anew begins the reading again. The entries stay, for what is read again
// replaces them.
func (m *migration) anew(why error) error {
	m.note("%v: reading begins anew; nothing is lost, and what was read twice is dropped", why)
	if err := m.rewind(); err != nil {
		return err
	}
	return m.checkpoint()
}

// rewind goes back to the beginning of the source. Records that were rejected
// or had expired will be met again, so they are forgotten.
func (m *migration) rewind() error {
	c := &m.st.Counts
	c.Read -= c.Rejected + c.Expired
	c.Rejected, c.Expired = 0, 0
	m.st.Position, m.st.ReadAll = nil, false
	m.st.Restarts++
	clear(m.st.Reasons)
	if err := m.forgetRejects(); err != nil {
		return err
	}
	m.count(0)
	return nil
}

// take makes entries of a page.
func (m *migration) take(p *source.Page) error {
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
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := m.spool.Add(&e); err != nil {
			return fmt.Errorf("%w: %w", errDisk, err)
		}
		c.Mapped++
		m.Stats.Bytes.Add(int64(len(e.Key) + len(e.Value)))
	}
	m.count(c.Read)
	return nil
}

// entry maps a record and reports whether there is an entry; if not, the record
// is accounted for.
func (m *migration) entry(r *source.Record, e *spool.Entry) (bool, error) {
	err := m.mapper.Map(r, e)
	if err == nil {
		return true, nil
	}
	if errors.Is(err, mapping.ErrExpired) {
		m.st.Counts.Expired++
		return false, nil
	}
	return false, m.reject(source.Fault{Origin: r.Origin, Key: e.Key, Reason: err.Error()})
}

// count shows how far the reading is.
func (m *migration) count(done int64) {
	m.Stats.Read.Store(m.st.Counts.Read)
	m.Stats.Rejected.Store(m.st.Counts.Rejected)
	m.Stats.Done.Store(done)
}

// pace bounds a rate.
type pace struct{ l *rate.Limiter }

// newPace returns a pace of so many records a second, 0 for any. Pages are let
// through whole and paid for afterwards, a tenth of a second at a time.
func newPace(perSecond float64) pace {
	if perSecond <= 0 {
		return pace{}
	}
	return pace{rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/10)))}
}

func (p pace) wait(ctx context.Context, n int) error {
	for p.l != nil && n > 0 {
		part := min(n, p.l.Burst())
		if err := p.l.WaitN(ctx, part); err != nil {
			return err
		}
		n -= part
	}
	return ctx.Err()
}
