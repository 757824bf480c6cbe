package keyspace

import (
	"encoding/json"
	"fmt"
	"math/bits"
)

// SlotSet is a set of virtual slots. The zero value is empty. It is a value:
// assigning copies it.
type SlotSet struct{ words [Slots / 64]uint64 }

// Add puts a slot into the set.
func (s *SlotSet) Add(slot uint16) { s.words[slot/64] |= 1 << (slot % 64) }

// Has reports whether the slot is in the set.
func (s *SlotSet) Has(slot uint16) bool { return s.words[slot/64]&(1<<(slot%64)) != 0 }

// Union adds every slot of o.
func (s *SlotSet) Union(o *SlotSet) {
	for i, w := range o.words {
		s.words[i] |= w
	}
}

// Len counts the slots.
func (s *SlotSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Intersects reports whether the sets have a slot in common.
func (s *SlotSet) Intersects(o *SlotSet) bool {
	for i := range s.words {
		if s.words[i]&o.words[i] != 0 {
			return true
		}
	}
	return false
}

// Empty reports whether no slot is in the set.
func (s *SlotSet) Empty() bool { return s.words == [Slots / 64]uint64{} }

// next returns the first slot of the set that is not below another; Slots if there
// is none.
func (s *SlotSet) next(from uint16) uint16 {
	for at := int(from); at < Slots; at = at/64*64 + 64 {
		if rest := s.words[at/64] >> (at % 64); rest != 0 {
			return uint16(at + bits.TrailingZeros64(rest))
		}
	}
	return Slots
}

// Ranges returns the set as runs [from, to], both included, in slot order.
func (s *SlotSet) Ranges() [][2]uint16 {
	var runs [][2]uint16
	for slot := s.next(0); slot < Slots; slot = s.next(slot + 1) {
		if n := len(runs); n > 0 && runs[n-1][1]+1 == slot {
			runs[n-1][1] = slot
			continue
		}
		runs = append(runs, [2]uint16{slot, slot})
	}
	return runs
}

// MarshalJSON writes the set as its runs.
func (s SlotSet) MarshalJSON() ([]byte, error) {
	runs := s.Ranges()
	if runs == nil {
		runs = [][2]uint16{}
	}
	return json.Marshal(runs)
}

// UnmarshalJSON reads runs, and refuses one outside the slots or out of order.
func (s *SlotSet) UnmarshalJSON(b []byte) error {
	var runs [][2]uint16
	if err := json.Unmarshal(b, &runs); err != nil {
		return err
	}
	*s = SlotSet{}
	next := 0
	for _, r := range runs {
		if int(r[0]) < next || r[1] < r[0] || r[1] >= Slots {
			return fmt.Errorf("slot run %d to %d is out of order or range", r[0], r[1])
		}
		for slot := r[0]; slot <= r[1]; slot++ {
			s.Add(slot)
		}
		next = int(r[1]) + 1
	}
	return nil
}
