package verify

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/latticekv/lattice/client"
)

// pair is a key that is on both sides. It is saved with its bucket.
type pair struct {
	Item Item `json:"item"`
	// Version and ExpiresAt are those of the tree's stream.
	Version   string    `json:"version"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Changed says that the source has changed it since the cut.
	Changed bool `json:"changed,omitempty"`
	// Settled says that its value was compared, or is going to be, or that it is
	// known to differ.
	Settled bool `json:"settled,omitempty"`
}

// cursor is a stream with the element that comes next.
type cursor[T any] struct {
	next func() (T, error, bool)
	stop func()
	head T
	ok   bool
}

func open[T any](seq iter.Seq2[T, error]) *cursor[T] {
	c := &cursor[T]{}
	c.next, c.stop = iter.Pull2(seq)
	return c
}

// advance moves to the next element.
func (c *cursor[T]) advance() error {
	v, err, ok := c.next()
	if ok && err != nil {
		return err
	}
	c.head, c.ok = v, ok
	return nil
}

// join merges the two streams.
type join struct {
	*store
	ctx       context.Context
	tree      *client.Tree
	threshold uint64
	items     *cursor[Item]
	entries   *cursor[client.Entry]
	changed   *cursor[string]
	buckets   buckets
	// rng is the range being walked through, keys how many it has.
	rng  Range
	keys int
	// probes wait for their values, closed for the probes of these buckets.
	probes probes
	closed []*bucket
}

// values reports whether the tree's stream carries values.
func (j *join) values() bool { return j.threshold == ^uint64(0) }

// run walks through both streams to the end.
func (j *join) run() error {
	for _, c := range []interface{ advance() error }{j.items, j.entries, j.changed} {
		if err := c.advance(); err != nil {
			return err
		}
	}
	for j.items.ok || j.entries.ok {
		if err := j.step(); err != nil {
			return err
		}
	}
	for len(j.buckets.open) > 0 {
		if err := j.buckets.pop(j.close); err != nil {
			return err
		}
	}
	return j.endRange(true)
}

// step deals with the least key.
func (j *join) step() (err error) {
	key := j.least()
	b, err := j.buckets.enter(key, j.o.prefixOf(key), j.close)
	if err != nil {
		return err
	}
	if j.keys == 0 {
		j.rng = Range{First: key}
	}
	j.rng.Last, j.keys, j.s.After = key, j.keys+1, key
	here, there := j.items.ok && j.items.head.Key == key, j.entries.ok && j.entries.head.Key == key
	if here {
		if err := j.others(b, &j.items.head); err != nil {
			return err
		}
	}
	switch {
	case here && there:
		err = j.match(b)
	case here:
		err = j.missing(b)
	default:
		err = j.extra(b)
	}
	if err != nil {
		return err
	}
	if err := j.consume(key, here, there); err != nil {
		return err
	}
	j.o.Progress.Keys.Add(1)
	h := xxhash.Sum64String(key)
	if j.ends(h) {
		return j.endRange(false)
	}
	return nil
}

func (j *join) least() string {
	switch {
	case !j.items.ok:
		return j.entries.head.Key
	case !j.entries.ok:
		return j.items.head.Key
	}
	return min(j.items.head.Key, j.entries.head.Key)
}

// consume moves on, and checks that the source keeps its order.
func (j *join) consume(key string, here, there bool) error {
	if here {
		if err := j.items.advance(); err != nil {
			return err
		}
		if it := &j.items.head; j.items.ok && it.Key <= key {
			return fmt.Errorf("verify: %s: key %q follows %q, the entries are not in order", it.Origin, it.Key, key)
		}
	}
	if there {
		return j.entries.advance()
	}
	return nil
}

// ends decides by the key alone where a range ends, so that a key more or less
// alters one range and not all that follow.
func (j *join) ends(h uint64) bool {
	const mix = 0x9E3779B97F4A7C15 // independent of what chooses the sample
	return (h*mix>>32)%uint64(j.o.RangeSize) == 0 || j.keys >= 8*j.o.RangeSize
}

// both applies a change to the tallies of range and bucket.
func (j *join) both(b *bucket, f func(*Tally)) {
	f(&j.rng.Tally)
	f(&b.Tally)
}

// missing deals with a key that only the source has.
func (j *join) missing(b *bucket) error {
	it := j.items.head
	if !strings.HasPrefix(it.Key, j.o.Prefix) {
		return fmt.Errorf("verify: %s: key %q does not begin with %q, to which the comparison is limited", it.Origin, it.Key, j.o.Prefix)
	}
	if j.expired(it.Expiry) {
		j.both(b, func(t *Tally) { t.count(Expired) })
		return nil
	}
	class, err := j.class(Missing, it.Key)
	if err != nil {
		return err
	}
	j.countSource(b, &it)
	return j.record(b, Difference{Class: class, Key: it.Key, Origin: it.Origin, Source: sourceFacts(&it)})
}

// extra deals with a key that only the tree has.
func (j *join) extra(b *bucket) error {
	e := &j.entries.head
	if j.expired(e.ExpiresAt) {
		j.both(b, func(t *Tally) { t.count(Expired) })
		return nil
	}
	class, err := j.class(Extra, e.Key)
	if err != nil {
		return err
	}
	j.countTarget(b, e)
	return j.record(b, Difference{Class: class, Key: e.Key, Target: targetFacts(e, j.values())})
}

func (j *join) countSource(b *bucket, it *Item) {
	k, v := keySum(it.Key), entrySum(it.Key, it.Digest)
	j.both(b, func(t *Tally) {
		t.Source++
		t.SourceKeys.add(k)
		t.SourceEntries.add(v)
	})
}

// others records that several records make the key.
func (j *join) others(b *bucket, it *Item) error {
	if it.Others == 0 {
		return nil
	}
	j.both(b, func(t *Tally) { t.Duplicates += it.Others })
	j.o.Progress.Differs.Add(it.Others)
	origin := it.Origin + " and " + it.Other
	if it.Others > 1 {
		origin += fmt.Sprintf(", and %d more", it.Others-1)
	}
	return j.differences.Line(Difference{Class: Duplicate, Key: it.Key, Origin: origin, Source: sourceFacts(it)})
}

func (j *join) countTarget(b *bucket, e *client.Entry) {
	k := keySum(e.Key)
	var v Sum
	if j.values() {
		v = entrySum(e.Key, DigestOf(e.Value))
	}
	j.both(b, func(t *Tally) {
		t.Target++
		t.TargetKeys.add(k)
		t.TargetEntries.add(v)
	})
}

// match deals with a key that both have.
func (j *join) match(b *bucket) error {
	it, e := j.items.head, &j.entries.head
	j.countSource(b, &it)
	j.countTarget(b, e)
	changed, err := j.hasChanged(it.Key)
	if err != nil {
		return err
	}
	p := pair{Item: it, Version: e.Version, ExpiresAt: e.ExpiresAt, Changed: changed}
	b.Matched++
	if j.values() {
		return j.compare(b, &p, e, true)
	}
	if xxhash.Sum64String(it.Key) < j.threshold || b.Bounded && b.Matched <= int64(j.o.Boundary) {
		p.Settled = true
		b.push(p, j.o.Boundary)
		return j.probe(b, p, true)
	}
	if p.Settled = !sameExpiry(it.Expiry, e.ExpiresAt, j.o.Tolerance); p.Settled {
		err = j.differs(b, Expiry, &p, targetFacts(e, false))
	} else {
		err = j.own(it.Key, e.Version)
	}
	b.push(p, j.o.Boundary)
	return err
}

// compare compares an entry with its value; first says that it was not looked
// at before.
func (j *join) compare(b *bucket, p *pair, e *client.Entry, first bool) error {
	j.both(b, func(t *Tally) { t.Compared++ })
	switch {
	case int64(len(e.Value)) != p.Item.Size || DigestOf(e.Value) != p.Item.Digest:
		if !first {
			if err := j.own(p.Item.Key, ""); err != nil {
				return err
			}
		}
		return j.differs(b, Value, p, targetFacts(e, true))
	case first && !sameExpiry(p.Item.Expiry, e.ExpiresAt, j.o.Tolerance):
		return j.differs(b, Expiry, p, targetFacts(e, true))
	case first:
		return j.own(p.Item.Key, e.Version)
	}
	return nil
}

// differs records a difference of a key that both have.
func (j *join) differs(b *bucket, c Class, p *pair, target *Facts) error {
	if p.Changed {
		c = Changed
	}
	return j.record(b, Difference{Class: c, Key: p.Item.Key, Origin: p.Item.Origin, Source: sourceFacts(&p.Item), Target: target})
}

func (j *join) record(b *bucket, d Difference) error {
	j.both(b, func(t *Tally) { t.count(d.Class) })
	j.o.Progress.Differs.Add(1)
	return j.differences.Line(d)
}

// own records the version that the migration has left.
func (j *join) own(key, version string) error {
	if j.ledger == nil {
		return nil
	}
	return j.ledger.Add(key, version)
}

// expired reports whether what expires then may be gone on one side by now.
func (j *join) expired(at time.Time) bool {
	return !at.IsZero() && !at.After(j.o.Now().Add(j.o.Tolerance))
}

func sameExpiry(a, b time.Time, tolerance time.Duration) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() == b.IsZero()
	}
	return a.Sub(b).Abs() <= tolerance
}

// class is that of a difference, unless the source has changed the key.
func (j *join) class(c Class, key string) (Class, error) {
	changed, err := j.hasChanged(key)
	if changed {
		c = Changed
	}
	return c, err
}

// hasChanged looks for a key, not less than any before, in the changed ones.
func (j *join) hasChanged(key string) (bool, error) {
	for j.changed.ok && j.changed.head < key {
		if err := j.changed.advance(); err != nil {
			return false, err
		}
	}
	return j.changed.ok && j.changed.head == key, nil
}

// endRange saves what there is.
func (j *join) endRange(last bool) error {
	if err := j.flush(); err != nil {
		return err
	}
	if j.keys > 0 {
		if err := j.ranges.Line(&j.rng); err != nil {
			return err
		}
		j.s.Ranges++
		j.s.Total.add(&j.rng.Tally)
	}
	j.rng, j.keys = Range{}, 0
	j.s.Open, j.s.Opened = j.buckets.open, j.buckets.opened
	if last {
		return j.finish()
	}
	return j.save()
}

func sourceFacts(it *Item) *Facts { return &Facts{Size: it.Size, ExpiresAt: it.Expiry} }

func targetFacts(e *client.Entry, read bool) *Facts {
	f := &Facts{Size: -1, ExpiresAt: e.ExpiresAt, Version: e.Version}
	if read {
		f.Size = int64(len(e.Value))
	}
	return f
}
