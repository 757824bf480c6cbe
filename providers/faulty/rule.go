package faulty

import (
	"sync"

	"github.com/latticekv/lattice/core/clock"
)

// Rule says which calls a fault befalls.
type Rule struct {
	// Name is for messages of tests.
	Name string
	// When selects calls; nil selects all.
	When Match
	// Skip spares the first matching calls.
	Skip int
	// Times bounds how often the rule fires; 0 is no bound.
	Times int
	// Chance is the probability with which the rule fires on a matching call;
	// 0 is certainty.
	Chance float64
	// Do is what happens.
	Do Fault
}

// Active is a rule in force, and its counters.
type Active struct {
	rule Rule

	mu          sync.Mutex
	seen, fired int
}

// Seen returns how many calls the rule matched.
func (a *Active) Seen() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// Fired returns how many faults the rule injected.
func (a *Active) Fired() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fired
}

// Name returns the name of the rule.
func (a *Active) Name() string { return a.rule.Name }

// fires counts a call and decides.
func (a *Active) fires(c *Call, src clock.Source) bool {
	if a.rule.When != nil && !a.rule.When(c) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen++
	if a.seen <= a.rule.Skip || a.rule.Times > 0 && a.fired >= a.rule.Times {
		return false
	}
	const unit = 1 << 53
	if a.rule.Chance > 0 && float64(src.Uint64()>>11)/unit >= a.rule.Chance {
		return false
	}
	a.fired++
	return true
}
