package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/run"
	"github.com/latticekv/lattice/core/store"
)

var (
	// ErrPastCut: the shard's clock has reached the cut; a later one is needed.
	ErrPastCut = errors.New("the clock is past the cut")
	// ErrPinExpired: the state that was pinned is not kept any more.
	ErrPinExpired = errors.New("pin expired")
	// ErrTooManyPins: the shard keeps as many pinned states as it may.
	ErrTooManyPins = errors.New("too many pins")
)

// MaxPins bounds the pinned states of a shard.
const MaxPins = 64

// Pin is a state of the shard that is kept until it expires: the checkpoint and
// the rows of the log that were there when it was pinned. It holds exactly the
// writes with versions up to its cut.
type Pin struct {
	// ID is that of the snapshot.
	ID string `json:"id"`
	// Cut is the time that every later write of the shard is above.
	Cut clock.HLC `json:"cut"`
	// Checkpoint and the rows after it up to Seq are what is kept.
	Checkpoint
	// Last is the last row that belongs to the state.
	Last uint64 `json:"last"`
	// Expiry is the Unix millisecond up to which it is kept.
	Expiry int64 `json:"expiry"`
}

// Pin pins the present state under an id and a cut, with one append, which lifts
// the shard's clock past the cut. ErrPastCut says that the clock is there
// already, and ErrStaleRouting that the shard does not own all of the slots, unless
// nil: nothing changed then. The same id again pins anew.
func (s *Shard) Pin(ctx context.Context, id string, cut clock.HLC, expiry int64, owned *keyspace.SlotSet) (Pin, error) {
	p := Pin{ID: id, Cut: cut, Expiry: expiry}
	err := s.submit(ctx, &pending{control: &control{note: "pin " + id, clock: cut, apply: func(h *Head, now clock.Instant) error {
		m := *h.Meta()
		switch {
		case m.Closed:
			return ErrClosed
		case owned != nil && h.meta.refused != nil && h.meta.refused.Intersects(owned):
			return ErrStaleRouting
		case h.Clock >= cut:
			return ErrPastCut
		}
		m.Pins = slices.DeleteFunc(slices.Clone(m.Pins), func(o Pin) bool { return o.ID == id || s.overdue(&o, now) })
		if len(m.Pins) >= MaxPins {
			return ErrTooManyPins
		}
		p.Checkpoint, p.Last = m.Checkpoint, h.Seq
		m.Pins = append(m.Pins, p)
		return h.setMeta(m)
	}}})
	if err != nil {
		return Pin{}, fmt.Errorf("pin %s: %w", s.partition, err)
	}
	s.keepPinned(&p)
	return p, nil
}

// keepPinned keeps the state that was just pinned, if memory has it still: the
// pin's own row changed no entry.
func (s *Shard) keepPinned(p *Pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st == nil || s.st.head.Seq != p.Last+1 || s.st.base.Name() != p.Manifest {
		return
	}
	v := s.st.view(s, s.cfg.Clock.Now())
	s.keepView(p, s.pinnedView(p, v.base, v.tail, v.undecided))
}

// pinnedView is the view of a pinned state.
func (s *Shard) pinnedView(p *Pin, base *run.Set, tail tailSnapshot, u undecidedView) *View {
	return &View{
		s: s, base: base, tail: tail, undecided: u, milli: p.Cut.Milli(), meta: &Meta{}, pinned: true, clock: p.Cut,
	}
}

// keepView remembers a pinned view; of too many, all are forgotten, and read
// anew when they are asked for.
func (s *Shard) keepView(p *Pin, v *View) {
	if s.pinnedCount.Add(1) > MaxPins {
		s.pinned.Clear()
		s.pinnedCount.Store(1)
	}
	s.pinned.Store(p.ID, v)
}

// Repin moves the expiry of a pin, unless it is gone: ErrPinExpired.
func (s *Shard) Repin(ctx context.Context, id string, expiry int64) error {
	found := false
	err := s.change(ctx, "repin "+id, func(m *Meta) bool {
		i := slices.IndexFunc(m.Pins, func(p Pin) bool { return p.ID == id })
		if found = i >= 0; !found || m.Pins[i].Expiry >= expiry {
			return false
		}
		m.Pins = slices.Clone(m.Pins)
		m.Pins[i].Expiry = expiry
		return true
	})
	if err == nil && !found {
		err = ErrPinExpired
	}
	return err
}

