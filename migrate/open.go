package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/spool"
)

var (
	// ErrTooManyRejects: more records were rejected than Options.MaxRejects.
	// Nothing of a sorted migration has been loaded by then.
	ErrTooManyRejects = errors.New("too many rejected records")
	// ErrPatience: the service stayed busy or out of reach for RetryFor.
	ErrPatience = errors.New("the service did not recover in time")
	// ErrNotEmpty: the tree holds keys already.
	ErrNotEmpty = errors.New("the tree is not empty")
	// ErrNoTree: the tree is not there, or was deleted.
	ErrNoTree = errors.New("the tree is not there")
	// ErrOtherTree: the tree of that name is not the one that was loaded.
	ErrOtherTree = errors.New("the tree is not the one that was loaded")
	// ErrSessionLost: the service does not know the load any more.
	ErrSessionLost = errors.New("the service has lost the load")
	// ErrOrder: a source that was to be in order is not.
	ErrOrder = errors.New("the source is not in the order of its keys")
	// ErrUnbalanced: the counts contradict each other. Something was lost.
	ErrUnbalanced = errors.New("the account does not balance")
	// ErrDiffers: the tree differs from what was loaded.
	ErrDiffers = errors.New("the tree differs from the source")
	// ErrInterrupted: the context ended. What was done is saved.
	ErrInterrupted = errors.New("interrupted; what was done is saved, and the same command goes on")
)

// migration is one run.
type migration struct {
	Options
	dir     *durable.Dir
	lock    *durable.Lock
	st      *state
	mapper  *mapping.Mapper
	spool   *spool.Spool
	rejects *journal.File
	// told are the kinds of reasons that Notify has been told.
	told map[string]bool
	// toldTwice says that it was told of a record that came twice.
	toldTwice bool
	// lossyBefore are the conversions of earlier runs.
	lossyBefore map[mapping.Loss]int64
	// reached says that the service has answered.
	reached bool
	// resumed says that an earlier run left something, earlier that it left
	// nothing to do.
	resumed, earlier bool
}

// Run carries a migration out, or on. The report tells what was done, also
// beside an error. After an error, or a crash, Run with the same options goes
// on; a migration that is done is not done again.
func Run(ctx context.Context, o Options) (Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	m := &migration{Options: o, told: map[string]bool{}}
	defer m.close()
	if err := m.open(ctx); err != nil {
		return Report{}, err
	}
	err = m.phases(ctx)
	return m.finish(err)
}

// open takes the folder and reads the state, or makes one.
func (m *migration) open(ctx context.Context) (err error) {
	if err := CheckFolder(m.Dir); err != nil {
		return err
	}
	if m.dir, err = durable.Open(m.Dir, m.Step); err != nil {
		return err
	}
	if m.lock, err = m.dir.Lock(); err != nil {
		return err
	}
	if m.Restart {
		// What was done is worth keeping until it is sure that another
		// migration can begin.
		if err := m.checkEmpty(ctx); err != nil {
			return err
		}
		if err := m.discard(ctx); err != nil {
			return err
		}
	}
	if err := m.dir.Sweep(); err != nil {
		return err
	}
	m.st = &state{}
	found, err := journal.Load(m.dir, stateName, m.st)
	if err != nil {
		return fmt.Errorf("%w; --restart discards what was done", err)
	}
	if found {
		m.resumed = true
		if err := m.st.fits(&m.Options); err != nil {
			return err
		}
	} else if err := m.begin(ctx); err != nil {
		return err
	}
	return m.openFiles()
}

// begin makes the state of a migration that is new.
func (m *migration) begin(ctx context.Context) error {
	if err := m.checkEmpty(ctx); err != nil {
		return err
	}
	m.st = newState(&m.Options)
	return m.st.save(m.dir)
}

func (m *migration) openFiles() (err error) {
	if m.mapper, err = m.Mapper(m.st.Started); err != nil {
		return err
	}
	if m.st.Phase == PhaseRead {
		m.st.Consistent = m.st.Consistent && m.Info.Consistent
	}
	if m.st.Reasons == nil {
		m.st.Reasons = map[string]int64{}
	}
	m.lossyBefore = map[mapping.Loss]int64{}
	for _, l := range m.st.Lossy {
		m.lossyBefore[l.Loss] = l.Count
	}
	if m.rejects, err = journal.Open(m.dir, rejectName, m.st.RejectBytes); err != nil {
		return err
	}
	m.Stats.Read.Store(m.st.Counts.Read)
	m.Stats.Rejected.Store(m.st.Counts.Rejected)
	m.Stats.Loaded.Store(m.st.Counts.Loaded)
	if m.Order != OrderSort || m.st.Phase == PhaseDone {
		return nil
	}
	sub, err := m.dir.Sub(spoolName)
	if err != nil {
		return err
	}
	m.spool, err = spool.Open(sub, m.st.Generation, m.Spool)
	return err
}

