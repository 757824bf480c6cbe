// Package history records what concurrent clients did and saw, and checks with
// porcupine that one order of the operations explains it: that each key is a
// linearizable register with conditional writes.
//
// An operation whose outcome its client does not know may have taken effect at
// any time from its call on, or never.
package history

import (
	"fmt"
	"math"
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
}

// Recorder gathers operations of many clients.
type Recorder struct {
	mu  sync.Mutex
	ops []Op
}

// Add records a finished operation.
func (r *Recorder) Add(op Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
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
// each.
func Check(ops []Op, limit time.Duration) Verdict {
	versions := versionsOf(ops)
	byKey := make(map[string][]porcupine.Operation)
	for _, op := range ops {
		o := porcupine.Operation{ClientId: op.Client, Input: op, Output: op, Call: op.Call, Return: op.Return}
		if op.Unknown {
			if op.Kind == Get {
				continue
			}
			o.Return = math.MaxInt64
		}
		byKey[op.Key] = append(byKey[op.Key], o)
	}
	v := Verdict{Checked: len(ops), model: model(versions)}
	for key, history := range byKey {
		result, info := porcupine.CheckOperationsVerbose(v.model, distinctClients(history), limit)
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

// versionsOf learns the version of every value from those who saw it. A value
// nobody saw has a version nobody can name.
func versionsOf(ops []Op) map[string]string {
	versions := make(map[string]string)
	for _, op := range ops {
		switch {
		case op.Version == "" || op.Unknown:
		case op.Seen != "":
			versions[op.Seen] = op.Version
		case op.Value != "" && !op.Mismatch:
			versions[op.Value] = op.Version
		}
	}
	return versions
}

// model is a register whose state is the value, "" if the key is absent.
func model(versions map[string]string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			op := input.(Op)
			return step(state.(string), &op, versions)
		},
		DescribeOperation: func(input, _ any) string { return describe(input.(Op)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%q", state) },
	}
}

func step(state string, op *Op, versions map[string]string) (bool, any) {
	found := state != ""
	holds := !(op.IfAbsent && found)
	if op.IfVersion != "" {
		holds = found && versions[state] == op.IfVersion
	}
	if op.Unknown {
		if !holds || op.Kind == GetOrSet && found {
			return true, state
		}
		return true, op.Value
	}
	foundFits := op.FoundUnset || op.Found == found
	switch {
	case op.Kind == Get:
		return op.Seen == state && (!found || versions[state] == op.Version), state
	case op.Mismatch:
		// The version of a value whose writer never heard of it, and nobody
		// read, is not known here.
		return !holds && (op.Version == "" || versions[state] == "" || versions[state] == op.Version), state
	case !holds:
		return false, state
	case op.Kind == GetOrSet && op.Seen != "":
		return op.Seen == state, state
	case op.Kind == GetOrSet:
		return !found, op.Value
	default:
		return foundFits, op.Value // a delete has no value
	}
}

func describe(op Op) string {
	name := [...]string{Get: "get", Put: "put", Delete: "delete", GetOrSet: "get-or-set"}[op.Kind]
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
