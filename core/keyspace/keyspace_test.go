package keyspace

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSlotsOfKeysNeverChange(t *testing.T) {
	// Stored data depends on these.
	for key, want := range map[string]uint16{"": 2457, "a": 3675, "key": 820, "😀": 2944, "a\x00": 3990} {
		if got := Slot(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

func TestSlotsAreEvenlyUsed(t *testing.T) {
	var n [Slots]int
	for i := range 100 * Slots {
		n[Slot(fmt.Sprintf("user-%08d", i))]++
	}
	if least, most := slices.Min(n[:]), slices.Max(n[:]); least < 50 || most > 150 {
		t.Errorf("of 100 keys a slot, one has %d and one %d", least, most)
	}
}

func TestDefaultMapIsEven(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 256, Slots} {
		m, err := Default(n)
		if err != nil {
			t.Fatal(err)
		}
		runs := m.Ranges()
		if len(runs) != n || len(m.Shards()) != n || m.Version != 0 {
			t.Errorf("%d shards: %d runs, %d shards, version %d", n, len(runs), len(m.Shards()), m.Version)
		}
		for _, r := range runs {
			if size := int(r.To-r.From) + 1; size != Slots/n && size != Slots/n+1 {
				t.Errorf("%d shards: shard %d has %d slots", n, r.Shard, size)
			}
		}
	}
	for _, n := range []int{0, -1, Slots + 1} {
		if _, err := Default(n); err == nil {
			t.Errorf("%d shards were accepted", n)
		}
	}
}

func TestOwnerOfKeyIsOwnerOfItsSlot(t *testing.T) {
	m, err := Default(13)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		key := fmt.Sprint(i)
		if m.OwnerOf(key) != m.Owner(Slot(key)) {
			t.Fatalf("%q", key)
		}
	}
}

func TestMapSurvivesItsRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []Range
		for next := 0; next < Slots; {
			to := min(Slots-1, next+rapid.IntRange(0, 900).Draw(t, "length"))
			runs = append(runs, Range{From: uint16(next), To: uint16(to), Shard: ShardID(rapid.IntRange(0, 5).Draw(t, "shard"))})
			next = to + 1
		}
		m, err := FromRanges(rapid.Uint64().Draw(t, "version"), runs)
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromRanges(m.Version, m.Ranges())
		if err != nil || *again != *m {
			t.Fatalf("the map changed: %v", err)
		}
		for _, r := range runs {
			if m.Owner(r.From) != r.Shard || m.Owner(r.To) != r.Shard {
				t.Fatalf("run %v was lost", r)
			}
		}
		if ids := m.Shards(); !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Fatalf("shards %v", ids)
		}
		compact := m.Ranges()
		for i := 1; i < len(compact); i++ {
			if compact[i].Shard == compact[i-1].Shard {
				t.Fatalf("runs %v and %v are one", compact[i-1], compact[i])
			}
		}
	})
}

func TestBrokenRangesAreRefused(t *testing.T) {
	for name, runs := range map[string][]Range{
		"none":          nil,
		"gap":           {{0, 10, 0}, {12, Slots - 1, 1}},
		"overlap":       {{0, 10, 0}, {10, Slots - 1, 1}},
		"starts late":   {{1, Slots - 1, 0}},
		"ends early":    {{0, Slots - 2, 0}},
		"beyond":        {{0, Slots, 0}},
		"backwards":     {{0, 10, 0}, {11, 5, 1}},
		"too many":      {{0, Slots - 1, 0}, {0, 0, 0}},
		"highest value": {{0, 65535, 0}},
	} {
		if _, err := FromRanges(1, runs); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestSlotSetBehavesLikeASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := map[uint16]bool{}
		var a, b SlotSet
		for _, slot := range rapid.SliceOf(rapid.Uint16Range(0, Slots-1)).Draw(t, "a") {
			a.Add(slot)
			want[slot] = true
		}
		for _, slot := range rapid.SliceOf(rapid.Uint16Range(0, Slots-1)).Draw(t, "b") {
			b.Add(slot)
			want[slot] = true
		}
		before := a
		a.Union(&b)
		for slot := range uint16(Slots) {
			if a.Has(slot) != want[slot] {
				t.Fatalf("slot %d", slot)
			}
			if before.Has(slot) && !a.Has(slot) {
				t.Fatalf("slot %d was lost", slot)
			}
		}
		if a.Len() != len(want) || a.Empty() != (len(want) == 0) {
			t.Fatalf("%d slots of %d", a.Len(), len(want))
		}
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var back SlotSet
		if err := json.Unmarshal(raw, &back); err != nil || back != a {
			t.Fatalf("%s: %v", raw, err)
		}
	})
}

func TestSlotSetHasItsGoldenForm(t *testing.T) {
	var s SlotSet
	if raw, _ := json.Marshal(s); string(raw) != `[]` {
		t.Errorf("empty: %s", raw)
	}
	for _, slot := range []uint16{0, 1, 2, 63, 64, 4095} {
		s.Add(slot)
	}
	if raw, _ := json.Marshal(s); string(raw) != `[[0,2],[63,64],[4095,4095]]` {
		t.Errorf("got %s", raw)
	}
}

func TestBrokenSlotSetsAreRefused(t *testing.T) {
	for _, raw := range []string{`[[1,0]]`, `[[0,4096]]`, `[[5,6],[6,7]]`, `[[5,6],[1,2]]`, `[[-1,2]]`, `{}`, `[[0,65536]]`, `["a"]`} {
		s := SlotSet{}
		if err := json.Unmarshal([]byte(raw), &s); err == nil {
			t.Errorf("%s was accepted", raw)
		}
	}
}
