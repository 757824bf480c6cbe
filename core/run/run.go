package run

import (
	"sort"

	"github.com/latticekv/lattice/core/leaf"
)

// Leaf is what a view knows of a leaf without reading it.
type Leaf struct {
	// Blob is the name of the leaf's blob.
	Blob string
	// Size is the length of the blob in bytes.
	Size int64
	leaf.Summary
	// Filter excludes keys; empty in the base, which nothing lies below.
	Filter leaf.Filter
}

// Run is a sorted sequence of leaves that do not overlap. It never changes.
type Run struct {
	// Level counts the merges that made the run: those of one level have
	// similar size. 0 for the base.
	Level int
	// Base says that the run holds everything older.
	Base bool
	// From is the first visible key. A merge in progress moves it.
	From string
	// Inputs, if not 0, says that the run is the output of a merge in progress
	// and that the next so many runs are its inputs.
	Inputs int
	// Leaves in key order, without those wholly below From.
	Leaves []Leaf

	// settled leaves at the beginning are those of a slot of the index blob;
	// the others are in the manifest.
	slot, settled int
	total         totals
}

// totals sum up leaves.
type totals struct {
	entries, tombstones int
	size, raw           int64
}

// noSlot is the slot of a run that has no part in the index blob.
const noSlot = -1

func newRun(r Run) *Run {
	r.total = totals{}
	for i := range r.Leaves {
		l := &r.Leaves[i]
		r.total.entries += l.Entries
		r.total.tombstones += l.Tombstones
		r.total.size += l.Size
		r.total.raw += l.Raw
	}
	return &r
}

// lower returns the first leaf whose last key is not below key.
func (r *Run) lower(key string) int {
	return sort.Search(len(r.Leaves), func(i int) bool { return r.Leaves[i].Last >= key })
}

// find returns the leaf that may hold the key.
func (r *Run) find(key string) (*Leaf, bool) {
	if key < r.From {
		return nil, false
	}
	i := r.lower(key)
	if i == len(r.Leaves) || key < r.Leaves[i].First {
		return nil, false
	}
	return &r.Leaves[i], true
}

// from returns the run as it is visible from key on.
func (r *Run) from(key string) *Run {
	n := *r
	n.From = key
	drop := r.lower(key)
	n.Leaves = r.Leaves[drop:]
	n.settled = max(0, r.settled-drop)
	return newRun(n)
}
