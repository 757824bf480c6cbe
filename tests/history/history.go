// Package history records what concurrent clients did and saw, and checks with
// porcupine that one order of the operations explains it: that each key is a
// linearizable register with conditional writes. A Workload draws what clients
// do, for every test of this kind.
//
// An operation whose outcome its client does not know may have taken effect at
// any time from its call on, or never.
package history

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind says what an operation does.
type Kind uint8

// The kinds of operation.
const (
	Get Kind = iota + 1
	Put
	Delete
	GetOrSet
)

var kindNames = []string{"", "get", "put", "delete", "get-or-set"}

// Op is one operation on one key.
type Op struct {
	Client int
	Kind   Kind
	Key    string
	// Value is what a put or get-or-set writes; unique in the history.
	Value string
	// IfAbsent and IfVersion are the condition.
	IfAbsent  bool
	IfVersion string
	// Call and Return are times on one clock.
	Call, Return int64
	// Unknown says that the client does not know the outcome.
	Unknown bool
	// Void says that the operation is known not to have been carried out. It
	// is no part of the history.
	Void bool

	// Mismatch says that the condition did not hold.
	Mismatch bool
	// Found says that the key was there before.
	Found bool
	// FoundUnset waives Found for an operation that does not report it.
	FoundUnset bool
	// Seen is the value that a get, or a get-or-set that wrote nothing, saw.
	Seen string
	// Version is that of the value seen or written.
	Version string
	// VersionUnset waives Version for an operation that does not report it.
	VersionUnset bool

	// id tells the operations of a history apart while it is checked.
	id int
	// joined says that it is part of an atomic batch: it cannot change places
	// with another by itself.
	joined bool
}

// Recorder gathers operations of many clients.
type Recorder struct {
	mu      sync.Mutex
	ops     []Op
	surveys []Survey
	batches []Batch
}

// Add records finished operations.
func (r *Recorder) Add(ops ...Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range ops {
		if !op.Void {
			r.ops = append(r.ops, op)
		}
	}
}

// AddSurvey records a finished survey.
func (r *Recorder) AddSurvey(s Survey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surveys = append(r.surveys, s)
}

// Surveys returns the surveys recorded.
func (r *Recorder) Surveys() []Survey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Survey(nil), r.surveys...)
}

// Ops returns what was recorded.
func (r *Recorder) Ops() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Op(nil), r.ops...)
}

// Verdict is the outcome of a check.
type Verdict struct {
	// Key is the first key whose history has no explanation, empty if all have.
	Key string
	// Undecided says that the time did not suffice.
	Undecided bool
	// Checked counts the operations.
	Checked int
	info    porcupine.LinearizationInfo
	model   porcupine.Model
}

// OK reports whether every key was found linearizable.
func (v *Verdict) OK() bool { return v.Key == "" && !v.Undecided }

// Draw writes a page that shows where the history breaks.
func (v *Verdict) Draw(path string) error {
	return porcupine.VisualizePath(v.model, v.info, path)
}

// Check looks for an order of the operations on each key, for at most limit
// each. The versions of a key's values must rise in that order.
func Check(ops []Op, limit time.Duration) Verdict {
	v := Verdict{Checked: len(ops)}
	for key, mine := range byKey(numbered(ops)) {
		versions := newBook(mine)
		v.model = model(&versions)
		result, info := porcupine.CheckOperationsVerbose(v.model, distinctClients(operations(mine)), limit)
		switch result {
		case porcupine.Illegal:
			v.Key, v.info = key, info
			return v
		case porcupine.Unknown:
			v.Undecided = true
		}
	}
	return v
}

func numbered(ops []Op) []Op {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].id = i
	}
	return ops
}

// byKey splits a history into those of its keys.
func byKey(ops []Op) map[string][]Op {
	split := make(map[string][]Op)
	for _, op := range ops {
		split[op.Key] = append(split[op.Key], op)
	}
	return split
}

// operations are what porcupine is to explain: all but reads that failed.
func operations(ops []Op) []porcupine.Operation {
	out := make([]porcupine.Operation, 0, len(ops))
	for _, op := range ops {
		o := porcupine.Operation{ClientId: op.Client, Input: op, Output: op, Call: op.Call, Return: op.Return}
		if op.Unknown {
			if op.Kind == Get {
				continue
			}
			o.Return = math.MaxInt64
		}
		out = append(out, o)
	}
	return out
}

// distinctClients gives operations that never returned clients of their own,
// since a client has one operation at a time.
func distinctClients(history []porcupine.Operation) []porcupine.Operation {
	next := 1 << 20
	for i := range history {
		if history[i].Return == math.MaxInt64 {
			history[i].ClientId = next
			next++
		}
	}
	return history
}

func describe(op Op) string {
	name := kindNames[op.Kind]
	cond := ""
	if op.IfAbsent {
		cond = " if absent"
	}
	if op.IfVersion != "" {
		cond = " if " + op.IfVersion
	}
	out := fmt.Sprintf("seen %q found %v version %s", op.Seen, op.Found, op.Version)
	if op.Unknown {
		out = "unknown"
	}
	if op.Mismatch {
		out = "mismatch, now " + op.Version
	}
	return fmt.Sprintf("%s %q%s -> %s", name, op.Value, cond, out)
}
