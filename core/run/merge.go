package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
)

// Budget bounds one step of a merge. Zero fields do not bound; a step makes
// progress whatever its budget.
type Budget struct {
	// Bytes bounds the uncompressed bytes merged. A step ends at the next leaf
	// boundary, so it may take a few leaves more.
	Bytes int64
	// Entries bounds the entries read.
	Entries int
	// Time bounds the duration, by the monotonic clock.
	Time time.Duration
}

// MergeDue reports whether the policy asks for a merge of the view.
func (s *Store) MergeDue(set *Set, policy Policy) bool {
	_, due := policy.choose(set.runs, s.Clock.Now().Milli())
	return due
}

// MergeStep performs one bounded step of merging, if any is due, and returns
// the view after it, unsaved, and whether more is due. The new leaves are
// durable on return. Every view reads the same, less what the policy drops. The
// view given stays as it is, also on error; dropping the result, or crashing,
// loses work and nothing else.
func (s *Store) MergeStep(ctx context.Context, set *Set, policy Policy, budget Budget) (*Set, bool, error) {
	now := s.Clock.Now()
	pl, due := policy.choose(set.runs, now.Milli())
	if !due {
		return set, false, nil
	}
	m := s.newMerge(ctx, set.runs[pl.lo:pl.hi], pl, policy)
	m.now = now.Milli()
	if budget.Time > 0 {
		m.until = now.Mono + budget.Time
	}
	group, err := m.run(budget)
	if err != nil {
		err = m.out.abandon(err)
	}
	m.ahead.wait() // its context ended with the writes
	if err != nil {
		return nil, false, fmt.Errorf("merge: %w", err)
	}
	next := set.with(set.seq, slices.Concat(set.runs[:pl.lo], group, set.runs[pl.hi:]))
	_, more := policy.choose(next.runs, now.Milli())
	return next, more, nil
}

// merge is one step of a merge.
type merge struct {
	store  *Store
	plan   plan
	policy Policy
	now    int64         // Unix milliseconds
	until  time.Duration // monotonic; 0 is never
	output *Run          // so far
	inputs []*Run
	heap   *merger
	ahead  *ahead // of the largest input
	out    *writer

	bytes   int64
	entries int
	look    int64 // bytes at which to look at the clock
}

// newMerge prepares a step over the runs of a plan.
func (s *Store) newMerge(ctx context.Context, runs []*Run, pl plan, policy Policy) *merge {
	m := &merge{store: s, plan: pl, policy: policy, inputs: runs}
	m.output = &Run{Level: pl.level, Base: pl.base, slot: noSlot}
	if pl.resume {
		m.output, m.inputs = runs[0], runs[1:]
	}
	m.out = s.newWriter(ctx, !pl.base)
	m.heap = newMerger(false)
	m.ahead = &ahead{read: s.pageOnce, depth: s.Options.parallelReads() / 2, pending: map[int]*fetch{}}
	large := slices.MaxFunc(m.inputs, func(a, b *Run) int { return cmp.Compare(len(a.Leaves), len(b.Leaves)) })
	for _, r := range m.inputs {
		c := newCursor(s.pageOnce, r, Bounds{}, false)
		if r == large {
			m.ahead.leaves, c.ahead = r.Leaves, m.ahead
		}
		m.heap.add(c)
	}
	return m
}

// run merges until the budget is used up, and returns the runs that replace
// those of the plan.
func (m *merge) run(budget Budget) ([]*Run, error) {
	ctx := m.out.ctx
	kept, err := m.reopen(ctx)
	if err != nil {
		return nil, err
	}
	if !m.heap.step(ctx) {
		return nil, m.heap.err
	}
	for len(m.heap.heap) > 0 && !m.spent(budget) {
		if err := m.advance(ctx); err != nil {
			return nil, err
		}
	}
	cursor, more := "", len(m.heap.heap) > 0
	if more {
		cursor = strings.Clone(m.heap.heap[0].key) // the view must not keep a page alive
	}
	leaves, err := m.out.wait()
	if err != nil {
		return nil, err
	}
	return m.group(kept, leaves, cursor, more), nil
}

// reopen takes the last leaf of the output back if it is small, so that steps
// do not leave small leaves behind, and returns the number of the others.
func (m *merge) reopen(ctx context.Context) (int, error) {
	n := len(m.output.Leaves)
	if n == 0 || m.output.Leaves[n-1].Raw >= int64(m.out.target/2) {
		return n, nil
	}
	page, err := m.store.pageOnce(ctx, &m.output.Leaves[n-1])
	if err != nil {
		return 0, err
	}
	return n - 1, m.out.addPage(page)
}

