package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/spool"
)

// Verification is what a comparison of the tree works with.
type Verification struct {
	// Dir is a folder for its state, kept over a crash; State is the folder of
	// the migration.
	Dir, State *durable.Dir
	// Session identifies what was loaded.
	Session string
	// Entries yields what was loaded, ascending, behind a key. An entry is valid
	// until the next one.
	Entries func(ctx context.Context, after string) iter.Seq2[*spool.Entry, error]
	// Expect is how many entries there are; some may have expired since.
	Expect int64
	// LiveKeys is what the service counted when the load was committed.
	LiveKeys int64
}

// Verdict is the outcome of a comparison.
type Verdict struct {
	// Equal says that nothing differs.
	Equal bool
	// Text says in a sentence what was found.
	Text string
	// Report is for programs; it must have a JSON form.
	Report any
}

// Report is the account of a migration.
type Report struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Tree   string `json:"tree"`
	// State is the folder, Rejects the file that lists rejected records.
	State   string `json:"state"`
	Rejects string `json:"rejects"`
	Phase   Phase  `json:"phase"`
	// Complete says that every record is accounted for, that the entries are
	// durable in the tree, and that a comparison, if there was one, found no
	// difference.
	Complete bool `json:"complete"`
	// Earlier says that an earlier run has completed it, and that this one has
	// looked at the tree alone.
	Earlier bool `json:"earlier,omitempty"`
	Counts
	// InFlight counts entries that were being sent and have not been
	// acknowledged: some or all of them may be in the tree beside Loaded.
	InFlight int64 `json:"inFlight,omitempty"`
	// Chunks are those of the entries loaded.
	Chunks int64 `json:"chunks"`
	// TotalLiveKeys is what the service counted at the end of the load, or now
	// if Earlier is set. TreeCreated is when the tree was made.
	TotalLiveKeys int64     `json:"totalLiveKeys"`
	TreeCreated   time.Time `json:"treeCreated,omitzero"`
	// OverLimit counts entries that an ordinary write would be refused for.
	OverLimit int64            `json:"overLimit"`
	Reasons   map[string]int64 `json:"rejectedFor,omitempty"`
	Lossy     []LossCount      `json:"lossyConversions,omitempty"`
	// Verified is nil if nothing was compared.
	Verified     *bool           `json:"verified"`
	Verification json.RawMessage `json:"verification,omitempty"`
	// Cut is the moment of the reading, for a later pass over what has changed.
	Cut     string    `json:"cut,omitempty"`
	Started time.Time `json:"started"`
}

// verdict is a Verdict as it is saved.
type verdict struct {
	Equal  bool            `json:"equal"`
	Text   string          `json:"text"`
	Report json.RawMessage `json:"report,omitempty"`
}

// verify compares, if that is asked for, and ends the migration.
func (m *migration) verify(ctx context.Context) error {
	if m.resumed {
		// What was counted by an earlier run may not be so any more.
		if err := m.countTree(ctx); err != nil {
			return err
		}
	}
	if err := m.shortfall(); err != nil {
		return err
	}
	if m.Verify != nil {
		if err := m.compare(ctx); err != nil {
			return m.interruptedOr(ctx, err)
		}
	}
	m.st.Phase = PhaseDone
	return nil
}

// shortfall compares the count of the service with that of the entries. Those
// that were to expire may be gone; keys beyond them are somebody else's.
func (m *migration) shortfall() error {
	c := &m.st.Counts
	switch live := m.st.LiveKeys; {
	case live < c.Loaded-c.Expiring:
		return fmt.Errorf("%w: %d entries were loaded, %d of them without an expiry, and the tree has only %d keys", ErrDiffers, c.Loaded, c.Loaded-c.Expiring, live)
	case live > c.Loaded:
		m.note("the tree has %d keys, %d more than were loaded: somebody else has written to it", live, live-c.Loaded)
	}
	return nil
}

func (m *migration) compare(ctx context.Context) error {
	sub, err := m.dir.Sub(verifyName)
	if err != nil {
		return err
	}
	out, err := m.Verify(ctx, &Verification{Dir: sub, State: m.dir, Session: m.st.Session, Entries: func(ctx context.Context, after string) iter.Seq2[*spool.Entry, error] {
		return m.entriesAfter(ctx, after)
	}, Expect: m.st.Counts.Loaded, LiveKeys: m.st.LiveKeys})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	v := verdict{Equal: out.Equal, Text: out.Text}
	if v.Report, err = json.Marshal(out.Report); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if m.st.Verdict, err = json.Marshal(v); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !out.Equal {
		return errors.Join(fmt.Errorf("%w: %s", ErrDiffers, out.Text), m.save())
	}
	return nil
}

// finish writes the report, and what is no longer needed goes.
func (m *migration) finish(err error) (Report, error) {
	r := m.report()
	if err == nil && r.Read != r.Loaded+r.Rejected+r.Duplicates+r.Expired {
		err = fmt.Errorf("%w: %d records were read, %d loaded, %d rejected, %d duplicates, %d expired", ErrUnbalanced, r.Read, r.Loaded, r.Rejected, r.Duplicates, r.Expired)
	}
	r.Complete = err == nil && m.st.Phase == PhaseDone
	b, jerr := json.MarshalIndent(r, "", "  ")
	if jerr == nil {
		jerr = m.dir.Write(reportName, append(b, '\n'))
	}
	if r.Complete && jerr == nil {
		jerr = os.RemoveAll(m.dir.Join(spoolName))
	}
	return r, errors.Join(err, jerr)
}

func (m *migration) report() Report {
	r := Report{
		Source: m.st.Source, Target: m.st.Target, Tree: m.Tree, State: m.dir.Path(), Rejects: m.dir.Join(rejectName), Phase: m.st.Phase,
		Counts: m.st.Counts, Chunks: m.st.Chunks, TotalLiveKeys: m.st.LiveKeys, OverLimit: m.st.OverLimit, Reasons: m.st.Reasons,
		Lossy: m.st.Lossy, Cut: m.st.Cut, Started: m.st.Started, TreeCreated: m.st.TreeCreated, Earlier: m.earlier,
	}
	for _, p := range m.st.Pending {
		r.InFlight += p.Entries
	}
	r.Chunks -= int64(len(m.st.Pending))
	var v verdict
	if len(m.st.Verdict) > 0 && json.Unmarshal(m.st.Verdict, &v) == nil {
		r.Verified, r.Verification = &v.Equal, v.Report
	}
	return r
}
