package run

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/latticekv/lattice/core/frame"
	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/store"
)

// maxManifest bounds the uncompressed size of a manifest or index in bytes.
const maxManifest = 64 << 20

var (
	manifestFormat = frame.Format{Magic: "LTMF", Version: 1, MaxSize: maxManifest}
	indexFormat    = frame.Format{Magic: "LTIX", Version: 1, MaxSize: maxManifest}
)

var (
	errNegative  = errors.New("number out of range")
	errLeafOrder = errors.New("leaves overlap or are out of order")
	errLeafEmpty = errors.New("leaf without entries")
	errBasePlace = errors.New("a run lies below the base")
	errGroup     = errors.New("merge reaches past the last run, or into another")
	errSlot      = errors.New("run refers to a missing part of the index")
	errRunFlags  = errors.New("unknown flags of a run")
)

// minLeaf and minRun are the lengths of the shortest encoded leaf and run.
const (
	minLeaf = 12
	minRun  = 7
	// usualLeaf is the room for which memory is set aside in advance: a decoded
	// leaf is much larger than the shortest encoded one.
	usualLeaf = 64
)

// A leaf is encoded as blob, size, first, last, entries, tombstones, expiring,
// raw, drop from, drop until, number of large values and their blobs, filter.
func appendLeaf(dst []byte, l *Leaf) []byte {
	dst = frame.AppendBytes(dst, l.Blob)
	dst = binary.AppendUvarint(dst, uint64(l.Size))
	dst = frame.AppendBytes(dst, l.First)
	dst = frame.AppendBytes(dst, l.Last)
	for _, n := range []int64{int64(l.Entries), int64(l.Tombstones), int64(l.Expiring), l.Raw, l.DropFrom, l.DropUntil} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.AppendUvarint(dst, uint64(len(l.Large)))
	for _, name := range l.Large {
		dst = frame.AppendBytes(dst, name)
	}
	return frame.AppendBytes(dst, l.Filter)
}

// leafSize estimates the encoded length of a leaf.
func leafSize(l *Leaf) int {
	n := 40 + len(l.Blob) + len(l.First) + len(l.Last) + len(l.Filter)
	for _, name := range l.Large {
		n += 1 + len(name)
	}
	return n
}

func readLeaf(rd *frame.Reader) Leaf {
	var l Leaf
	l.Blob = rd.Text()
	l.Size = readSize(rd)
	l.First, l.Last = rd.Text(), rd.Text()
	l.Entries, l.Tombstones, l.Expiring = readCount(rd), readCount(rd), readCount(rd)
	l.Raw, l.DropFrom, l.DropUntil = readSize(rd), readSize(rd), readSize(rd)
	for range rd.Count(1) {
		l.Large = append(l.Large, rd.Text())
	}
	l.Filter = rd.Bytes()
	if err := leaf.CheckFilter(l.Filter); err != nil {
		rd.Fail(err)
	}
	if l.Entries == 0 {
		rd.Fail(errLeafEmpty)
	}
	return l
}

// readSize reads a number that must fit an int64.
func readSize(rd *frame.Reader) int64 {
	n := rd.Uvarint()
	if n > math.MaxInt64 {
		rd.Fail(errNegative)
		return 0
	}
	return int64(n)
}

// readCount reads a number of entries.
func readCount(rd *frame.Reader) int {
	n := rd.Uvarint()
	if n > math.MaxInt32 {
		rd.Fail(errNegative)
		return 0
	}
	return int(n)
}

func appendLeaves(dst []byte, leaves []Leaf) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(leaves)))
	for i := range leaves {
		dst = appendLeaf(dst, &leaves[i])
	}
	return dst
}

// readLeaves reads leaves and checks that each lies above the one before.
func readLeaves(rd *frame.Reader) []Leaf {
	n := rd.Count(minLeaf)
	leaves := make([]Leaf, 0, min(n, rd.Len()/usualLeaf+1))
	for range n {
		leaves = append(leaves, readLeaf(rd))
		if rd.Err() != nil {
			return nil
		}
	}
	if !ascending(leaves) {
		rd.Fail(errLeafOrder)
		return nil
	}
	return leaves
}

func ascending(leaves []Leaf) bool {
	for i := range leaves {
		if leaves[i].Last < leaves[i].First || i > 0 && leaves[i].First <= leaves[i-1].Last {
			return false
		}
	}
	return true
}

const runIsBase = 1