func (m *migration) close() {
	if m.rejects != nil {
		_ = m.rejects.Close()
	}
	if m.lock != nil {
		m.lock.Unlock()
	}
}

// discard removes what an earlier run left, and ends its load.
func (m *migration) discard(ctx context.Context) error {
	old := &state{}
	found, err := journal.Load(m.dir, stateName, old)
	if err == nil && found && old.Begun && !old.Committed && old.Target == m.TargetName {
		err := m.patiently(ctx, func() error {
			_, err := m.Target.AbortBulkLoad(ctx, old.Session)
			return err
		})
		if err != nil && !lost(err) && !errors.Is(err, client.ErrOperationMismatch) {
			return fmt.Errorf("end the load of the earlier run: %w", err)
		}
	}
	return m.removeAll()
}

// removeAll removes the files of a migration, the state first: without it the
// others mean nothing.
func (m *migration) removeAll() error {
	names, err := m.dir.Names()
	if err != nil {
		return err
	}
	for _, n := range append([]string{stateName}, names...) {
		if !ours(n) {
			continue
		}
		if err := m.dir.Remove(n); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(m.dir.Join(spoolName)), os.RemoveAll(m.dir.Join(verifyName)))
}

// ours reports whether a file belongs to a migration, or to what follows it.
func ours(name string) bool {
	if name == stateName || name == rejectName || name == reportName || strings.HasSuffix(name, durable.Suffix) {
		return true
	}
	for _, prefix := range []string{"chunk-", "ledger", "verify", "delta"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// save makes the state durable, and before it what it tells of.
func (m *migration) save() error {
	var err error
	if m.st.RejectBytes, err = m.rejects.Sync(); err != nil {
		return err
	}
	total := maps.Clone(m.lossyBefore)
	for l, n := range m.mapper.Lossy() {
		total[l] += n
	}
	m.st.Lossy = m.st.Lossy[:0]
	for _, l := range mapping.Losses(total) {
		m.st.Lossy = append(m.st.Lossy, LossCount{l, total[l]})
	}
	return m.st.save(m.dir)
}

// phases goes through what is left to do.
func (m *migration) phases(ctx context.Context) error {
	if m.st.Phase == PhaseDone {
		return m.lookAgain(ctx)
	}
	if m.resumed {
		m.note("going on with the migration that was begun on %s: %d records read, %d entries loaded",
			m.st.Started.Format(time.DateTime), m.st.Counts.Read, m.st.Counts.Loaded)
	}
	for {
		phase := m.st.Phase
		if phase == PhaseDone {
			return nil
		}
		m.gauge()
		m.Notify(Event{Kind: EventPhase, Text: string(m.phaseName())})
		if err := m.phase(ctx); err != nil {
			return err
		}
		if err := m.save(); err != nil {
			return err
		}
	}
}

// gauge sets what is done of the phase that begins, and what there is to do.
func (m *migration) gauge() {
	done, total := int64(0), int64(0)
	switch c := &m.st.Counts; m.st.Phase {
	case PhaseRead:
		done, total = c.Read, max(m.Info.Estimate, 0)
	case PhaseCheck:
		total = c.Mapped
	case PhaseLoad:
		done, total = c.Loaded, c.left()
	case PhaseVerify:
		total = c.Loaded
	}
	m.Stats.Done.Store(done)
	m.Stats.Total.Store(total)
}

// phaseName is the phase for people: a source in order is read and loaded at
// once.
func (m *migration) phaseName() Phase {
	if m.Order == OrderSource && m.st.Phase == PhaseRead {
		return PhaseLoad
	}
	return m.st.Phase
}

// phase carries one phase out and sets the next one.
func (m *migration) phase(ctx context.Context) error {
	switch {
	case m.st.Phase == PhaseRead && m.Order == OrderSource:
		return m.stream(ctx)
	case m.st.Phase == PhaseRead:
		return m.read(ctx)
	case m.st.Phase == PhaseCheck:
		return m.check(ctx)
	case m.st.Phase == PhaseLoad:
		return m.load(ctx)
	}
	return m.verify(ctx)
}

func (m *migration) note(format string, args ...any) {
	m.Notify(Event{Kind: EventNote, Text: fmt.Sprintf(format, args...)})
}
