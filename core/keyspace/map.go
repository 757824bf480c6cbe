package keyspace

import (
	"fmt"
	"slices"
)

// Map assigns every slot to a shard. It is immutable once shared; its version
// grows with every change. The map of a new tree has version 0.
type Map struct {
	Version uint64
	owner   [Slots]ShardID
}

// Default returns the map of a new tree: n shards, each with an equal run of
// neighbouring slots (sizes differ by one at most). n is 1 to Slots.
func Default(n int) (*Map, error) {
	if n < 1 || n > Slots {
		return nil, fmt.Errorf("shard count %d, 1 to %d allowed", n, Slots)
	}
	m := &Map{}
	for slot := range m.owner {
		m.owner[slot] = ShardID(slot * n / Slots)
	}
	return m, nil
}

// Owner returns the shard that owns a slot.
func (m *Map) Owner(slot uint16) ShardID { return m.owner[slot] }

// OwnerOf returns the shard that owns a key.
func (m *Map) OwnerOf(key string) ShardID { return m.owner[Slot(key)] }

// Range is a run of neighbouring slots of one shard, both ends included.
type Range struct {
	From, To uint16
	Shard    ShardID
}

// Ranges returns the map as runs in slot order: its compact form.
func (m *Map) Ranges() []Range {
	var runs []Range
	for slot, shard := range m.owner {
		if n := len(runs); n > 0 && runs[n-1].Shard == shard {
			runs[n-1].To = uint16(slot)
			continue
		}
		runs = append(runs, Range{From: uint16(slot), To: uint16(slot), Shard: shard})
	}
	return runs
}

// FromRanges rebuilds a map from its compact form, and refuses one that does
// not cover every slot exactly once, in order.
func FromRanges(version uint64, runs []Range) (*Map, error) {
	m := &Map{Version: version}
	next := 0
	for _, r := range runs {
		if int(r.From) != next || r.To < r.From || r.To >= Slots {
			return nil, fmt.Errorf("slot range %d to %d does not continue at slot %d", r.From, r.To, next)
		}
		for slot := r.From; slot <= r.To; slot++ {
			m.owner[slot] = r.Shard
		}
		next = int(r.To) + 1
	}
	if next != Slots {
		return nil, fmt.Errorf("slot ranges end at %d, not at %d", next, Slots)
	}
	return m, nil
}

// Shards returns the shards that own at least one slot, ascending.
func (m *Map) Shards() []ShardID {
	var ids []ShardID
	for _, r := range m.Ranges() {
		ids = append(ids, r.Shard)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Reassign returns a map in which those of the slots that from owns belong to
// to, under the next version, and how many did. If there are none the map is
// returned as it is.
func (m *Map) Reassign(from, to ShardID, slots *SlotSet) (*Map, int) {
	next, moved := *m, 0
	for slot := range uint16(Slots) {
		if m.owner[slot] == from && slots.Has(slot) {
			next.owner[slot] = to
			moved++
		}
	}
	if moved == 0 {
		return m, 0
	}
	next.Version++
	return &next, moved
}
