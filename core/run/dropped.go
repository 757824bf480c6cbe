package run

import (
	"encoding/binary"
	"time"

	"github.com/latticekv/lattice/core/frame"
)

// Dropped is a blob that a view no longer refers to, while readers of an older
// view may still need it.
type Dropped struct {
	Blob string
	// At is the Unix millisecond at which it was dropped.
	At int64
}

const (
	// maxDropped bounds what a manifest remembers: the newest count.
	maxDropped = 20_000
	// minDropped is the length of the shortest encoded one.
	minDropped = 2
)

// Dropped returns the blobs that views before this one referred to and it does
// not, as far as they were dropped within the grace period that Save was given.
// The collector spares them.
func (s *Set) Dropped() []Dropped { return s.dropped }

// dropsSince returns what a view drops that comes after old, with what old had
// dropped and is within its grace.
func (s *Set) dropsSince(old *Set, nowMilli int64, grace time.Duration) []Dropped {
	var out []Dropped
	for _, d := range old.dropped {
		if nowMilli-d.At < grace.Milliseconds() {
			out = append(out, d)
		}
	}
	kept := make(map[string]struct{})
	for name := range s.Blobs() {
		kept[name] = struct{}{}
	}
	for name := range old.Blobs() {
		if _, ok := kept[name]; !ok {
			out = append(out, Dropped{Blob: name, At: nowMilli})
		}
	}
	return out[max(0, len(out)-maxDropped):]
}

func appendDropped(dst []byte, dropped []Dropped) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(dropped)))
	for _, d := range dropped {
		dst = frame.AppendBytes(dst, d.Blob)
		dst = binary.AppendUvarint(dst, uint64(max(d.At, 0)))
	}
	return dst
}

func readDropped(rd *frame.Reader) []Dropped {
	var out []Dropped
	for range rd.Count(minDropped) {
		out = append(out, Dropped{Blob: rd.Text(), At: readSize(rd)})
	}
	return out
}
