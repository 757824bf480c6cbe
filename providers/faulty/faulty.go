// Package faulty wraps any table and blob store and lets calls on them go
// wrong on purpose: before their effect, after it, late, twice, or for good.
//
// One Instance stands for the storage as one process sees it. Several
// instances over one store are several processes, each with faults of its own:
//
//	inner := memory.New(memory.Options{})
//	a := faulty.New(inner.Table(), inner.Blobs(), faulty.Options{})
//	b := faulty.New(inner.Table(), inner.Blobs(), faulty.Options{})
//	lost := a.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Skip: 2, Times: 1, Do: faulty.Lose()})
//	… // the third Apply of a is applied, but reports ErrOutcomeUnknown
//	if lost.Fired() != 1 { … }
//
// To exhaust the crash points of an operation, run it once to learn from
// Instance.Calls how many calls it makes, then once for each call and Point on
// a fresh store with Instance.KillAt, and recover with another instance.
package faulty

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

var (
	// ErrInjected marks every error that a fault made, besides the category of
	// package store.
	ErrInjected = errors.New("injected fault")
	// ErrKilled marks every error of an instance that was killed.
	ErrKilled = errors.New("instance is killed")
)

// Point is a side of the effect of a call.
type Point uint8

// The two sides.
const (
	BeforeEffect Point = iota + 1
	AfterEffect
)

// String returns a name for messages and subtests.
func (p Point) String() string {
	if p == AfterEffect {
		return "after"
	}
	return "before"
}

// Points are both, for loops.
var Points = []Point{BeforeEffect, AfterEffect}

// Options configure an Instance. The zero value has no hooks.
type Options struct {
	// Clock is the source of delays and chance; nil is the machine's own. A
	// seeded one makes runs repeatable.
	Clock clock.Source
	// Before is called ahead of every call, before the rules; an error makes
	// the call fail without effect. It may block.
	Before func(ctx context.Context, c *Call) error
	// After is called with the outcome of every call that was not stopped by
	// Before or a kill, ahead of its reply.
	After func(c *Call, err error)
}

// Instance is the storage as one process sees it. It is safe for concurrent
// use.
type Instance struct {
	table store.Table
	blobs store.BlobStore
	clock clock.Source
	o     Options

	mu     sync.Mutex
	rules  []*Active
	calls  uint64
	killAt uint64
	point  Point
	dead   chan struct{}
	killed bool
	held   []*heldWrite
	landed int
	late   sync.WaitGroup
}

// New wraps a table and a blob store. Either may be nil if it is not used.
func New(table store.Table, blobs store.BlobStore, o Options) *Instance {
	if o.Clock == nil {
		o.Clock = clock.NewSystem()
	}
	return &Instance{table: table, blobs: blobs, clock: o.Clock, o: o, dead: make(chan struct{})}
}

// Add puts rules in force and returns the last of them (the only one, in most
// tests). If several fire on one call, the earlier is around the later.
func (in *Instance) Add(rules ...Rule) *Active {
	in.mu.Lock()
	defer in.mu.Unlock()
	var last *Active
	for _, r := range rules {
		last = &Active{rule: r}
		in.rules = append(slices.Clip(in.rules), last)
	}
	return last
}

// Rules returns the rules in force.
func (in *Instance) Rules() []*Active {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.rules)
}

// Clear takes all rules out of force. What was held stays held.
func (in *Instance) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.rules = nil
}

// Calls returns the number of calls so far.
func (in *Instance) Calls() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.calls
}

// Kill makes every later call fail, without effect: with store.ErrUnavailable
// and ErrKilled. Calls that are on their way end as they may.
func (in *Instance) Kill() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.kill()
}

func (in *Instance) kill() {
	if !in.killed {
		in.killed = true
		close(in.dead)
	}
}

// KillAt kills the instance at call n (see Call.N): before it has any effect,
// or after it. The call itself reports what a process cannot hear any more:
// store.ErrOutcomeUnknown for a write, store.ErrUnavailable for a read.
func (in *Instance) KillAt(n uint64, point Point) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.killAt, in.point = n, point
}

// Killed reports whether the instance was killed: that a crash point was
// reached.
func (in *Instance) Killed() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.killed
}

// Context returns a context that ends with cause ErrKilled when the instance
// is killed, so that the dead process stops waiting and retrying too.
func (in *Instance) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-in.dead:
			cancel(ErrKilled)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// call performs one call under the rules. perform does it on the store and
// keeps the result.
func (in *Instance) call(ctx context.Context, c *Call, perform func(context.Context) error) error {
	crash, rules, err := in.admit(c)
	if err != nil {
		return err
	}
	if in.o.Before != nil {
		if err := in.o.Before(ctx, c); err != nil {
			return injected("before", c, err)
		}
	}
	next := perform
	for _, a := range slices.Backward(rules) {
		if a.fires(c, in.clock) {
			inner, do := next, a.rule.Do
			next = func(ctx context.Context) error { return do(ctx, in, c, inner) }
		}
	}
	if crash != 0 {
		inner := next
		next = func(ctx context.Context) error { return Crash(crash)(ctx, in, c, inner) }
	}
	err = next(ctx)
	if in.o.After != nil {
		in.o.After(c, err)
	}
	return err
}

// admit numbers a call, and refuses it if the instance is dead. It returns the
// point at which the call is to kill the instance, if it is the one.
func (in *Instance) admit(c *Call) (Point, []*Active, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calls++
	c.N = in.calls
	if in.killed {
		return 0, nil, injected("before", c, fmt.Errorf("%w: %w", store.ErrUnavailable, ErrKilled))
	}
	if in.killAt == c.N {
		return in.point, in.rules, nil
	}
	return 0, in.rules, nil
}
