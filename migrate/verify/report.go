package verify

import (
	"time"
)

// Class says what is wrong with a key, or why nothing is.
type Class string

// The classes.
const (
	// Missing: the source has the key and the tree has not.
	Missing Class = "missing"
	// Extra: the tree has the key and the source has not.
	Extra Class = "extra"
	// Value: both have it, with other values.
	Value Class = "value differs"
	// Expiry: both have it, and it ceases to exist at other times.
	Expiry Class = "expiry differs"
	// Changed: it differs, and has changed at the source since the cut.
	Changed Class = "changed at the source"
	// Duplicate: several records of the source make the key and hold other
	// things. The first of them was compared.
	Duplicate Class = "duplicate key"
	// Expired: one side has it no more, because it has expired by now. This is
	// no difference.
	Expired Class = "expired"
)

// Difference is a key that differs.
type Difference struct {
	Class Class  `json:"class"`
	Key   string `json:"key"`
	// Origin says where it is in the source.
	Origin string `json:"origin,omitempty"`
	// Source and Target describe it on either side; nil where it is not.
	Source *Facts `json:"source,omitempty"`
	Target *Facts `json:"target,omitempty"`
}

// Facts describe an entry without its value.
type Facts struct {
	// Size is the length of the value, -1 if it was not read.
	Size      int64     `json:"size"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	Version   string    `json:"version,omitempty"`
}

// Tally counts entries and what is wrong with them.
type Tally struct {
	// Source and Target are the entries alive on either side.
	Source int64 `json:"source"`
	Target int64 `json:"target"`
	// SourceKeys and TargetKeys are digests of these keys, SourceEntries and
	// TargetEntries of keys and values. TargetEntries is zero unless all values
	// were compared.
	SourceKeys    Sum `json:"sourceKeys"`
	TargetKeys    Sum `json:"targetKeys"`
	SourceEntries Sum `json:"sourceEntries"`
	TargetEntries Sum `json:"targetEntries"`

	Missing int64 `json:"missing"`
	Extra   int64 `json:"extra"`
	Value   int64 `json:"valueDiffers"`
	Expiry  int64 `json:"expiryDiffers"`
	Changed int64 `json:"changed"`
	// Duplicates is how many records hold something else than an earlier one of
	// the same key.
	Duplicates int64 `json:"duplicates"`
	Expired    int64 `json:"expired"`
	// Compared is how many values were compared.
	Compared int64 `json:"valuesCompared"`
}

// Differs is the number of keys that differ, and of records beside them that
// make the same key.
func (t *Tally) Differs() int64 {
	return t.Missing + t.Extra + t.Value + t.Expiry + t.Changed + t.Duplicates
}

func (t *Tally) count(c Class) {
	switch c {
	case Missing:
		t.Missing++
	case Extra:
		t.Extra++
	case Value:
		t.Value++
	case Expiry:
		t.Expiry++
	case Changed:
		t.Changed++
	case Expired:
		t.Expired++
	}
}

func (t *Tally) add(o *Tally) {
	t.Source += o.Source
	t.Target += o.Target
	t.SourceKeys.add(o.SourceKeys)
	t.TargetKeys.add(o.TargetKeys)
	t.SourceEntries.add(o.SourceEntries)
	t.TargetEntries.add(o.TargetEntries)
	t.Missing += o.Missing
	t.Extra += o.Extra
	t.Value += o.Value
	t.Expiry += o.Expiry
	t.Changed += o.Changed
	t.Duplicates += o.Duplicates
	t.Expired += o.Expired
	t.Compared += o.Compared
}

// Prefix is what was found under a prefix; empty is for keys without separator.
type Prefix struct {
	Prefix string `json:"prefix"`
	Tally
}

// Range is what was found between two keys, both included.
type Range struct {
	First string `json:"first"`
	Last  string `json:"last"`
	Tally
}

// Report is the result of a verification.
type Report struct {
	// Source and Tree are what was compared, Prefix the keys of the tree.
	Source string `json:"source"`
	Tree   string `json:"tree"`
	Prefix string `json:"prefix,omitempty"`
	// Values is how many values were asked for.
	Values Level `json:"values"`
	// Started and Ended are the first start and the end.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Total   Tally     `json:"total"`
	// First are the first differences; all are in the file Differences.
	First       []Difference `json:"first,omitempty"`
	Differences string       `json:"differences,omitempty"`
	// Prefixes and Ranges are the first of them, at most MaxListed each; all are
	// in files of their own. Their numbers are those of all.
	Prefixes    []Prefix `json:"prefixes,omitempty"`
	PrefixCount int64    `json:"prefixCount"`
	Ranges      []Range  `json:"ranges,omitempty"`
	RangeCount  int64    `json:"rangeCount"`
	// PrefixesFile and RangesFile are those files.
	PrefixesFile string `json:"prefixesFile,omitempty"`
	RangesFile   string `json:"rangesFile,omitempty"`
	// Unbounded is how many prefixes beyond the first 10,000 had their
	// boundaries compared only as far as the sample met them.
	Unbounded int64 `json:"prefixesWithoutBoundaries,omitempty"`
	// Counted are what the source said at other moments, if it was asked.
	Counted *Counted `json:"counted,omitempty"`
	// Shape is that of the tree, if it was asked for.
	Shape *Shape `json:"shape,omitempty"`
}

// MaxListed bounds the prefixes and ranges of a Report.
const MaxListed = 1_000

// Equal reports whether nothing differs.
func (r *Report) Equal() bool { return r.Total.Differs() == 0 && r.Counted.complete() }

// Counted is what reading the source came to.
type Counted struct {
	// Before and After are about how many records the source had before and
	// after it was read, -1 if it does not know.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Read is how many records were read, Expired how many were listed and had
	// ceased to exist.
	Read    int64 `json:"read"`
	Expired int64 `json:"expired"`
	// Faults is how many could not be read or mapped; they were not compared.
	Faults int64 `json:"faults"`
	// FirstFaults are the first of them.
	FirstFaults []string `json:"firstFaults,omitempty"`
}

// complete reports whether every record was compared.
func (c *Counted) complete() bool { return c == nil || c.Faults == 0 }
