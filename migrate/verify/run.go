package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/spool"
)

// Job is a source to be read for a verification.
type Job struct {
	Source source.Source
	// Map makes an entry of a record, as mapping.Mapper does.
	Map func(*source.Record, *spool.Entry) error
	// Mapping identifies how Map does it: another one needs another reading.
	Mapping string
	// Cut is the moment up to which the tree has what the source had. A source
	// that can tell is asked what has changed since; empty asks nothing.
	Cut   string
	Spool spool.Options
	// Wait is called with the number of records read, to keep a rate; nil does
	// not wait.
	Wait func(ctx context.Context, records int) error
}

const (
	readName    = "verify-read.json"
	entriesName = "entries"
	changesName = "changes"
	// saveRecords and saveEvery are what a crash may cost of the reading.
	saveRecords = 50_000
	saveEvery   = 15 * time.Second
	// maxRestarts bounds how often a source that cannot resume is begun anew.
	maxRestarts = 10
	// maxFaults is how many faults a report tells.
	maxFaults = 20
)

// reading is how far the source was read. It is saved.
type reading struct {
	Source  string `json:"source"`
	Mapping string `json:"mapping"`
	Cut     string `json:"cut"`
	Run     string `json:"run"`
	// Entries and Changes are the two passes.
	Entries passage `json:"entries"`
	Changes passage `json:"changes"`
	Counted Counted `json:"counted"`
	// Compared says that the comparison came to an end.
	Compared bool `json:"compared"`
}

// passage is one pass over the source.
type passage struct {
	Position   source.Position `json:"position,omitempty"`
	Generation int64           `json:"generation"`
	Done       bool            `json:"done"`
}

// reader reads a source into spools of digests.
type reader struct {
	job *Job
	o   *Options
	dir *durable.Dir
	r   reading
}

// Run reads the source again and compares it with the tree. It needs disk for
// key and digest of each entry, memory as the spool is told, and takes up where
// an earlier run with the same settings was ended, be it by a crash: in the
// reading as well as in the comparison.
func Run(ctx context.Context, job Job, t *client.Tree, o Options) (Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	rd := &reader{job: &job, o: &o, dir: o.Dir}
	if err := rd.open(ctx); err != nil {
		return Report{}, err
	}
	entries, changed, err := rd.read(ctx)
	if err != nil {
		return Report{}, err
	}
	o.Progress.begin(Comparing)
	o.Run, o.Expect, o.Changed = rd.r.Run, rd.r.Counted.Read, changed
	report, err := Against(ctx, entries, t, o)
	if err != nil {
		return Report{}, err
	}
	if info, err := job.Source.Inspect(ctx); err == nil {
		rd.r.Counted.After = info.Estimate
	}
	report.Counted = &rd.r.Counted
	rd.r.Compared = true
	if err := rd.save(); err != nil {
		return report, err
	}
	// The next reading makes the spools anew; these would only take room.
	return report, errors.Join(rd.clear(entriesName, rd.r.Entries), rd.clear(changesName, rd.r.Changes))
}

func (rd *reader) clear(name string, p passage) error {
	if p.Generation == 0 {
		return nil
	}
	dir, err := rd.dir.Sub(name)
	if err != nil {
		return err
	}
	sp, err := spool.Open(dir, p.Generation, rd.job.Spool)
	if err != nil {
		return err
	}
	return sp.Clear()
}

// open finds an unfinished reading, or begins one.
func (rd *reader) open(ctx context.Context) error {
	info, err := rd.job.Source.Inspect(ctx)
	if err != nil {
		return err
	}
	if rd.o.Source == "" {
		rd.o.Source = info.Identity
	}
	found, err := journal.Load(rd.dir, readName, &rd.r)
	if err != nil && !rd.o.Restart {
		return fmt.Errorf("%w; --restart begins anew", err)
	}
	if found && !rd.o.Restart && !rd.r.Compared {
		return rd.fits(info.Identity)
	}
	rd.r = reading{
		Source: info.Identity, Mapping: rd.job.Mapping, Cut: rd.job.Cut, Run: rand.Text(),
		Counted: Counted{Before: info.Estimate, After: -1},
	}
	return rd.save()
}

// fits refuses to go on with another source or mapping.
func (rd *reader) fits(identity string) error {
	for _, c := range []struct{ what, was, is string }{
		{"the source", rd.r.Source, identity}, {"the mapping", rd.r.Mapping, rd.job.Mapping}, {"the cut", rd.r.Cut, rd.job.Cut},
	} {
		if c.was != c.is {
			return fmt.Errorf("%w in %s: %s was %q and is %q; give the former, or --restart to begin anew", ErrOtherRun, rd.dir.Path(), c.what, c.was, c.is)
		}
	}
	rd.o.Progress.Read.Store(rd.r.Counted.Read)
	return nil
}

func (rd *reader) save() error { return journal.Save(rd.dir, readName, &rd.r) }