// encodeManifest returns the manifest blob of a view.
func encodeManifest(s *Set) []byte {
	b := binary.AppendUvarint(nil, s.seq)
	b = frame.AppendBytes(b, s.index.name)
	b = binary.AppendUvarint(b, uint64(s.index.leaves))
	b = binary.AppendUvarint(b, uint64(s.index.bytes))
	b = binary.AppendUvarint(b, uint64(len(s.runs)))
	for _, r := range s.runs {
		flags := byte(0)
		if r.Base {
			flags = runIsBase
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(r.Level))
		b = binary.AppendUvarint(b, uint64(r.Inputs))
		b = frame.AppendBytes(b, r.From)
		b = binary.AppendUvarint(b, uint64(r.slot+1))
		b = binary.AppendUvarint(b, uint64(r.settled))
		b = appendLeaves(b, r.Leaves[r.settled:])
	}
	return manifestFormat.Seal(appendDropped(b, s.dropped))
}

// decodeManifest reads a manifest. The settled leaves of its runs are still
// missing.
func decodeManifest(name string, data []byte) (*Set, error) {
	payload, err := manifestFormat.Open(name, data)
	if err != nil {
		return nil, err
	}
	rd := frame.NewReader(payload)
	s := &Set{name: name}
	s.seq = rd.Uvarint()
	s.index = indexRef{name: rd.Text(), leaves: readCount(&rd), bytes: readCount(&rd)}
	s.runs = make([]*Run, rd.Count(minRun))
	for i := range s.runs {
		if s.runs[i] = readRun(&rd); rd.Err() != nil {
			return nil, store.Corruptf("manifest %q, run %d: %v", name, i, rd.Err())
		}
	}
	s.dropped = readDropped(&rd)
	if err := rd.Close(); err != nil {
		return nil, store.Corruptf("manifest %q: %v", name, err)
	}
	if err := checkRuns(s.runs); err != nil {
		return nil, store.Corruptf("manifest %q: %v", name, err)
	}
	return s, nil
}

func readRun(rd *frame.Reader) *Run {
	flags := rd.Byte()
	if flags&^runIsBase != 0 {
		rd.Fail(errRunFlags)
	}
	r := &Run{Base: flags&runIsBase != 0, Level: readCount(rd), Inputs: readCount(rd), From: rd.Text()}
	r.slot, r.settled = readCount(rd)-1, readCount(rd)
	r.Leaves = readLeaves(rd)
	return r
}

// checkRuns refuses an order of runs that no merge produces: only the inputs of
// a merge into the base lie below a base, and merges do not overlap.
func checkRuns(runs []*Run) error {
	for i := 0; i < len(runs); i++ {
		r := runs[i]
		end := i + 1 + r.Inputs
		if end > len(runs) {
			return errGroup
		}
		if r.Base && end != len(runs) {
			return errBasePlace
		}
		for _, in := range runs[i+1 : end] {
			if in.Inputs > 0 {
				return errGroup
			}
		}
		if r.Inputs > 0 {
			i = end - 1
			if err := checkInputs(runs[end-r.Inputs:end], r.Base); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkInputs refuses a base among the inputs, except as the last one of a
// merge into the base.
func checkInputs(inputs []*Run, base bool) error {
	for i, in := range inputs {
		if in.Base && !(base && i == len(inputs)-1) {
			return errBasePlace
		}
	}
	return nil
}

// index is a decoded index blob: the leaves of each slot.
type index struct {
	name  string
	slots [][]Leaf
}

// encodeIndex returns the index blob, and its length before compression.
func encodeIndex(slots [][]Leaf) ([]byte, int) {
	b := binary.AppendUvarint(nil, uint64(len(slots)))
	for _, leaves := range slots {
		b = appendLeaves(b, leaves)
	}
	return indexFormat.Seal(b), len(b)
}

func decodeIndex(name string, data []byte) (*index, error) {
	payload, err := indexFormat.Open(name, data)
	if err != nil {
		return nil, err
	}
	rd := frame.NewReader(payload)
	ix := &index{name: name, slots: make([][]Leaf, rd.Count(1))}
	for i := range ix.slots {
		if ix.slots[i] = readLeaves(&rd); rd.Err() != nil {
			break
		}
	}
	if err := rd.Close(); err != nil {
		return nil, store.Corruptf("index %q: %v", name, err)
	}
	return ix, nil
}

// join adds the settled leaves to a run read from a manifest. Leaves of the
// slot that lie below From, and those that a merge took back at the end, are
// not part of it.
func (r *Run) join(ix *index) (*Run, error) {
	n := *r
	if r.settled > 0 {
		if r.slot < 0 || ix == nil || r.slot >= len(ix.slots) {
			return nil, errSlot
		}
		all := &Run{Leaves: ix.slots[r.slot]}
		settled := all.Leaves[all.lower(r.From):]
		if r.settled > len(settled) {
			return nil, fmt.Errorf("%w: %d leaves of %d", errSlot, r.settled, len(settled))
		}
		n.Leaves = append(settled[:r.settled:r.settled], r.Leaves...)
		if !ascending(n.Leaves) {
			return nil, errLeafOrder
		}
	}
	return newRun(n), nil
}
