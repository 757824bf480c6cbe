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
}

// Recorder gathers operations of many clients.
type Recorder struct {
	mu      sync.Mutex
	ops     []Op
	surveys []Survey
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
// each.
func Check(ops []Op, limit time.Duration) Verdict {
	versions := versionsOf(ops)
	byKey := make(map[string][]porcupine.Operation)
	for _, o := range operations(ops) {
		key := o.Input.(Op).Key
		byKey[key] = append(byKey[key], o)
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

// book says which version a value has, as far as somebody has told.
type book struct {
	byValue map[string]string
	known   map[string]bool
}

// versionsOf learns the version of every value from those who saw it. A value
// nobody saw may have any version that no other value has.
func versionsOf(ops []Op) book {
	b := book{byValue: make(map[string]string), known: make(map[string]bool)}
	learn := func(value, version string) { b.byValue[value], b.known[version] = version, true }
	for i := range ops {
		switch op := &ops[i]; {
		case op.Version == "" || op.Unknown:
		case op.Seen != "":
			learn(op.Seen, op.Version)
		case op.Value != "" && !op.Mismatch:
			learn(op.Value, op.Version)
		}
	}
	return b
}

// must reports whether the value certainly has the version, may whether it can.
func (b *book) must(value, version string) bool { return value != "" && b.byValue[value] == version }

func (b *book) may(value, version string) bool {
	return b.must(value, version) || value != "" && b.byValue[value] == "" && !b.known[version]
}

// model is a register whose state is the value, "" if the key is absent.
func model(versions book) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			op := input.(Op)
			return step(state.(string), &op, &versions)
		},
		DescribeOperation: func(input, _ any) string { return describe(input.(Op)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%q", state) },
	}
}

// step says whether an operation with its outcome fits the state, and what it
// leaves behind.
func step(state string, op *Op, versions *book) (bool, any) {
	found := state != ""
	may := !(op.IfAbsent && found) && (op.IfVersion == "" || versions.may(state, op.IfVersion))
	switch {
	case op.Unknown:
		if !may || op.Kind == GetOrSet && found {
			return true, state
		}
		return true, op.Value
	case op.Kind == Get:
		fits := op.Seen == state && (!found || op.VersionUnset || versions.may(state, op.Version))
		return fits, state
	case op.Mismatch:
		return op.refused(state, versions), state
	case !may:
		return false, state
	case op.Kind == GetOrSet && op.Seen != "":
		return op.Seen == state, state
	case op.Kind == GetOrSet:
		return !found, op.Value
	default:
		return op.FoundUnset || op.Found == found, op.Value // a delete has no value
	}
}

// refused reports whether the condition fails on the state, and what the caller
// was told of the state is right.
func (op *Op) refused(state string, versions *book) bool {
	must := !(op.IfAbsent && state != "") && (op.IfVersion == "" || versions.must(state, op.IfVersion))
	if must || op.VersionUnset {
		return !must
	}
	if op.Version == "" {
		return state == "" || op.IfAbsent
	}
	return versions.may(state, op.Version)
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
