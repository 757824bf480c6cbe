package run

import (
	"context"
	"sort"

	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
)

// reader reads the page of a leaf.
type reader func(ctx context.Context, l *Leaf) (*leaf.Page, error)

// cursor walks a run. It reads a leaf only when it must know more than the
// bounds of its keys.
type cursor struct {
	read    reader
	ahead   *ahead // reads instead, unless nil
	leaves  []Leaf
	lo, hi  string // inclusive, exclusive; empty hi is unbounded
	reverse bool

	at     int        // leaf
	within bool       // the iteration begins in the middle of leaf at
	page   *leaf.Page // nil as long as the position is the leaf's first entry
	pos    int        // entry in the page
	now    string     // current key
}

// newCursor returns a cursor over the visible part of a run in a range.
func newCursor(read reader, r *Run, b Bounds, reverse bool) *cursor {
	c := &cursor{read: read, leaves: r.Leaves, lo: max(b.From, r.From), hi: b.To, reverse: reverse}
	if reverse {
		c.at = len(c.leaves) - 1
		if c.hi != "" {
			c.at = sort.Search(len(c.leaves), func(i int) bool { return c.leaves[i].First >= c.hi }) - 1
		}
		c.within = c.at >= 0 && c.hi != "" && c.leaves[c.at].Last >= c.hi
		return c
	}
	c.at = r.lower(c.lo)
	c.within = c.at < len(c.leaves) && c.leaves[c.at].First < c.lo
	return c
}

func (c *cursor) key() string { return c.now }

// start moves to the first entry, for which it must read a leaf only if the
// range begins within one.
func (c *cursor) start(ctx context.Context) (bool, error) {
	if !c.within {
		return c.enter(), nil
	}
	if err := c.load(ctx); err != nil {
		return false, err
	}
	if c.reverse {
		c.pos, _ = c.page.Seek(c.hi)
		c.pos--
	} else {
		c.pos, _ = c.page.Seek(c.lo)
	}
	return c.settle(), nil
}

// enter stands at the first entry of leaf at without reading it.
func (c *cursor) enter() bool {
	c.page = nil
	if c.at < 0 || c.at >= len(c.leaves) {
		return false
	}
	c.now = c.leaves[c.at].First
	if c.reverse {
		c.now = c.leaves[c.at].Last
	}
	return c.inside()
}

// settle stands at entry pos of the page.
func (c *cursor) settle() bool {
	c.now = c.page.Key(c.pos)
	return c.inside()
}

func (c *cursor) inside() bool {
	return c.now >= c.lo && (c.hi == "" || c.now < c.hi)
}

// load reads the current leaf, if that was not done, and stands at its first
// entry.
func (c *cursor) load(ctx context.Context) error {
	if c.page != nil {
		return nil
	}
	page, err := c.fetch(ctx)
	if err != nil {
		return err
	}
	c.stand(page)
	return nil
}

func (c *cursor) fetch(ctx context.Context) (*leaf.Page, error) {
	if c.ahead != nil {
		return c.ahead.page(ctx, c.at)
	}
	return c.read(ctx, &c.leaves[c.at])
}

// stand puts the cursor at the first entry of its leaf's page.
func (c *cursor) stand(page *leaf.Page) {
	c.page, c.pos = page, 0
	if c.reverse {
		c.pos = page.Len() - 1
	}
}

func (c *cursor) entry(ctx context.Context, e *record.Entry) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	c.page.Entry(c.pos, e)
	return nil
}

func (c *cursor) advance(ctx context.Context) (bool, error) {
	if c.leaves[c.at].Entries > 1 {
		if err := c.load(ctx); err != nil {
			return false, err
		}
	}
	step := 1
	if c.reverse {
		step = -1
	}
	if next := c.pos + step; c.page != nil && next >= 0 && next < c.page.Len() {
		c.pos = next
		return c.settle(), nil
	}
	c.at += step
	return c.enter(), nil
}

// whole returns the current leaf if the cursor stands at its first entry and
// has not read it.
func (c *cursor) whole() (*Leaf, bool) {
	if c.page != nil {
		return nil, false
	}
	return &c.leaves[c.at], true
}

// skipLeaf moves on to the next leaf.
func (c *cursor) skipLeaf() bool {
	c.at++
	return c.enter()
}
