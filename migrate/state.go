package migrate

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/journal"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
)

// Phase is how far a migration is.
type Phase string

// The phases.
const (
	PhaseRead   Phase = "read"
	PhaseCheck  Phase = "check"
	PhaseLoad   Phase = "load"
	PhaseVerify Phase = "verify"
	PhaseDone   Phase = "done"
)

// The files of the folder.
const (
	stateName  = "state.json"
	rejectName = "rejects.ndjson"
	reportName = "report.json"
	spoolName  = "spool"
	verifyName = "verify"
)

func chunkName(index int64) string { return fmt.Sprintf("chunk-%d.ndjson", index) }

// Counts are the account of a migration: Read is the sum of Rejected,
// Duplicates, Expired and what is loaded or still to be.
type Counts struct {
	// Read counts records that the source yielded or listed.
	Read int64 `json:"read"`
	// Mapped counts those that became entries.
	Mapped int64 `json:"mapped"`
	// Rejected counts those that could not, and those whose key another record
	// has already.
	Rejected int64 `json:"rejected"`
	// Duplicates counts records that came twice.
	Duplicates int64 `json:"duplicates"`
	// Expired counts those that had expired by the time they were read.
	Expired int64 `json:"expiredAtSource"`
	// Loaded counts entries that are durable in the tree.
	Loaded int64 `json:"loaded"`
	// Expiring counts, among the entries, those that will cease to exist.
	Expiring int64 `json:"expiring"`
}

// LossCount is how often a lossy conversion was made.
type LossCount struct {
	mapping.Loss
	Count int64 `json:"count"`
}

// mark is the last entry that went into a chunk.
type mark struct {
	Key    string `json:"key"`
	Origin string `json:"origin"`
	Digest uint64 `json:"digest,string"`
}

// parcel is a chunk that is written to disk and may have been sent.
type parcel struct {
	Index   int64  `json:"index"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Digest  uint64 `json:"digest,string"`
}

// state is all that the next run must know. It holds no secret.
type state struct {
	Kind    string            `json:"kind"`
	Source  string            `json:"source"`
	Target  string            `json:"target"`
	Order   Order             `json:"order"`
	Shape   map[string]string `json:"options"`
	Session string            `json:"session"`
	// Started is the moment from which times to live count.
	Started time.Time `json:"started"`
	Cut     string    `json:"cut,omitempty"`

	Phase    Phase           `json:"phase"`
	Position source.Position `json:"position,omitempty"`
	// ReadAll says that the source has been read to its end.
	ReadAll bool `json:"readAll"`
	// Consistent says that every run has read from one moment.
	Consistent bool `json:"consistent"`
	// Restarts counts how often the reading was begun anew.
	Restarts int `json:"restarts,omitempty"`
	// Passed is the key up to which a source in order, when it had to begin
	// anew, has been loaded.
	Passed string `json:"passed,omitempty"`
	// Generation is that of the spool.
	Generation  int64            `json:"generation"`
	RejectBytes int64            `json:"rejectBytes"`
	Counts      Counts           `json:"counts"`
	Reasons     map[string]int64 `json:"reasons,omitempty"`
	Lossy       []LossCount      `json:"lossy,omitempty"`

	// Begun says that the session was opened; TreeCreated is when the tree was
	// made that is loaded, by which it is told from a later one of its name.
	Begun       bool      `json:"begun"`
	TreeCreated time.Time `json:"treeCreated,omitzero"`
	// Last is of the chunks up to Pending, which are at most these.
	Last    mark     `json:"last"`
	Pending []parcel `json:"pending,omitempty"`
	// Chunks is the index of the chunk after Pending.
	Chunks    int64           `json:"chunks"`
	OverLimit int64           `json:"overLimit,omitempty"`
	LiveKeys  int64           `json:"totalLiveKeys"`
	Committed bool            `json:"committed"`
	Verdict   json.RawMessage `json:"verdict,omitempty"`
}

func (s *state) save(d *durable.Dir) error { return journal.Save(d, stateName, s) }

// newState is that of a migration that has not begun.
func newState(o *Options) *state {
	return &state{
		Kind: o.Info.Kind, Source: o.Info.Identity, Target: o.TargetName, Order: o.Order, Shape: o.Shape,
		Session: "migrate-" + rand.Text(), Started: time.Now().UTC(), Cut: o.Info.Cut, Phase: PhaseRead, Consistent: o.Info.Consistent, Reasons: map[string]int64{},
	}
}

// MismatchError: the folder belongs to another migration.
type MismatchError struct {
	// Dir is the folder, What the thing that differs: "the source", "the tree"
	// or a flag.
	Dir, What string
	// Was is what the folder was begun with, Is what was asked for now.
	Was, Is string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s belongs to a migration with another setting: %s was %s and is now %s; run it with the former, choose another folder with --state, or discard what was done with --restart",
		e.Dir, e.What, given(e.Was), given(e.Is))
}

func given(s string) string {
	if s == "" {
		return "not given"
	}
	return fmt.Sprintf("%q", s)
}

// fits compares the state with what is asked for now.
func (s *state) fits(o *Options) error {
	differ := func(what, was, is string) error {
		if was == is {
			return nil
		}
		return &MismatchError{o.Dir, what, was, is}
	}
	if err := differ("the kind of source", s.Kind, o.Info.Kind); err != nil {
		return err
	}
	if err := differ("the source", s.Source, o.Info.Identity); err != nil {
		return err
	}
	if err := differ("the tree", s.Target, o.TargetName); err != nil {
		return err
	}
	if err := differ("--order", string(s.Order), string(o.Order)); err != nil {
		return err
	}
	both := maps.Clone(s.Shape)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, o.Shape)
	for _, flag := range slices.Sorted(maps.Keys(both)) {
		if err := differ("--"+flag, s.Shape[flag], o.Shape[flag]); err != nil {
			return err
		}
	}
	return nil
}