// Unpin gives a pin up. It changes nothing if there is none.
func (s *Shard) Unpin(ctx context.Context, id string) error {
	return s.change(ctx, "unpin "+id, func(m *Meta) bool {
		before := len(m.Pins)
		m.Pins = slices.DeleteFunc(slices.Clone(m.Pins), func(p Pin) bool { return p.ID == id })
		return len(m.Pins) != before
	})
}

// overdue reports whether nobody relies on a pin any more, whosever clock is
// ahead.
func (s *Shard) overdue(p *Pin, now clock.Instant) bool {
	return now.Milli() > p.Expiry+s.cfg.MaxClockSkew.Milliseconds()
}

// Pinned returns the pinned state as a view. ErrPinExpired says that it is not
// kept any more, or will not be for certain: never is anything else shown.
func (s *Shard) Pinned(ctx context.Context, p Pin) (*View, error) {
	if s.cfg.Clock.Now().Milli() >= p.Expiry-s.cfg.MaxClockSkew.Milliseconds() {
		return nil, ErrPinExpired
	}
	if v, ok := s.pinned.Load(p.ID); ok && v.(*View).clock == p.Cut {
		return v.(*View), nil
	}
	v, err := s.openPin(ctx, &p)
	if err != nil {
		return nil, err
	}
	s.keepView(&p, v)
	return v, nil
}

// openPin reads a pinned state from storage.
func (s *Shard) openPin(ctx context.Context, p *Pin) (*View, error) {
	base, err := s.runs.Open(ctx, p.Manifest)
	if err != nil {
		return nil, s.unpinned(p, err)
	}
	st := &state{base: base, tail: &tail{}}
	if p.Last > p.Seq {
		rows, err := s.readBetween(ctx, p.Seq+1, p.Last)
		if err != nil {
			return nil, s.unpinned(p, err)
		}
		for i := range rows {
			st.absorb(&rows[i], 0)
		}
	}
	var u undecidedView
	if st.prepared.byKey.Len() > 0 {
		u.prepared = st.prepared.byKey.Copy()
	}
	return s.pinnedView(p, base, st.tail.snapshot(), u), nil
}

// unpinned translates what is missing of a pinned state.
func (s *Shard) unpinned(p *Pin, err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, errTruncated) {
		return fmt.Errorf("%w: %s of %s: %v", ErrPinExpired, p.ID, s.partition, err)
	}
	return err
}

// livePins returns the pins that somebody may rely on.
func (s *Shard) livePins() (live []Pin, overdue bool) {
	now := s.cfg.Clock.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.st.head.Meta().Pins {
		if s.overdue(&p, now) {
			overdue = true
			continue
		}
		live = append(live, p)
	}
	return live, overdue
}

// dropPins gives up the pins that are overdue.
func (s *Shard) dropPins(ctx context.Context) error {
	return s.change(ctx, "drop pins", func(m *Meta) bool {
		now, before := s.cfg.Clock.Now(), len(m.Pins)
		m.Pins = slices.DeleteFunc(slices.Clone(m.Pins), func(p Pin) bool { return s.overdue(&p, now) })
		return len(m.Pins) != before
	})
}

// pinnedBlobs adds the blobs that pinned states refer to.
func (s *Shard) pinnedBlobs(ctx context.Context, pins []Pin, used map[string]struct{}) error {
	for i := range pins {
		v, err := s.openPin(ctx, &pins[i])
		if err != nil {
			return fmt.Errorf("look through pin %s of %s: %w", pins[i].ID, s.partition, err)
		}
		v.blobs(used)
	}
	return nil
}

// blobs adds the blobs that a view refers to.
func (v *View) blobs(used map[string]struct{}) {
	for name := range v.base.Blobs() {
		used[name] = struct{}{}
	}
	v.tail.items.Scan(func(_ string, it *tailItem) bool {
		if it.Ref != nil {
			used[it.Ref.Blob] = struct{}{}
		}
		return true
	})
	if v.undecided.prepared == nil {
		return
	}
	v.undecided.prepared.Scan(func(_ string, at []Prepared) bool {
		for i := range at {
			if at[i].Entry.Ref != nil {
				used[at[i].Entry.Ref.Blob] = struct{}{}
			}
		}
		return true
	})
}
