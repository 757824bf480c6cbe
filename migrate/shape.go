package migrate

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"unicode"
)

// Shape is a pattern of keys: runs of digits are 9, runs of letters a.
type Shape struct {
	Pattern string `json:"pattern"`
	// Segments counts what stands between slashes.
	Segments int   `json:"segments"`
	Count    int64 `json:"count"`
	// Example is the first key of the shape.
	Example string `json:"example"`
}

// maxShapes bounds how many shapes are told apart.
const maxShapes = 1000

// shapeOf is the pattern of a key.
func shapeOf(key string) string {
	var b strings.Builder
	last := rune(0)
	for _, r := range key {
		switch {
		case r >= '0' && r <= '9':
			r = '9'
		case unicode.IsLetter(r):
			r = 'a'
		}
		if r != last || r != '9' && r != 'a' {
			b.WriteRune(r)
		}
		last = r
	}
	return b.String()
}

// shapes counts the shapes of keys.
type shapes struct {
	seen map[string]*Shape
	// other counts the keys of shapes beyond the bound.
	other int64
}

func (s *shapes) add(key string) {
	p := shapeOf(key)
	if have := s.seen[p]; have != nil {
		have.Count++
		return
	}
	if len(s.seen) >= maxShapes {
		s.other++
		return
	}
	if s.seen == nil {
		s.seen = map[string]*Shape{}
	}
	s.seen[p] = &Shape{Pattern: p, Segments: strings.Count(key, "/") + 1, Count: 1, Example: key}
}

// top returns the most frequent shapes.
func (s *shapes) top(n int) []Shape {
	out := make([]Shape, 0, len(s.seen))
	for _, sh := range s.seen {
		out = append(out, *sh)
	}
	slices.SortFunc(out, func(a, b Shape) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pattern, b.Pattern)) })
	return out[:min(n, len(out))]
}

// Sizes is a distribution of sizes in bytes. P50 and P99 are exact up to 64
// bytes and at most 2 % too large above.
type Sizes struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// sizes counts sizes in buckets, 64 for each power of two.
type sizes struct {
	buckets map[int]int64
	n       int64
	largest int64
}

const bucketBits = 6

func bucketOf(n int64) int {
	shift := max(bits.Len64(uint64(n))-bucketBits-1, 0)
	return shift<<(bucketBits+1) + int(n>>shift)
}

// bucketTop is the greatest size of a bucket.
func bucketTop(b int) int64 {
	shift := b >> (bucketBits + 1)
	base := int64(b & (1<<(bucketBits+1) - 1))
	return (base+1)<<shift - 1
}

func (s *sizes) add(n int64) {
	if s.buckets == nil {
		s.buckets = map[int]int64{}
	}
	s.buckets[bucketOf(n)]++
	s.n++
	s.largest = max(s.largest, n)
}

// at returns the size that a share of all do not exceed.
func (s *sizes) at(share float64) int64 {
	need := max(int64(share*float64(s.n)+0.999999), 1)
	order := make([]int, 0, len(s.buckets))
	for b := range s.buckets {
		order = append(order, b)
	}
	slices.Sort(order)
	for _, b := range order {
		if need -= s.buckets[b]; need <= 0 {
			return min(bucketTop(b), s.largest)
		}
	}
	return s.largest
}

func (s *sizes) summary() Sizes {
	if s.n == 0 {
		return Sizes{}
	}
	return Sizes{P50: s.at(0.5), P99: s.at(0.99), Max: s.largest}
}

// Bar is a column of a histogram.
type Bar struct {
	// From and To bound the sizes, both included.
	From  int64 `json:"from"`
	To    int64 `json:"to"`
	Count int64 `json:"count"`
}

// histogram has a bar for each power of two.
func (s *sizes) histogram() []Bar {
	powers := map[int]int64{}
	for b, n := range s.buckets {
		powers[bits.Len64(uint64(bucketTop(b)))] += n
	}
	out := []Bar{}
	for p := range 64 {
		if n := powers[p]; n > 0 {
			out = append(out, Bar{int64(1) << p >> 1, int64(1)<<p - 1, n})
		}
	}
	return out
}
