package verify

import "strings"

// maxBounded is of how many prefixes the boundaries are compared. Where nearly
// every key has a prefix of its own, all values would be.
const maxBounded = 10_000

// bucket is a prefix that is being walked through. Its fields are saved.
type bucket struct {
	Prefix string `json:"prefix"`
	Tally  Tally  `json:"tally"`
	// Matched is how many keys were on both sides.
	Matched int64 `json:"matched"`
	// Bounded says that the boundaries are compared, Tail are the last matches.
	Bounded bool   `json:"bounded"`
	Tail    []pair `json:"tail,omitempty"`
}

// buckets are those that the next key may fall into. All of them are prefixes
// of the last key, each of the next, so that they are at most one more than the
// depth. The keys without separator have one that stays open to the end.
type buckets struct {
	open []*bucket
	// opened is how many there were.
	opened int64
}

// enter returns the bucket of a key, greater than all before, after closing
// those in which no later key can be.
func (bs *buckets) enter(key, prefix string, closed func(*bucket) error) (*bucket, error) {
	for n := len(bs.open); n > 0 && !strings.HasPrefix(key, bs.open[n-1].Prefix); n = len(bs.open) {
		if err := bs.pop(closed); err != nil {
			return nil, err
		}
	}
	if n := len(bs.open); n > 0 && bs.open[n-1].Prefix == prefix {
		return bs.open[n-1], nil
	}
	bs.opened++
	b := &bucket{Prefix: prefix, Bounded: bs.opened <= maxBounded}
	bs.open = append(bs.open, b)
	return b, nil
}

// pop closes the innermost one.
func (bs *buckets) pop(closed func(*bucket) error) error {
	n := len(bs.open)
	b := bs.open[n-1]
	bs.open = bs.open[:n-1]
	return closed(b)
}

// push remembers a match as one of the last.
func (b *bucket) push(p pair, keep int) {
	if !b.Bounded || keep == 0 {
		return
	}
	if len(b.Tail) == keep {
		copy(b.Tail, b.Tail[1:])
		b.Tail = b.Tail[:keep-1]
	}
	b.Tail = append(b.Tail, p)
}
