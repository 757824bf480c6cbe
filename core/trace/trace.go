// Package trace is how core tells what it does on behalf of a request: the
// appends to the logs of shards, and the phases of splits. Whoever wants to know
// gives a Hook; core knows nothing of what it does with it. Without one, nothing
// is called and nothing allocated. Neither keys nor values are told.
package trace

import (
	"context"
	"errors"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// Hook follows operations. Its methods must not block; they are called from many
// goroutines.
type Hook interface {
	// Ref names the operation that is under way in ctx, so that an append can say
	// later whom it serves. Nil if it is not followed.
	Ref(ctx context.Context) Ref
	// Append says that an append begins in the operation of ctx, which leads its
	// group, and whom it serves besides; nil refs are not among them. The storage
	// operations of the append run under the context returned.
	Append(ctx context.Context, a Append, serves []Ref) (context.Context, AppendSpan)
	// Phase says that work on a phase of a split begins, likewise.
	Phase(ctx context.Context, p Phase) (context.Context, PhaseSpan)
}

// Ref names an operation. Only the hook that made it understands it.
type Ref any

// Append is one attempt to append to the log of a shard, with the repetitions
// that storage faults demand.
type Append struct {
	// Tree is the name of the tree, empty if it is not known. Partition is the
	// shard's.
	Tree, Partition string
	// Requests is how many requests the append serves: the size of its group.
	Requests int
	// Records and Bytes are what it adds to the log; the bytes are those of the
	// transaction, its head included.
	Records, Bytes int
}

// Appended is how an append ended.
type Appended struct {
	Outcome Outcome
	// Took is the time from before it was sent.
	Took time.Duration
	// Err is the fault of the storage, nil for one that landed or lost a race.
	Err error
}

// AppendSpan hears how an append ended.
type AppendSpan interface{ End(Appended) }

// Outcome is what became of an append.
type Outcome uint8

// The outcomes.
const (
	// Landed: it is in the log.
	Landed Outcome = iota + 1
	// LostRace: another instance was faster, and it never will be; its requests
	// are judged again.
	LostRace
	// Unknown: nobody can tell whether it is.
	Unknown
	// Failed: it is not, and the storage said why.
	Failed
)

var outcomeNames = [...]string{Landed: "landed", LostRace: "lost_race", Unknown: "unknown", Failed: "failed"}

// Outcomes returns the name of every outcome.
func Outcomes() []string { return outcomeNames[Landed:] }

// String returns the name.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return ""
}

// FailedWith returns the outcome that an error means.
func FailedWith(err error) Outcome {
	if errors.Is(err, store.ErrOutcomeUnknown) {
		return Unknown
	}
	return Failed
}

// Phase is work on one phase of a split, by one coordinator.
type Phase struct {
	// Tree is the name of the tree, ID that of the split.
	Tree, ID string
	// Source is the shard that is divided.
	Source uint32
	// Name is that of the phase.
	Name string
}

// PhaseEnd is where the work on a phase ended.
type PhaseEnd struct {
	// Target is the shard that takes slots over, negative while there is none.
	Target int64
	// Over says that the phase is, and not only this work on it.
	Over bool
	// Err is why the work broke off; nil if it did not.
	Err error
}

// PhaseSpan hears where the work on a phase ended.
type PhaseSpan interface{ End(PhaseEnd) }