// spent reports whether the step should end: at a leaf boundary once the budget
// is used up, or anywhere once it is far exceeded.
func (m *merge) spent(b Budget) bool {
	if m.bytes == 0 && m.entries == 0 {
		return false
	}
	if b.Entries > 0 && m.entries >= b.Entries {
		return true
	}
	if b.Bytes > 0 && m.bytes >= b.Bytes {
		return m.out.builder.Len() == 0 || m.bytes >= b.Bytes+int64(2*m.out.target)
	}
	return m.late()
}

// lookEvery is the number of bytes merged between two looks at the clock.
const lookEvery = 64 << 10

func (m *merge) late() bool {
	if m.until == 0 || m.bytes < m.look {
		return false
	}
	m.look = m.bytes + lookEvery
	return m.store.Clock.Now().Mono >= m.until
}

// carryCost is what taking over a leaf unread counts against the budget.
const carryCost = 256

// advance merges the next key, or a whole leaf that nothing else touches.
func (m *merge) advance(ctx context.Context) error {
	if done, err := m.advanceLeaf(ctx); done || err != nil {
		return err
	}
	var e record.Entry
	if err := m.heap.heap[0].source.entry(ctx, &e); err != nil {
		return err
	}
	m.entries++
	m.bytes += int64(leaf.EntrySize(&e))
	if !m.drops(&e) {
		if err := m.out.add(&e); err != nil {
			return err
		}
	}
	m.heap.skip(ctx)
	return m.heap.err
}

// drops reports whether nobody needs the entry any more.
func (m *merge) drops(e *record.Entry) bool {
	if m.policy.Keep != nil && !m.policy.Keep(e.Key) {
		return true
	}
	if !m.plan.base {
		return false
	}
	if e.Tombstone {
		return m.policy.pastGrace(e.Version.Time.Milli(), m.now)
	}
	return e.Expiry != 0 && m.policy.pastGrace(e.Expiry, m.now)
}

// advanceLeaf takes over the leaf at whose beginning the merge stands, if no
// other input has keys in its range, nothing in it is to be dropped, and it is
// not small. An append-only load thus never rewrites a leaf.
func (m *merge) advanceLeaf(ctx context.Context) (bool, error) {
	c := m.heap.heap[0].source.(*cursor)
	l, ok := c.whole()
	if !ok || l.Raw < int64(m.out.target/2) {
		return false, nil
	}
	if other, ok := m.heap.second(); ok && other <= l.Last {
		return false, nil
	}
	if m.plan.base && l.DropFrom != 0 && m.policy.pastGrace(l.DropFrom, m.now) {
		return false, nil
	}
	if keep, err := m.keepsAll(ctx, c); !keep || err != nil {
		return false, err
	}
	if err := m.takeOver(ctx, l); err != nil {
		return false, err
	}
	m.bytes += carryCost
	m.heap.settleTop(c.skipLeaf())
	return true, nil
}

// keepsAll reports whether the policy keeps every key of the cursor's leaf.
func (m *merge) keepsAll(ctx context.Context, c *cursor) (bool, error) {
	if m.policy.Keep == nil {
		return true, nil
	}
	if err := c.load(ctx); err != nil {
		return false, err
	}
	m.bytes += c.leaves[c.at].Raw
	for i := range c.page.Len() {
		if !m.policy.Keep(c.page.Key(i)) {
			return false, nil
		}
	}
	return true, nil
}

// takeOver carries a leaf, or joins it with the few entries in front of it when
// these would make a small leaf. Joining rewrites one leaf and ends there: the
// next leaf finds nothing in front.
func (m *merge) takeOver(ctx context.Context, l *Leaf) error {
	pending, target := m.out.builder.Size(), m.out.target
	if pending == 0 || pending >= target/2 || int64(pending)+l.Raw > int64(target+target/2) {
		m.out.carry(*l)
		return nil
	}
	page, err := m.store.pageOnce(ctx, l)
	if err != nil {
		return err
	}
	m.bytes += l.Raw
	if err := m.out.addPage(page); err != nil {
		return err
	}
	m.out.cut()
	return nil
}

// group returns the runs after the step: the output with its new leaves, and
// the inputs from the cursor on if there is more.
func (m *merge) group(kept int, leaves []Leaf, cursor string, more bool) []*Run {
	out := *m.output
	out.Leaves = slices.Concat(m.output.Leaves[:kept], leaves)
	out.settled = min(out.settled, kept)
	out.Inputs = 0
	if !more {
		if len(out.Leaves) == 0 {
			return nil
		}
		return []*Run{newRun(out)}
	}
	out.Inputs = len(m.inputs)
	group := []*Run{newRun(out)}
	for _, r := range m.inputs {
		group = append(group, r.from(cursor))
	}
	return group
}
