package history

import (
	"testing"
	"time"
)

func (op Op) on(key string) Op {
	op.Key = key
	return op
}

func (op Op) over() Op { // of a batch, which always looks
	op.Found, op.FoundUnset = true, false
	return op
}

func (op Op) anew() Op {
	op.Found, op.FoundUnset = false, false
	return op
}

func batch(call, end int64, ops ...Op) Batch { return Batch{Ops: ops, Call: call, Return: end} }

func (b Batch) unknown() Batch {
	b.Unknown = true
	return b
}

// What a check of strict serializability must find, and what it must let pass.
func TestCheckLedger(t *testing.T) {
	x, y := func(op Op) Op { return op.on("x") }, func(op Op) Op { return op.on("y") }
	both := func(call, end int64) Batch {
		return batch(call, end, x(put("a", "5")).anew(), y(put("b", "5")).anew())
	}
	lost := func(call, end int64) Batch {
		return batch(call, end, x(put("a", "")), y(put("b", ""))).unknown()
	}
	for _, c := range []struct {
		name    string
		ops     []Op
		batches []Batch
		surveys []Survey
		ok      bool
	}{
		{"a batch seen whole", []Op{x(get("a", "5")).at(2, 3), y(get("b", "5")).at(2, 3)}, []Batch{both(0, 1)}, nil, true},
		{"a batch half seen", []Op{x(get("a", "5")).at(2, 3), y(get("", "")).at(4, 5)}, []Batch{both(0, 9)}, nil, false},
		{"half seen in the order in which it may be", []Op{y(get("", "")).at(2, 3), x(get("a", "5")).at(4, 5)}, []Batch{both(0, 9)}, nil, true},
		{"half seen at once", []Op{y(get("", "")).at(2, 6), x(get("a", "5")).at(3, 5)}, []Batch{both(0, 9)}, nil, true},
		{"seen and then unseen", []Op{x(get("a", "5")).at(2, 3), x(get("", "")).at(4, 5)}, []Batch{both(0, 9)}, nil, false},
		{"seen before its call", []Op{x(get("a", "5")).at(0, 1)}, []Batch{both(2, 3)}, nil, false},
		{"not seen after its end", []Op{y(get("", "")).at(2, 3)}, []Batch{both(0, 1)}, nil, false},
		{"a lost update", []Op{x(put("p", "6")).at(2, 3), x(get("a", "5")).at(4, 5)}, []Batch{both(0, 1)}, nil, false},
		{"a later put is overwritten", []Op{x(put("p", "6")).at(4, 5), x(get("p", "6")).at(6, 7), x(get("a", "5")).at(8, 9)}, []Batch{both(0, 20)}, nil, false},
		{"a put and a batch whose versions disagree with time", []Op{x(put("p", "4")).at(4, 5)}, []Batch{both(0, 1)}, nil, false},
		{"two batches in a circle", []Op{}, []Batch{
			batch(0, 9, x(put("a", "5")).anew(), y(put("b", "5")).over()),
			batch(0, 9, x(put("c", "6")).over(), y(put("d", "4")).anew()),
		}, nil, false},
		{"two batches in a row", []Op{}, []Batch{
			batch(0, 9, x(put("a", "5")).anew(), y(put("b", "5")).anew()),
			batch(0, 9, x(put("c", "6")).over(), y(put("d", "6")).over()),
		}, nil, true},
		{"gets that see two batches in two orders", []Op{
			x(get("c", "6")).at(1, 2), y(get("d", "6")).at(3, 4), y(get("b", "5")).at(5, 6),
		}, []Batch{both(0, 20), batch(0, 20, x(put("c", "6")).over(), y(put("d", "6")).over())}, nil, false},
		{"a lost batch that never was", []Op{x(get("", "")).at(2, 3), y(get("", "")).at(8, 9)}, []Batch{lost(0, 1)}, nil, true},
		{"a lost batch that was late", []Op{x(get("", "")).at(2, 3), x(get("a", "5")).at(8, 9), y(get("b", "5")).at(10, 11)}, []Batch{lost(0, 1)}, nil, true},
		{"a lost batch of which half came", []Op{x(get("a", "5")).at(2, 3), y(get("", "")).at(8, 9)}, []Batch{lost(0, 1)}, nil, false},
		{"a lost batch that came and went", []Op{x(get("a", "5")).at(2, 3), x(get("", "")).at(8, 9)}, []Batch{lost(0, 1)}, nil, false},
		{"a condition that holds", []Op{x(put("p", "1")).at(0, 1)}, []Batch{
			batch(2, 3, x(put("a", "5")).ifVersion("1").over(), y(put("b", "5")).anew()),
		}, nil, true},
		{"a condition that cannot hold", []Op{x(put("p", "1")).at(0, 1), x(put("q", "2")).at(2, 3)}, []Batch{
			batch(4, 5, x(put("a", "5")).ifVersion("1").over(), y(put("b", "5")).anew()),
		}, nil, false},
		{"two batches that both create a key", nil, []Batch{
			batch(0, 9, x(put("a", "5")).ifAbsent().anew(), y(put("b", "5")).anew()),
			batch(0, 9, x(put("c", "6")).ifAbsent().anew(), y(put("d", "6")).over()),
		}, nil, false},
		{"a batch that deletes", []Op{x(put("p", "1")).at(0, 1), x(get("", "")).at(5, 6), y(get("b", "5")).at(7, 8)}, []Batch{
			batch(2, 3, x(del(true)), y(put("b", "5")).anew()),
		}, nil, true},
		{"a deletion of it half seen", []Op{x(put("p", "1")).at(0, 1), y(get("b", "5")).at(5, 6), x(get("p", "1")).at(7, 8)}, []Batch{
			batch(2, 20, x(del(true)), y(put("b", "5")).anew()),
		}, nil, false},
		{"a batch beside a delete of its key", []Op{x(del(true)).at(2, 9)}, []Batch{
			batch(0, 1, x(put("a", "5")).anew(), y(put("b", "5")).anew()), batch(3, 4, x(del(true)), y(put("c", "6")).over()),
			batch(5, 6, x(put("d", "7")).anew(), y(put("e", "7")).over()),
		}, nil, true},
		{"a look that sees it whole", nil, []Batch{both(0, 9)}, []Survey{{Keys: []string{"x", "y"}, Seen: []string{"a", "b"}, Call: 1, Return: 2}}, true},
		{"a look that sees a half", nil, []Batch{both(0, 9)}, []Survey{{Keys: []string{"x", "y"}, Seen: []string{"a", ""}, Call: 1, Return: 2}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := CheckLedger(c.ops, c.batches, c.surveys, time.Minute)
			if v.OK() != c.ok || v.Undecided {
				t.Errorf("found strictly serializable: %v, undecided: %v", v.OK(), v.Undecided)
			}
		})
	}
}

// A batch that was refused is a look at the keys that refused it.
func TestARefusedBatchIsALook(t *testing.T) {
	for name, c := range map[string]struct {
		current string
		ok      bool
	}{"true": {"1", true}, "wrong": {"", false}} {
		t.Run(name, func(t *testing.T) {
			var r Recorder
			r.Add(put("p", "1").at(0, 1))
			b := batch(2, 3, put("a", "").ifVersion("9").mismatch(c.current), put("b", "").on("y"))
			b.Mismatch = true
			r.AddBatch(b)
			if v := CheckLedger(r.Ops(), r.Batches(), nil, time.Minute); v.OK() != c.ok {
				t.Errorf("found right: %v", v.OK())
			}
		})
	}
}

func TestVoidBatchesAreNoHistory(t *testing.T) {
	var r Recorder
	r.AddBatch(Batch{Ops: []Op{put("a", "1")}, Void: true})
	if len(r.Batches())+len(r.Ops()) != 0 {
		t.Error("recorded")
	}
}
