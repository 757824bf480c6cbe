package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/ledger"
)

// The files of a verification.
const (
	stateName       = "verify.json"
	differencesName = "verify.ndjson"
	prefixesName    = "verify-prefixes.ndjson"
	rangesName      = "verify-ranges.ndjson"
)

// settings are what makes two runs the same verification.
type settings struct {
	Source    string        `json:"source"`
	Target    string        `json:"target"`
	Prefix    string        `json:"prefix"`
	Values    Level         `json:"values"`
	Share     float64       `json:"share"`
	Expect    int64         `json:"expect"`
	Depth     int           `json:"depth"`
	Separator string        `json:"separator"`
	RangeSize int           `json:"rangeSize"`
	Tolerance time.Duration `json:"tolerance"`
	Boundary  int           `json:"boundary"`
	Changed   bool          `json:"changed"`
	Ledger    string        `json:"ledger"`
	Run       string        `json:"run"`
}

// forRun returns the settings for another run.
func (s settings) forRun(run string, expect int64) settings {
	s.Run, s.Expect = run, expect
	return s
}

func (o *Options) settings() settings {
	ledgers := ""
	if o.Ledger != nil {
		ledgers = o.Ledger.Path()
	}
	return settings{
		o.Source, o.Target, o.Prefix, o.Values, o.Share, o.Expect, o.Depth, o.Separator,
		o.RangeSize, o.Tolerance, o.Boundary, o.Changed != nil, ledgers, o.Run,
	}
}

// state is what is saved with each range. Between ranges nothing is pending.
type state struct {
	Settings settings  `json:"settings"`
	Started  time.Time `json:"started"`
	// After is the last key dealt with; Begun says that there is one.
	After string `json:"after"`
	Total Tally  `json:"total"`
	// Open are the prefixes not finished, Opened how many there were.
	Open   []*bucket `json:"open,omitempty"`
	Opened int64     `json:"opened"`
	Ranges int64     `json:"ranges"`
	// Closed is how many prefixes are finished.
	Closed int64 `json:"closed"`
	// The lengths of the files.
	DifferencesSize int64 `json:"differencesSize"`
	PrefixesSize    int64 `json:"prefixesSize"`
	RangesSize      int64 `json:"rangesSize"`
	LedgerSize      int64 `json:"ledgerSize"`
	// LedgerGeneration is the ledger being written, 0 for none.
	LedgerGeneration int64 `json:"ledgerGeneration"`
	Done             bool  `json:"done"`
}

// store is a state with its files.
type store struct {
	o                             *Options
	s                             state
	differences, prefixes, ranges *journal.File
	ledger                        *ledger.Ledger
}

// openStore finds an unfinished verification with the same settings, or begins
// one.
func openStore(o *Options) (*store, error) {
	st := &store{o: o}
	found, err := journal.Load(o.Dir, stateName, &st.s)
	if err != nil && !o.Restart {
		return nil, fmt.Errorf("%w; --restart begins anew", err)
	}
	now := o.settings()
	if !found || st.s.Done || o.Restart || st.s.Settings.Run != now.Run && st.s.Settings.forRun(now.Run, now.Expect) == now {
		st.s = state{Settings: now, Started: o.Now().UTC()}
	}
	if st.s.Settings != now {
		return nil, fmt.Errorf("%w in %s (%s); give those, or --restart to begin anew",
			ErrOtherRun, o.Dir.Path(), contrast(st.s.Settings, now))
	}
	if err := st.openFiles(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// contrast names the settings that differ.
func contrast(was, is settings) string {
	var out []string
	a, b := reflect.ValueOf(was), reflect.ValueOf(is)
	for i := range a.NumField() {
		if x, y := a.Field(i).Interface(), b.Field(i).Interface(); x != y {
			out = append(out, fmt.Sprintf("%s was %v and is %v", a.Type().Field(i).Tag.Get("json"), x, y))
		}
	}
	return strings.Join(out, ", ")
}

func (st *store) openFiles() (err error) {
	for _, f := range []struct {
		to   **journal.File
		name string
		size int64
	}{
		{&st.differences, differencesName, st.s.DifferencesSize},
		{&st.prefixes, prefixesName, st.s.PrefixesSize},
		{&st.ranges, rangesName, st.s.RangesSize},
	} {
		if *f.to, err = journal.Open(st.o.Dir, f.name, f.size); err != nil {
			return err
		}
	}
	switch {
	case st.o.Ledger == nil:
	case st.s.LedgerGeneration != 0:
		st.ledger, err = ledger.Resume(st.o.Ledger, st.s.LedgerGeneration, st.s.LedgerSize)
	default:
		st.ledger, err = ledger.Begin(st.o.Ledger)
		if err == nil {
			st.s.LedgerGeneration = st.ledger.Generation()
		}
	}
	return err
}

// save makes everything durable: the files first, then the state that knows
// their lengths.
func (st *store) save() (err error) {
	for _, f := range []struct {
		file interface{ Sync() (int64, error) }
		size *int64
	}{{st.differences, &st.s.DifferencesSize}, {st.prefixes, &st.s.PrefixesSize}, {st.ranges, &st.s.RangesSize}} {
		if *f.size, err = f.file.Sync(); err != nil {
			return err
		}
	}
	if st.ledger != nil {
		if st.s.LedgerSize, err = st.ledger.Sync(); err != nil {
			return err
		}
	}
	return journal.Save(st.o.Dir, stateName, &st.s)
}

// finish puts the ledger in force and records that nothing is left to do.
func (st *store) finish() error {
	if err := st.save(); err != nil {
		return err
	}
	if st.ledger != nil {
		if err := st.ledger.Enforce(st.o.Ledger); err != nil {
			return err
		}
	}
	st.s.Done = true
	return st.save()
}

func (st *store) close() error {
	var errs []error
	for _, f := range []*journal.File{st.differences, st.prefixes, st.ranges} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if st.ledger != nil {
		errs = append(errs, st.ledger.Close())
	}
	return errors.Join(errs...)
}

// report makes the result of what is in the state and its files.
func (st *store) report(t string) (Report, error) {
	r := Report{
		Source: st.o.Source, Tree: t, Prefix: st.o.Prefix, Values: st.o.Values, Started: st.s.Started, Ended: st.o.Now().UTC(),
		Total: st.s.Total, Differences: st.o.Dir.Join(differencesName), PrefixCount: st.s.Closed, RangeCount: st.s.Ranges,
		PrefixesFile: st.o.Dir.Join(prefixesName), RangesFile: st.o.Dir.Join(rangesName), Unbounded: max(0, st.s.Opened-maxBounded),
	}
	err := errors.Join(
		list(st, differencesName, st.s.DifferencesSize, st.o.Show, &r.First),
		list(st, prefixesName, st.s.PrefixesSize, MaxListed, &r.Prefixes),
		list(st, rangesName, st.s.RangesSize, MaxListed, &r.Ranges),
	)
	return r, err
}

// list reads the first lines of a file.
func list[T any](st *store, name string, size int64, most int, to *[]T) error {
	return journal.Lines(st.o.Dir, name, size, func(line []byte) (bool, error) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return false, fmt.Errorf("%w: %s: %w", journal.ErrCorrupt, st.o.Dir.Join(name), err)
		}
		*to = append(*to, v)
		return len(*to) < most, nil
	})
}
