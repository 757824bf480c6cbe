package verify

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latticekv/lattice/migrate/durable"
)

// Level says which values are compared. Those at the boundaries always are.
type Level string

// The levels.
const (
	// None compares no others.
	None Level = "none"
	// Sample compares a share of them, chosen by a hash of the key: always the
	// same ones.
	Sample Level = "sample"
	// All compares every value.
	All Level = "all"
)

// MinSample is the least number of values of a sample; a source of up to twice
// as many is compared whole.
const MinSample = 1_000

// The defaults.
const (
	DefaultShare     = 0.01
	DefaultTolerance = 2 * time.Second
	DefaultDepth     = 1
	DefaultSeparator = "/"
	DefaultRangeSize = 100_000
	DefaultBoundary  = 10
	DefaultShow      = 100
)

// ErrOtherRun: the folder holds the state of a verification with other settings.
var ErrOtherRun = errors.New("the folder holds an unfinished verification with other settings")

// Options say how to verify. The zero value of a field is its default.
type Options struct {
	// Dir takes the state, the differences (verify.ndjson), the counts per
	// prefix (verify-prefixes.ndjson) and the digests per range
	// (verify-ranges.ndjson). It must be set, and be this process's alone.
	Dir *durable.Dir
	// Source names the source, Target the service with the tree; for the report,
	// and to recognise the state of another run.
	Source, Target string
	// Prefix selects the keys of the tree; empty is all. A key of the source
	// beyond it is an error.
	Prefix string
	Values Level
	// Share is the part of the values that a sample takes, over 0 and at most 1.
	Share float64
	// Expect is about how many entries the source yields, from which follows
	// what share makes MinSample values. 0 compares all values.
	Expect int64
	// Depth is how many segments of a key make its prefix, Separator what ends
	// a segment.
	Depth     int
	Separator string
	// RangeSize is about how many keys make a range.
	RangeSize int
	// Tolerance is by how much two expiries, or two clocks, may differ. The
	// default allows a second for stores that keep whole seconds, and one for
	// the way of a request that carries a time to live.
	Tolerance time.Duration
	// Boundary is how many entries at each end of a prefix are compared.
	Boundary int
	// Show is how many differences the report holds.
	Show int
	// Changed yields the keys that have changed at the source since the cut; nil
	// if that is not known.
	Changed Keys
	// Ledger is the folder of the ledger in which the version of every entry that
	// is the same on both sides is recorded, as the one that the migration has
	// left; nil records nothing.
	Ledger *durable.Dir
	// Run identifies the reading of the source that is compared. What is
	// unfinished of another one is forgotten.
	Run string
	// Restart forgets an unfinished verification.
	Restart bool
	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// Progress, if set, is kept up to date.
	Progress *Progress
}

// Progress says how far a verification is.
type Progress struct {
	// OnPhase, if set, is told what is being done from then on.
	OnPhase func(Phase)
	// Read is how many records were read, Changes how many changed ones.
	Read, Changes atomic.Int64
	// Keys is how many keys were compared, Differs how many of them differ.
	Keys, Differs atomic.Int64
	// Waiting says that the tree's stream has broken off and is opened again.
	Waiting atomic.Bool
}

// withDefaults fills in and checks.
func (o Options) withDefaults() (Options, error) {
	def(&o.Values, Sample)
	def(&o.Share, DefaultShare)
	def(&o.Depth, DefaultDepth)
	def(&o.Separator, DefaultSeparator)
	def(&o.RangeSize, DefaultRangeSize)
	def(&o.Tolerance, DefaultTolerance)
	def(&o.Boundary, DefaultBoundary)
	def(&o.Show, DefaultShow)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Progress == nil {
		o.Progress = &Progress{}
	}
	switch {
	case o.Dir == nil:
		return o, errors.New("verify: no folder for the state")
	case o.Values != None && o.Values != Sample && o.Values != All:
		return o, fmt.Errorf("verify: values are all, sample or none, not %q", o.Values)
	case !(o.Share > 0 && o.Share <= 1):
		return o, errors.New("verify: the share of a sample is over 0 and at most 1")
	case o.Depth < 0 || o.Depth > 16:
		return o, errors.New("verify: the depth of a prefix is 1 to 16")
	case o.RangeSize < 0, o.Tolerance < 0, o.Boundary < 0 || o.Boundary > 1000, o.Show < 0 || o.Show > 100_000, o.Expect < 0:
		return o, errors.New("verify: an option is out of bounds")
	}
	return o, nil
}

func def[T comparable](to *T, v T) {
	var zero T
	if *to == zero {
		*to = v
	}
}

// threshold is below what the hash of a key must lie to be in the sample.
func (o *Options) threshold() uint64 {
	switch {
	case o.Values == All:
		return math.MaxUint64
	case o.Values == None:
		return 0
	case o.Expect <= 2*MinSample:
		return math.MaxUint64
	}
	// Six standard deviations above the least number make sure of it.
	least := (MinSample + 6*math.Sqrt(MinSample)) / float64(o.Expect)
	share := max(o.Share, least)
	if share >= 1 {
		return math.MaxUint64
	}
	return uint64(share * (1 << 63) * 2)
}

// prefixOf is the prefix of a key: its first segments with their separators,
// as many as there are up to the depth.
func (o *Options) prefixOf(key string) string {
	end := 0
	for range o.Depth {
		i := strings.Index(key[end:], o.Separator)
		if i < 0 {
			break
		}
		end += i + len(o.Separator)
	}
	return key[:end]
}

// Phase is what a verification is doing.
type Phase int

// The phases.
const (
	// Reading: the source is read.
	Reading Phase = iota
	// ReadingChanges: what has changed at the source is read.
	ReadingChanges
	// Comparing: source and tree are compared.
	Comparing
)

// String names the phase for people.
func (p Phase) String() string {
	return [...]string{"read source", "read changes", "compare"}[p]
}

func (p *Progress) begin(ph Phase) {
	if p.OnPhase != nil {
		p.OnPhase(ph)
	}
}
