package history

import (
	"path/filepath"
	"testing"
	"time"
)

// at returns the operation between two times.
func (op Op) at(call, end int64) Op {
	op.Call, op.Return = call, end
	return op
}

func put(value, version string) Op {
	return Op{Kind: Put, Key: "k", Value: value, Version: version, FoundUnset: true}
}

func get(value, version string) Op { return Op{Kind: Get, Key: "k", Seen: value, Version: version} }

// saw is a look that is not told the version.
func saw(value string) Op { return Op{Kind: Get, Key: "k", Seen: value, VersionUnset: true} }

func del(found bool) Op { return Op{Kind: Delete, Key: "k", Found: found} }

func (op Op) unknown() Op {
	op.Unknown, op.Version = true, ""
	return op
}

func (op Op) ifVersion(v string) Op {
	op.IfVersion = v
	return op
}

func (op Op) ifAbsent() Op {
	op.IfAbsent = true
	return op
}

func (op Op) mismatch(now string) Op {
	op.Mismatch, op.Version = true, now
	return op
}

func getOrSet(value, seen, version string) Op {
	return Op{Kind: GetOrSet, Key: "k", Value: value, Seen: seen, Version: version, Found: seen != ""}
}

func TestCheckOfOneKey(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []Op
		ok   bool
	}{
		{"an empty history", nil, true},
		{"a read after a write", []Op{put("a", "1").at(0, 1), get("a", "1").at(2, 3)}, true},
		{"a read of nothing after a write", []Op{put("a", "1").at(0, 1), get("", "").at(2, 3)}, false},
		{"a read of nothing beside a write", []Op{put("a", "1").at(0, 5), get("", "").at(2, 3)}, true},
		{"lost writes seen without a version, the later one first", []Op{
			put("a", "").unknown().at(0, 1), put("b", "").unknown().at(2, 3), saw("b").at(4, 5), saw("a").at(6, 7)}, true},
		{"lost writes seen without a version, and one of them again", []Op{
			put("a", "").unknown().at(0, 1), put("b", "").unknown().at(2, 3), saw("b").at(4, 5), saw("a").at(6, 7), saw("b").at(8, 9)}, false},
		{"lost writes that only create, seen in turn", []Op{
			getOrSet("a", "", "").unknown().at(0, 1), put("b", "").ifAbsent().unknown().at(2, 3), saw("b").at(4, 5), del(true).at(6, 7), saw("a").at(8, 9)}, true},
		{"a stale read", []Op{put("a", "1").at(0, 1), put("b", "2").at(2, 3), get("a", "1").at(4, 5)}, false},
		{"an old value that comes back", []Op{put("a", "1").at(0, 1), put("b", "2").at(2, 9), get("b", "2").at(3, 4), get("a", "1").at(5, 6)}, false},
		{"two readers of concurrent writes that disagree", []Op{
			put("a", "1").at(0, 9), put("b", "2").at(0, 9), get("b", "2").at(1, 2), get("a", "1").at(3, 4),
		}, false},
		{"a version that goes back", []Op{put("a", "2").at(0, 1), put("b", "1").at(2, 3)}, false},
		{"a value of another version", []Op{put("a", "1").at(0, 1), get("a", "2").at(2, 3)}, false},
		{"a deleted key", []Op{put("a", "1").at(0, 1), del(true).at(2, 3), get("", "").at(4, 5)}, true},
		{"a deleted key that comes back", []Op{put("a", "1").at(0, 1), del(true).at(2, 3), get("a", "1").at(4, 5)}, false},
		{"a delete of nothing", []Op{del(true).at(0, 1)}, false},
		{"a delete that missed the key", []Op{put("a", "1").at(0, 1), del(false).at(2, 3)}, false},
		{"two deletes of one value", []Op{put("a", "1").at(0, 1), del(true).at(2, 5), del(true).at(2, 5)}, false},
		{"a lost write that was seen", []Op{put("a", "").unknown().at(0, 1), get("a", "1").at(2, 3), get("a", "1").at(9, 10)}, true},
		{"a lost write that never was", []Op{put("a", "").unknown().at(0, 1), get("", "").at(2, 3)}, true},
		{"a lost write that came late", []Op{put("a", "").unknown().at(0, 1), get("", "").at(2, 3), get("a", "1").at(4, 5)}, true},
		{"a lost write that came and went", []Op{put("a", "").unknown().at(0, 1), get("a", "1").at(2, 3), get("", "").at(4, 5)}, false},
		{"a write seen before it began", []Op{get("a", "1").at(0, 1), put("a", "1").at(2, 3)}, false},
		{"a conditional write", []Op{put("a", "1").at(0, 1), put("b", "2").ifVersion("1").at(2, 3)}, true},
		{"two conditional writes on one version", []Op{
			put("a", "1").at(0, 1), put("b", "2").ifVersion("1").at(2, 5), put("c", "3").ifVersion("1").at(2, 5),
		}, false},
		{"a conditional write refused for no reason", []Op{put("a", "1").at(0, 1), put("b", "").ifVersion("1").mismatch("1").at(2, 3)}, false},
		{"a conditional write refused, the reason wrong", []Op{
			put("a", "1").at(0, 1), put("b", "2").at(2, 3), put("c", "").ifVersion("9").mismatch("1").at(4, 5),
		}, false},
		{"a conditional write refused on an absent key", []Op{put("b", "").ifVersion("1").mismatch("").at(2, 3)}, true},
		{"a first write twice", []Op{put("a", "1").ifAbsent().at(0, 5), put("b", "2").ifAbsent().at(0, 5)}, false},
		{"a first write refused", []Op{put("a", "1").at(0, 1), put("b", "").ifAbsent().mismatch("1").at(2, 3)}, true},
		{"a first write refused on an absent key", []Op{put("b", "").ifAbsent().mismatch("1").at(2, 3)}, false},
		{"a version of a lost write in a condition", []Op{
			put("a", "").unknown().at(0, 1), put("b", "").ifAbsent().mismatch("1").at(2, 3), put("c", "2").ifVersion("1").at(4, 5),
		}, true},
		{"get-or-set that sets", []Op{getOrSet("a", "", "1").at(0, 1), get("a", "1").at(2, 3)}, true},
		{"get-or-set that gets", []Op{put("a", "1").at(0, 1), getOrSet("b", "a", "1").at(2, 3), get("a", "1").at(4, 5)}, true},
		{"get-or-set that sets over a value", []Op{put("a", "1").at(0, 1), getOrSet("b", "", "2").at(2, 3)}, false},
		{"get-or-set that gets what was replaced", []Op{put("a", "1").at(0, 1), put("b", "2").at(2, 3), getOrSet("c", "a", "1").at(4, 5)}, false},
		{"two get-or-sets that both set", []Op{getOrSet("a", "", "1").at(0, 9), getOrSet("b", "", "2").at(0, 9)}, false},
		{"a read called first that ends last", []Op{
			put("a", "1").at(0, 1), get("a", "1").at(2, 20), get("a", "1").at(3, 4), put("b", "2").at(5, 6), get("b", "2").at(7, 8),
		}, true},
		{"misses on both sides of a value", []Op{
			get("", "").at(0, 20), get("", "").at(1, 2), put("a", "1").at(3, 4), del(true).at(5, 6), get("", "").at(7, 8),
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Check(c.ops, time.Minute)
			if v.OK() != c.ok || v.Undecided {
				t.Errorf("found linearizable: %v, undecided: %v", v.OK(), v.Undecided)
			}
			if !c.ok {
				if err := v.Draw(filepath.Join(t.TempDir(), "history.html")); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name        string
		ops         []Op
		least, most int
	}{
		{"no history", nil, 0, 0},
		{"written before", []Op{put("a", "1").at(0, 1)}, 1, 1},
		{"written meanwhile", []Op{put("a", "1").at(11, 12)}, 0, 1},
		{"begun before, ended meanwhile", []Op{put("a", "1").at(1, 12)}, 0, 1},
		{"written afterwards", []Op{put("a", "1").at(21, 22)}, 0, 0},
		{"read before, written by who knows whom", []Op{put("a", "").unknown().at(0, 1), get("a", "1").at(2, 3)}, 1, 1},
		{"perhaps written", []Op{put("a", "").unknown().at(0, 1)}, 0, 1},
		{"deleted before", []Op{put("a", "1").at(0, 1), del(true).at(2, 3)}, 0, 0},
		{"deleted meanwhile", []Op{put("a", "1").at(0, 1), del(true).at(12, 13)}, 0, 1},
		{"perhaps deleted", []Op{put("a", "1").at(0, 1), del(false).unknown().at(2, 3)}, 0, 1},
		{"missed before, write still open", []Op{put("a", "").unknown().at(0, 1), get("", "").at(2, 3)}, 0, 1},
		{"missed before", []Op{put("a", "1").at(0, 1), del(false).at(2, 3), get("", "").at(4, 5)}, 0, 0},
		{"refused for being there", []Op{put("a", "").unknown().at(0, 1), put("b", "").ifAbsent().mismatch("1").at(2, 3)}, 1, 1},
		{"refused for being absent", []Op{put("a", "1").at(0, 1), del(true).at(2, 3), put("b", "").ifVersion("1").mismatch("").at(4, 5)}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			least, most := Bounds(c.ops, &Survey{Keys: []string{"k", "never touched"}, Call: 10, Return: 20})
			if least != c.least || most != c.most {
				t.Errorf("%d to %d, want %d to %d", least, most, c.least, c.most)
			}
		})
	}
}

func TestCheckTogether(t *testing.T) {
	on := func(key string, op Op) Op {
		op.Key = key
		return op
	}
	both := []string{"x", "y"}
	history := []Op{on("x", put("a", "1")).at(0, 1), on("y", put("b", "1")).at(10, 20), on("x", del(true)).at(21, 30)}
	count := func(n int, call, end int64) Survey { return Survey{Keys: both, Total: n, Call: call, Return: end} }
	look := func(x, y string, call, end int64) Survey {
		return Survey{Keys: both, Seen: []string{x, y}, Call: call, Return: end}
	}
	for _, c := range []struct {
		name    string
		surveys []Survey
		ok      bool
	}{
		{"nothing surveyed", nil, true},
		{"counts that fit", []Survey{count(1, 2, 3), count(2, 11, 25), count(1, 40, 41)}, true},
		{"a count that was never true", []Survey{count(0, 11, 40)}, false},
		{"a count that is late", []Survey{count(2, 40, 41)}, false},
		{"counts in the wrong order", []Survey{count(2, 11, 12), count(1, 13, 20)}, false},
		{"a look at one moment", []Survey{look("a", "b", 11, 25)}, true},
		{"a look at two moments", []Survey{look("", "", 0, 30)}, true},
		{"a look that mixes moments", []Survey{look("a", "", 2, 3), look("", "", 11, 40)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := CheckTogether(history, c.surveys, time.Minute); v.OK() != c.ok || v.Undecided {
				t.Errorf("found linearizable: %v, undecided: %v", v.OK(), v.Undecided)
			}
		})
	}
}

func TestCheckTogetherRefusesTooManyKeys(t *testing.T) {
	v := CheckTogether(nil, []Survey{{Keys: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}}}, time.Minute)
	if v.OK() || !v.Undecided {
		t.Errorf("nine keys: %+v", v)
	}
}

func TestLooksCountAsReads(t *testing.T) {
	s := Survey{Client: 3, Keys: []string{"k", "l"}, Seen: []string{"a", ""}, Call: 2, Return: 3}
	ops := append([]Op{put("a", "1").at(0, 1), put("b", "2").at(4, 5)}, s.Gets()...)
	if v := Check(ops, time.Minute); !v.OK() {
		t.Errorf("%q has no order", v.Key)
	}
	ops[1].Call, ops[1].Return = 1, 1
	if v := Check(ops, time.Minute); v.Key != "k" {
		t.Errorf("a stale look was found right: %+v", v.Key)
	}
}

func TestVoidOperationsAreNoHistory(t *testing.T) {
	var r Recorder
	r.Add(put("a", "1"), Op{Kind: Put, Key: "k", Void: true})
	if ops := r.Ops(); len(ops) != 1 {
		t.Errorf("%d operations recorded", len(ops))
	}
}
