package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Survey is a read of several keys in one call: a count of them, or a look at
// their values.
type Survey struct {
	Client int
	// Keys are those looked at, each once.
	Keys []string
	// Seen are the values of the keys, "" where there was none; nil for a
	// count.
	Seen []string
	// Total is the result of a count.
	Total int
	// Call and Return are times on the clock of the operations.
	Call, Return int64
}

// Gets returns a look as one read for each key, without versions: what it says
// when it need not have seen all keys at one moment.
func (s *Survey) Gets() []Op {
	ops := make([]Op, 0, len(s.Seen))
	for i, seen := range s.Seen {
		ops = append(ops, Op{
			Client: s.Client, Kind: Get, Key: s.Keys[i], Seen: seen, VersionUnset: true, Call: s.Call, Return: s.Return,
		})
	}
	return ops
}

// Bounds returns the least and the greatest total that a count can have if it
// sees each key at some moment of its own between its call and its return:
// keys that must have existed all the while, and keys that can have existed at
// some time.
func Bounds(ops []Op, s *Survey) (least, most int) {
	for _, key := range s.Keys {
		var history []*Op
		for i := range ops {
			if ops[i].Key == key {
				history = append(history, &ops[i])
			}
		}
		if settled(history, s, (*Op).found, (*Op).mayRemove) {
			least++
		}
		if !settled(history, s, (*Op).missed, (*Op).mayCreate) && slices.ContainsFunc(history, func(op *Op) bool {
			return op.mayCreate() && op.Call < s.Return
		}) {
			most++
		}
	}
	return least, most
}

// settled reports whether some operation that ended before the survey shows a
// state, and nothing that could undo it overlaps or follows that operation
// before the survey ends.
func settled(history []*Op, s *Survey, shows, undoes func(*Op) bool) bool {
	last := int64(math.MinInt64) // the latest end of what may undo
	for _, op := range history {
		if undoes(op) && op.Call < s.Return {
			end := op.Return
			if op.Unknown {
				end = math.MaxInt64
			}
			last = max(last, end)
		}
	}
	return slices.ContainsFunc(history, func(op *Op) bool {
		return shows(op) && op.Return <= s.Call && op.Call > last
	})
}

// found reports whether the key was certainly there after the operation.
func (op *Op) found() bool {
	switch {
	case op.Unknown:
		return false
	case op.Kind == Get:
		return op.Seen != ""
	case op.Mismatch:
		return op.IfAbsent || op.Version != ""
	}
	return op.Kind != Delete
}

// missed reports whether the key was certainly absent after the operation.
func (op *Op) missed() bool {
	switch {
	case op.Unknown:
		return false
	case op.Kind == Get:
		return op.Seen == ""
	case op.Mismatch:
		return !op.IfAbsent && op.Version == "" && !op.VersionUnset
	}
	return op.Kind == Delete
}

// mayRemove reports whether the operation can have removed the key.
func (op *Op) mayRemove() bool { return op.Kind == Delete && !op.Mismatch }

// mayCreate reports whether the operation can have made the key exist.
func (op *Op) mayCreate() bool {
	return (op.Kind == Put || op.Kind == GetOrSet) && !op.Mismatch && op.Seen == ""
}

// maxTogether bounds the keys of one joint check.
const maxTogether = 8

// joint is the state of several keys, in the order of their index.
type joint [maxTogether]register

// CheckTogether looks for one order of the operations on all keys and of the
// surveys: that every survey saw all its keys at one moment. It is for short
// histories of at most 8 keys, for at most limit.
func CheckTogether(ops []Op, surveys []Survey, limit time.Duration) Verdict {
	ops = numbered(ops)
	index := keysOf(ops, surveys)
	v := Verdict{Checked: len(ops) + len(surveys), model: jointModel(index, ops)}
	if len(index) > maxTogether {
		v.Undecided = true
		return v
	}
	history := operations(ops)
	for _, s := range surveys {
		history = append(history, porcupine.Operation{ClientId: s.Client, Input: s, Output: s, Call: s.Call, Return: s.Return})
	}
	result, info := porcupine.CheckOperationsVerbose(v.model, distinctClients(history), limit)
	switch result {
	case porcupine.Illegal:
		v.Key, v.info = "all keys together", info
	case porcupine.Unknown:
		v.Undecided = true
	}
	return v
}

// keysOf gives every key a place.
func keysOf(ops []Op, surveys []Survey) map[string]int {
	index := make(map[string]int)
	place := func(key string) {
		if _, ok := index[key]; !ok {
			index[key] = len(index)
		}
	}
	for i := range ops {
		place(ops[i].Key)
	}
	for i := range surveys {
		for _, key := range surveys[i].Keys {
			place(key)
		}
	}
	return index
}

func jointModel(index map[string]int, ops []Op) porcupine.Model {
	books := make([]book, len(index))
	for key, mine := range byKey(ops) {
		books[index[key]] = newBook(mine)
	}
	return porcupine.Model{
		Init: func() any { return joint{} },
		Step: func(state, input, _ any) (bool, any) {
			now := state.(joint)
			if s, ok := input.(Survey); ok {
				return s.fits(&now, index), state
			}
			if b, ok := input.(Batch); ok {
				ok = b.step(&now, index, books)
				return ok, now
			}
			op := input.(Op)
			at := index[op.Key]
			ok, next := step(now[at], &op, &books[at])
			now[at] = next
			return ok, now
		},
		DescribeOperation: func(input, _ any) string {
			if s, ok := input.(Survey); ok {
				return fmt.Sprintf("survey of %v -> %d, %q", s.Keys, s.Total, s.Seen)
			}
			if b, ok := input.(Batch); ok {
				return b.describe()
			}
			op := input.(Op)
			return op.Key + ": " + describe(op)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// fits reports whether the survey describes the state.
func (s *Survey) fits(now *joint, index map[string]int) bool {
	live := 0
	for i, key := range s.Keys {
		value := now[index[key]].value
		if value != "" {
			live++
		}
		if s.Seen != nil && s.Seen[i] != value {
			return false
		}
	}
	return s.Seen != nil || live == s.Total
}
