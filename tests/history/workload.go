package history

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

var seeds = flag.Int("seeds", fromEnvironment(20), "random schedules of each kind; LATTICE_SEEDS sets the default")

// Seeds returns how many random schedules a test of histories tries of each
// kind: the flag -seeds of the test binary, by default LATTICE_SEEDS or 20.
func Seeds() int { return *seeds }

func fromEnvironment(otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("LATTICE_SEEDS")); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// Store is what a client of a Workload talks to. Its methods fill in the
// outcome of what they are given, and never fail: an operation whose outcome is
// open is Unknown, one that was certainly not carried out is Void.
type Store interface {
	// Do carries out one operation.
	Do(ctx context.Context, op *Op)
	// Batch carries out operations on keys of their own.
	Batch(ctx context.Context, ops []Op)
	// Look fills in Seen of a survey that is a look, or reports that it failed.
	Look(ctx context.Context, s *Survey) bool
	// Count fills in Total of a survey of all keys, or reports that it failed.
	Count(ctx context.Context, s *Survey) bool
}

// Workload draws what clients do and records what came of it. It is safe for
// concurrent use.
type Workload struct {
	Recorder
	// Now reads the one clock of the history.
	Now func() int64
	// Wide says which keys an atomic batch may have together: some choice of two
	// must do. Nil allows all.
	Wide func(keys []string) bool

	mu     sync.Mutex
	rnd    *rand.Rand
	seen   map[string]string
	serial int
	failed int
	kinds  map[string]int
	// contradictions are batches that were told two outcomes.
	contradictions []string
}

// NewWorkload returns a Workload that draws from a seed.
func NewWorkload(seed uint64, now func() int64) *Workload {
	return &Workload{
		Now: now, rnd: rand.New(rand.NewPCG(seed, 1)),
		seen: make(map[string]string), kinds: make(map[string]int),
	}
}

// Draw returns a random number below a bound.
func (w *Workload) Draw(bound int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(bound)
}

// Step lets a client do one random thing with some of the keys.
func (w *Workload) Step(ctx context.Context, client int, s Store, keys []string) {
	switch kind := w.Draw(100); {
	case kind < 6:
		w.batch(ctx, client, s, keys)
	case kind < 11:
		w.survey(client, Survey{Keys: w.some(keys, 3)}, "look", func(v *Survey) bool { return s.Look(ctx, v) })
	case kind < 15:
		w.survey(client, Survey{Keys: keys}, "count", func(v *Survey) bool { return s.Count(ctx, v) })
	default:
		op := w.operation(client, keys[w.Draw(len(keys))])
		op.Call = w.Now()
		s.Do(ctx, &op)
		w.finish(op)
	}
}

// Read lets a client read all keys one by one, and count them.
func (w *Workload) Read(ctx context.Context, client int, s Store, keys []string) {
	for _, key := range keys {
		op := Op{Client: client, Kind: Get, Key: key, Call: w.Now()}
		s.Do(ctx, &op)
		w.finish(op)
	}
	w.survey(client, Survey{Keys: keys}, "count", func(v *Survey) bool { return s.Count(ctx, v) })
}

// operation draws an operation on a key.
func (w *Workload) operation(client int, key string) Op {
	w.mu.Lock()
	defer w.mu.Unlock()
	op := Op{Client: client, Kind: Get, Key: key}
	switch kind := w.rnd.IntN(100); {
	case kind < 35:
		return op
	case kind < 58:
		op.Kind = Put
	case kind < 68:
		op.Kind, op.IfVersion = Put, w.seen[key]
	case kind < 77:
		op.Kind, op.IfAbsent = Put, true
	case kind < 86:
		op.Kind = Delete
	case kind < 91:
		op.Kind, op.IfVersion = Delete, w.seen[key]
	default:
		op.Kind = GetOrSet
	}
	if op.Kind != Delete {
		w.serial++
		op.Value = fmt.Sprintf("v%d", w.serial)
	}
	return op
}

// some draws up to n different keys.
func (w *Workload) some(keys []string, n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, n)
	for _, i := range w.rnd.Perm(len(keys))[:min(n, len(keys))] {
		out = append(out, keys[i])
	}
	return out
}

// batch sets and deletes several keys in one call.
func (w *Workload) batch(ctx context.Context, client int, s Store, keys []string) {
	var ops []Op
	for _, key := range w.some(keys, 3) {
		op := w.operation(client, key)
		for op.Kind != Put && op.Kind != Delete {
			op = w.operation(client, key)
		}
		op.FoundUnset = op.Kind == Put
		ops = append(ops, op)
	}
	call := w.Now()
	for i := range ops {
		ops[i].Call = call
	}
	s.Batch(ctx, ops)
	w.finish(ops...)
	w.tally("batch", true)
}

func (w *Workload) survey(client int, v Survey, name string, do func(*Survey) bool) {
	v.Client, v.Call = client, w.Now()
	ok := do(&v)
	v.Return = w.Now()
	w.tally(name, ok)
	if ok {
		w.AddSurvey(v)
	}
}

// finish records operations that have come to an end.
func (w *Workload) finish(ops ...Op) {
	end := w.Now()
	for i := range ops {
		op := &ops[i]
		op.Return = end
		w.tally(kindNames[op.Kind], !op.Unknown && !op.Void)
		if op.Version != "" {
			w.mu.Lock()
			w.seen[op.Key] = op.Version
			w.mu.Unlock()
		}
	}
	w.Add(ops...)
}

func (w *Workload) tally(name string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ok {
		w.kinds[name]++
	} else {
		w.failed++
	}
}

// Idle returns the kinds of operation of which not one came to a known outcome:
// none, or the history shows little.
func (w *Workload) Idle() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var idle []string
	for _, name := range append(kindNames[1:len(kindNames):len(kindNames)], "batch", "look", "count") {
		if w.kinds[name] == 0 {
			idle = append(idle, name)
		}
	}
	return idle
}

// Outcomes returns how many operations came to a known outcome, and how many
// failed or are open.
func (w *Workload) Outcomes() (known, failed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.kinds {
		known += n
	}
	return known, w.failed
}
