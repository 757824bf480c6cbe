package faulty

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/latticekv/lattice/core/store"
)

// Kind is the method of a Call.
type Kind uint8

// The methods of the two interfaces.
const (
	Get Kind = iota + 1
	Range
	Apply
	BlobPut
	BlobGet
	BlobGetRange
	BlobList
	BlobDelete
)

var kindNames = [...]string{"", "get", "range", "apply", "blob put", "blob get", "blob range", "blob list", "blob delete"}

// String returns a name for messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Writes reports whether calls of the kind change the store.
func (k Kind) Writes() bool { return k == Apply || k == BlobPut || k == BlobDelete }

// Call describes one call on an instance. Predicates, hooks and faults read it
// and must not change it.
type Call struct {
	// N is the place of the call among all calls of the instance, from 1.
	N uint64
	// Kind is the method.
	Kind Kind
	// Partition is that of a table call, empty for a blob call.
	Partition string
	// Key is the row key of a Get, the start of a Range, the blob name, or the
	// prefix of a BlobList. It is empty for an Apply, which has Ops.
	Key string
	// Ops are those of an Apply.
	Ops []store.Op
	// Data is that of a BlobPut.
	Data []byte

	// detached says that what the caller lent was copied.
	detached bool
}

// Keys returns the row keys or the blob name that the call names.
func (c *Call) Keys() []string {
	if c.Kind != Apply {
		return []string{c.Key}
	}
	keys := make([]string, len(c.Ops))
	for i, op := range c.Ops {
		keys[i] = op.Key
	}
	return keys
}

// String describes the call without its data.
func (c *Call) String() string {
	what := strings.Join(c.Keys(), ",")
	if c.Partition != "" {
		what = c.Partition + " " + what
	}
	return fmt.Sprintf("call %d (%s %s)", c.N, c.Kind, what)
}

// detach copies what the caller lent, for a call that outlives its caller.
func (c *Call) detach() {
	if c.detached {
		return // it was duplicated, and the first of the two may be landing
	}
	c.detached = true
	c.Data = bytes.Clone(c.Data)
	c.Ops = slices.Clone(c.Ops)
	for i := range c.Ops {
		c.Ops[i].Data = bytes.Clone(c.Ops[i].Data)
	}
}

// Match is a predicate over calls. It must be a pure function: how often a
// rule skips and fires is counted by the Rule.
type Match func(c *Call) bool

// Any matches every call.
func Any(*Call) bool { return true }

// Writes matches calls that change the store.
func Writes(c *Call) bool { return c.Kind.Writes() }

// Reads matches calls that do not.
func Reads(c *Call) bool { return !c.Kind.Writes() }

// Kinds matches calls of one of the kinds.
func Kinds(kinds ...Kind) Match {
	return func(c *Call) bool { return slices.Contains(kinds, c.Kind) }
}

// InPartition matches table calls on a partition whose name begins with prefix.
func InPartition(prefix string) Match {
	return func(c *Call) bool { return c.Partition != "" && strings.HasPrefix(c.Partition, prefix) }
}

// OnKey matches calls that name a row key or a blob that begins with prefix.
func OnKey(prefix string) Match {
	return func(c *Call) bool {
		return slices.ContainsFunc(c.Keys(), func(key string) bool { return strings.HasPrefix(key, prefix) })
	}
}

// Nth matches the call with the number n of the instance, from 1.
func Nth(n uint64) Match { return func(c *Call) bool { return c.N == n } }

// All matches calls that every one of the predicates matches.
func All(matches ...Match) Match {
	return func(c *Call) bool {
		return !slices.ContainsFunc(matches, func(m Match) bool { return !m(c) })
	}
}

// Either matches calls that at least one of the predicates matches.
func Either(matches ...Match) Match {
	return func(c *Call) bool {
		return slices.ContainsFunc(matches, func(m Match) bool { return m(c) })
	}
}

// Not matches calls that the predicate does not.
func Not(match Match) Match { return func(c *Call) bool { return !match(c) } }
