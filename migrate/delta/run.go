package delta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/ledger"
)

// pass is one run.
type pass struct {
	Options
	st      state
	resumed bool
	// saved is the state as it is on the disk.
	saved state
	// apart says that the source's keys are listed for themselves: the reading
	// of its records was begun by an earlier process, and a key that it met then
	// may be another's by now, or back.
	apart   bool
	rejects *journal.File
	ledger  *ledger.Ledger
	// mu guards counts, rejects and ledger while several requests are on their
	// way.
	mu sync.Mutex
}

// Report is the account of a pass.
type Report struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Since is the cut that the changes were asked from, empty for a comparison;
	// Next that of the next pass.
	Since string `json:"since,omitempty"`
	Next  string `json:"next,omitempty"`
	Counts
	// TreeKeys and SourceKeys are how many keys were listed, for deletions.
	TreeKeys   int64 `json:"treeKeys,omitempty"`
	SourceKeys int64 `json:"sourceKeys,omitempty"`
	// Rejects lists rejected records, DeletesFile keys to be deleted.
	Rejects     string    `json:"rejects,omitempty"`
	DeletesFile string    `json:"deletesFile,omitempty"`
	Started     time.Time `json:"started"`
	// Complete says that everything is durable and the next cut recorded.
	Complete bool `json:"complete"`
}

// Run carries a pass out, or on. The report tells what was done, also beside an
// error. After an error, or a crash, Run with the same options goes on.
func Run(ctx context.Context, o Options) (r Report, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	p := &pass{Options: o}
	if p.Deletes {
		if err := p.checkLedger(); err != nil {
			return Report{}, err
		}
	}
	if err := p.load(); err != nil {
		return Report{}, err
	}
	if p.rejects, err = journal.Open(p.Dir, rejectName, p.st.RejectBytes); err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, p.rejects.Close()) }()
	if p.ledger, err = ledger.Append(p.Dir); err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, p.ledger.Close()) }()
	p.Progress.Written.Store(p.st.Counts.Written)
	p.Progress.Rejected.Store(p.st.Counts.Rejected)
	p.resume()
	if err := p.stages(ctx); err != nil {
		return p.report(false), err
	}
	if err := p.end(); err != nil {
		return p.report(false), err
	}
	return p.report(true), nil
}

// checkLedger refuses to delete where nobody knows what the migration wrote.
func (p *pass) checkLedger() error {
	ok, err := ledger.Exists(p.Dir)
	if err != nil || ok {
		return err
	}
	return fmt.Errorf("%w in %s, so that a key of somebody else cannot be told from one that the source has no more; \"lattice verify\" with the same source, tree and --state makes one", ledger.ErrNone, p.Dir.Path())
}

// resume tells what an earlier run left. Its lists of keys are worth nothing:
// what the source lacked then may be there again. Keys are only ever deleted by
// lists that the same run has made from their beginning.
func (p *pass) resume() {
	if !p.resumed {
		return
	}
	p.Notify(fmt.Sprintf("going on with the delta pass that was begun on %s: %d records read, %d written",
		p.st.Started.Format(time.DateTime), p.st.Counts.Read, p.st.Counts.Written))
	if !p.Deletes {
		return
	}
	position := p.st.Position
	begun := p.st.Stage == stageApply && (position != nil || p.st.Counts.Read > 0)
	if !begun && p.st.Stage == stageApply && !p.compares() {
		return
	}
	p.apart = p.compares() && (begun || p.st.Applied)
	p.relist()
	if begun {
		p.st.Stage, p.st.Position = stageApply, position
	}
}

// relist goes back to listing the keys of the tree.
func (p *pass) relist() {
	p.st.Stage = stageTree
	p.st.Position, p.st.After = nil, ""
	p.st.TreeKeys, p.st.TreeGeneration, p.st.SourceKeys, p.st.SourceGeneration = 0, 0, 0, 0
	p.st.Nameless, p.st.FirstNameless = 0, ""
}

// compares reports whether the source is read whole.
func (p *pass) compares() bool { return p.Since == "" }

func (p *pass) stages(ctx context.Context) error {
	for p.st.Stage != stageDone {
		next, err := p.stage(ctx)
		if err != nil {
			return err
		}
		if next == stageDone {
			return nil // recorded after the cut
		}
		p.st.Stage, p.st.Position = next, nil
		if err := p.save(); err != nil {
			return err
		}
	}
	return nil
}

// stage carries one stage out and returns the next one.
func (p *pass) stage(ctx context.Context) (stage, error) {
	switch p.st.Stage {
	case stageApply:
		err := p.apply(ctx)
		p.st.Applied = err == nil
		switch {
		case !p.Deletes:
			return stageDone, err
		case p.compares() && !p.apart:
			return stageDelete, err
		}
		return stageTree, err
	case stageTree:
		err := p.listTree(ctx)
		if !p.st.Applied {
			return stageApply, err
		}
		return stageSource, err
	case stageSource:
		return stageDelete, p.listSource(ctx)
	}
	err := p.delete(ctx)
	if errors.Is(err, ErrTooManyDeletes) || errors.Is(err, ErrUnreadable) {
		err = errors.Join(err, p.giveUp())
	}
	return stageDone, err
}

// giveUp ends a pass that may not delete. The next run begins another one, with
// any settings: until then the source, or a person's mind, may have changed.
func (p *pass) giveUp() error {
	p.st.Stage, p.st.Position = stageRefused, nil
	if err := p.save(); err != nil {
		return err
	}
	return errors.Join(p.clear(treeKeys, p.st.TreeGeneration), p.clear(sourceKeys, p.st.SourceGeneration))
}

// end records the cut of the next pass, now that all of this one is durable.
func (p *pass) end() error {
	if _, err := p.ledger.Sync(); err != nil {
		return err
	}
	if _, err := p.rejects.Sync(); err != nil {
		return err
	}
	started, created := p.origin()
	c := Cut{
		Source: p.st.Settings.Source, Target: p.st.Settings.Target, Cut: p.st.Next, At: p.st.Started, Started: started, TreeCreated: created,
		Size: p.st.Counts.Written + p.st.Counts.Deleted,
	}
	if err := journal.Save(p.Dir, cutName, c); err != nil {
		return err
	}
	p.st.Stage, p.st.Position = stageDone, nil
	if err := p.save(); err != nil {
		return err
	}
	return errors.Join(p.clear(treeKeys, p.st.TreeGeneration), p.clear(sourceKeys, p.st.SourceGeneration))
}

// origin is the moment from which times to live count, that of the migration,
// and that at which its tree was made.
func (p *pass) origin() (started, created time.Time) {
	if last, ok, err := LastCut(p.Dir); err == nil && ok {
		return last.Started, last.TreeCreated
	}
	return p.st.Started, time.Time{}
}

func (p *pass) report(complete bool) Report {
	r := Report{
		Source: p.st.Settings.Source, Target: p.st.Settings.Target, Since: p.Since, Next: p.st.Next, Counts: p.st.Counts,
		TreeKeys: p.st.TreeKeys, SourceKeys: p.st.SourceKeys, Started: p.st.Started, Complete: complete,
	}
	if p.st.Counts.Rejected > 0 {
		r.Rejects = p.Dir.Join(rejectName)
	}
	if p.Deletes {
		r.DeletesFile = p.Dir.Join(deletesName)
	}
	return r
}