// read makes the two passes.
func (rd *reader) read(ctx context.Context) (Entries, Keys, error) {
	rd.o.Progress.begin(Reading)
	sp, err := rd.pass(ctx, entriesName, &rd.r.Entries, rd.job.Source.Read, rd.take)
	if err != nil {
		return nil, nil, err
	}
	changing, ok := rd.job.Source.(source.Changing)
	if rd.job.Cut == "" || !ok {
		return packed(sp.Sorted), nil, nil
	}
	rd.o.Progress.begin(ReadingChanges)
	since := func(ctx context.Context, from source.Position) iter.Seq2[source.Page, error] {
		return changing.ReadSince(ctx, rd.job.Cut, from)
	}
	ch, err := rd.pass(ctx, changesName, &rd.r.Changes, since, rd.takeChange)
	if errors.Is(err, source.ErrUnsupported) {
		return packed(sp.Sorted), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return packed(sp.Sorted), spooledKeys(ch.Sorted), nil
}

// pass reads all pages into a spool.
func (rd *reader) pass(
	ctx context.Context, name string, p *passage, read func(context.Context, source.Position) iter.Seq2[source.Page, error],
	take func(*source.Page, *spool.Spool) error,
) (*spool.Spool, error) {
	dir, err := rd.dir.Sub(name)
	if err != nil {
		return nil, err
	}
	sp, err := spool.Open(dir, p.Generation, rd.job.Spool)
	if err != nil {
		return nil, err
	}
	for restarts := 0; !p.Done; restarts++ {
		err := rd.pages(ctx, sp, p, read, take)
		switch {
		case err == nil:
		case !errors.Is(err, source.ErrRestart) || restarts == maxRestarts:
			return nil, fmt.Errorf("read the source: %w", err)
		default:
			if err := rd.again(sp, p); err != nil {
				return nil, err
			}
		}
	}
	return sp, nil
}

// again forgets what a pass has read.
func (rd *reader) again(sp *spool.Spool, p *passage) error {
	if p == &rd.r.Entries {
		rd.r.Counted = Counted{Before: rd.r.Counted.Before, After: -1}
		rd.o.Progress.Read.Store(0)
	}
	*p = passage{}
	// The state first: it must not know of runs that are gone.
	if err := rd.save(); err != nil {
		return err
	}
	return sp.Clear()
}

func (rd *reader) pages(
	ctx context.Context, sp *spool.Spool, p *passage, read func(context.Context, source.Position) iter.Seq2[source.Page, error],
	take func(*source.Page, *spool.Spool) error,
) error {
	unsaved, saved := 0, time.Now()
	for page, err := range read(ctx, p.Position) {
		if err != nil {
			return rd.stopped(sp, p, err)
		}
		if err := take(&page, sp); err != nil {
			return err
		}
		n := len(page.Records) + len(page.Faults)
		p.Position = page.Next
		if unsaved += n; page.Next != nil && (unsaved >= saveRecords || time.Since(saved) >= saveEvery) {
			if err := rd.checkpoint(sp, p); err != nil {
				return err
			}
			unsaved, saved = 0, time.Now()
		}
		if rd.job.Wait != nil && n > 0 {
			if err := rd.job.Wait(ctx, n); err != nil {
				return rd.stopped(sp, p, err)
			}
		}
	}
	p.Position, p.Done = nil, true
	return rd.checkpoint(sp, p)
}

// stopped saves what was read before the source, or the caller, ended it.
func (rd *reader) stopped(sp *spool.Spool, p *passage, err error) error {
	if errors.Is(err, source.ErrRestart) || p.Position == nil {
		return err
	}
	return errors.Join(err, rd.checkpoint(sp, p))
}

// checkpoint makes the entries durable, and then the state that tells of them.
func (rd *reader) checkpoint(sp *spool.Spool, p *passage) (err error) {
	if p.Generation, err = sp.Checkpoint(); err != nil {
		return err
	}
	return rd.save()
}

// take digests the records of a page.
func (rd *reader) take(page *source.Page, sp *spool.Spool) error {
	c := &rd.r.Counted
	c.Expired += page.Expired
	for i := range page.Faults {
		c.fault(&page.Faults[i])
	}
	var e spool.Entry
	for i := range page.Records {
		c.Read++
		err := rd.job.Map(&page.Records[i], &e)
		switch {
		case errors.Is(err, mapping.ErrExpired):
			c.Expired++
			continue
		case err != nil:
			c.fault(&source.Fault{Origin: page.Records[i].Origin, Reason: err.Error()})
			continue
		}
		it := NewItem(e.Key, e.Value, time.Time{}, e.Origin)
		e.Value, e.Type = it.Pack(), ""
		if err := sp.Add(&e); err != nil {
			return err
		}
	}
	rd.o.Progress.Read.Store(c.Read)
	return nil
}

// takeChange keeps the keys of changed records. One that cannot be mapped has
// been counted by the pass over all.
func (rd *reader) takeChange(page *source.Page, sp *spool.Spool) error {
	var e spool.Entry
	for i := range page.Records {
		err := rd.job.Map(&page.Records[i], &e)
		if e.Key == "" || err != nil && !errors.Is(err, mapping.ErrExpired) {
			continue
		}
		if err := sp.Add(&spool.Entry{Key: e.Key}); err != nil {
			return err
		}
	}
	rd.o.Progress.Changes.Add(int64(len(page.Records)))
	return nil
}

func (c *Counted) fault(f *source.Fault) {
	if c.Faults++; c.Faults <= maxFaults {
		c.FirstFaults = append(c.FirstFaults, source.Short(f.Origin)+": "+f.Reason)
	}
}
