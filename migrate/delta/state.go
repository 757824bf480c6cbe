package delta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/source"
)

// The files of a pass, in the folder of the migration.
const (
	stateName   = "delta.json"
	rejectName  = "delta-rejects.ndjson"
	deletesName = "delta-deletes.ndjson"
	cutName     = "cut.json"
	treeKeys    = "delta-tree"
	sourceKeys  = "delta-source"
	// reportName is what the migration left.
	reportName = "report.json"
)

// Counts are the account of a pass.
type Counts struct {
	// Read counts records read for changes.
	Read int64 `json:"read"`
	// Written counts those that were written, Same those that the tree had
	// already, Expired those that had expired, Rejected those that could not be
	// written.
	Written  int64 `json:"written"`
	Same     int64 `json:"same"`
	Expired  int64 `json:"expired"`
	Rejected int64 `json:"rejected"`
	// Deleted counts keys that were deleted, Kept those that the source has no
	// more and that were not, because somebody else has written them or nobody
	// knows who has.
	Deleted int64 `json:"deleted"`
	Kept    int64 `json:"kept"`
}

// stage is what is to be done next.
type stage string

const (
	stageApply  stage = "apply"
	stageTree   stage = "tree"
	stageSource stage = "source"
	stageDelete stage = "delete"
	stageDone   stage = "done"
	// stageRefused is a pass that was not allowed to delete.
	stageRefused stage = "refused"
)

// state is what the next run must know.
type state struct {
	Settings settings  `json:"settings"`
	Next     string    `json:"next"`
	Started  time.Time `json:"started"`
	Stage    stage     `json:"stage"`
	Counts   Counts    `json:"counts"`
	// Position is where the pass over the source stands.
	Position source.Position `json:"position,omitempty"`
	// Applied says that all changes are written, Touched that some may be.
	Applied bool `json:"applied,omitempty"`
	Touched bool `json:"touched,omitempty"`
	// After is the last key of the tree that was listed.
	After string `json:"after,omitempty"`
	// Tree and Source are the keys listed, Generation those of their spools.
	TreeKeys         int64 `json:"treeKeys"`
	TreeGeneration   int64 `json:"treeGeneration"`
	SourceKeys       int64 `json:"sourceKeys"`
	SourceGeneration int64 `json:"sourceGeneration"`
	// Nameless counts records without a key that could not be read;
	// FirstNameless is where the first one is, and why.
	Nameless      int64  `json:"nameless"`
	FirstNameless string `json:"firstNameless,omitempty"`
	RejectBytes   int64  `json:"rejectBytes"`
}

// Cut is up to when a tree is up to date.
type Cut struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Cut is what the source called that moment; empty if it cannot tell changes.
	Cut string `json:"cut"`
	// At is when the pass began that reached it; Started is the moment from which
	// times to live count.
	At      time.Time `json:"at"`
	Started time.Time `json:"started"`
	// TreeCreated is when the tree was made that the migration has loaded; zero
	// if nobody knows it.
	TreeCreated time.Time `json:"treeCreated,omitzero"`
	// Size is how many keys the pass wrote and deleted; -1 for the migration.
	Size int64 `json:"size"`
}

// LastCut returns what the last pass that ended left in a folder, or else the
// migration; ok is false if neither came to its end. A pass over an earlier
// migration does not count.
func LastCut(d *durable.Dir) (c Cut, ok bool, err error) {
	var pass Cut
	passed, err := journal.Load(d, cutName, &pass)
	if err != nil {
		return c, false, err
	}
	c, ok, err = migrationCut(d)
	if passed && !(ok && c.Started.After(pass.At)) {
		return pass, true, err
	}
	return c, ok, err
}

// migrationCut reads the report of the migration.
func migrationCut(d *durable.Dir) (c Cut, ok bool, err error) {
	b, err := d.Read(reportName)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("read report of the migration: %w", err)
	}
	var r struct {
		Source   string    `json:"source"`
		Target   string    `json:"target"`
		Cut      string    `json:"cut"`
		Started  time.Time `json:"started"`
		Created  time.Time `json:"treeCreated"`
		Complete bool      `json:"complete"`
		Phase    string    `json:"phase"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return c, false, fmt.Errorf("%w: %s", journal.ErrCorrupt, d.Join(reportName))
	}
	// What differs at the end of a migration is mended by a delta pass.
	loaded := r.Complete || r.Phase == "verify" || r.Phase == "done"
	return Cut{r.Source, r.Target, r.Cut, r.Started, r.Started, r.Created, -1}, loaded, nil
}

// load finds an unfinished pass, or begins one.
func (p *pass) load() error {
	now := settings{p.Info.Identity, p.SourceName, p.Target, p.Mapping, p.Since, p.Deletes, p.Prefix}
	found, err := journal.Load(p.Dir, stateName, &p.st)
	switch {
	case err != nil && !p.Restart:
		return fmt.Errorf("%w; --restart begins the pass anew", err)
	case !found || p.Restart || p.st.Stage == stageDone || p.st.Stage == stageRefused:
		return p.begin(now)
	case p.st.Settings != now:
		return p.replace(now)
	}
	p.resumed, p.saved = true, p.st
	return nil
}

// begin makes the state of a pass that is new.
func (p *pass) begin(now settings) error {
	p.st = state{Settings: now, Next: p.Info.Cut, Started: p.Now().UTC(), Stage: stageApply}
	if p.Deletes && p.Since == "" {
		p.st.Stage = stageTree // its keys first: the comparison lists those of the source
	}
	p.saved = p.st
	return journal.Save(p.Dir, stateName, &p.st)
}

// replace begins another pass in place of an unfinished one, where nothing is
// lost by that.
func (p *pass) replace(now settings) error {
	was := p.st.Settings
	d := was.difference(&now)
	if p.st.Touched && !d.covered {
		return fmt.Errorf("%w in %s: %s; run the former to its end, or give --restart to begin anew", ErrOtherPass, p.Dir.Path(), d)
	}
	p.Notify(fmt.Sprintf("%s: instead of the unfinished delta pass another one is begun", d))
	return p.begin(now)
}

// save makes everything durable that the state tells of, and then the state.
func (p *pass) save() (err error) {
	if _, err := p.ledger.Sync(); err != nil {
		return err
	}
	if p.st.RejectBytes, err = p.rejects.Sync(); err != nil {
		return err
	}
	if err := journal.Save(p.Dir, stateName, &p.st); err != nil {
		return err
	}
	p.saved = p.st
	return nil
}

// touch records, before the first time, that the tree is about to be changed.
// What the disk knows of the pass otherwise stays.
func (p *pass) touch() error {
	if p.st.Touched {
		return nil
	}
	p.st.Touched, p.saved.Touched = true, true
	return journal.Save(p.Dir, stateName, &p.saved)
}
