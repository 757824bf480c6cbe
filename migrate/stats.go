package migrate

import (
	"sync/atomic"

	"github.com/latticekv/lattice/migrate/source"
)

// Stats count while a migration runs.
type Stats struct {
	// Read, Rejected and Loaded count records, those of earlier runs included;
	// Bytes are those of keys and values that were read.
	Read, Rejected, Loaded, Bytes atomic.Int64
	// Done and Total are the work of the present phase, in records; a Total of 0
	// is unknown.
	Done, Total atomic.Int64
	// Waiting is not zero while the service is waited for.
	Waiting atomic.Int64
	trouble atomic.Pointer[error]
}

// Trouble is why the service is waited for, nil if it is not.
func (s *Stats) Trouble() error {
	if p := s.trouble.Load(); p != nil && s.Waiting.Load() > 0 {
		return *p
	}
	return nil
}

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	// EventPhase: a phase begins; the text is its name.
	EventPhase EventKind = "phase"
	// EventNote: something that a person should know.
	EventNote EventKind = "note"
	// EventReject: the first record that is rejected for a reason of its kind.
	EventReject EventKind = "reject"
	// EventWait: the service is waited for.
	EventWait EventKind = "wait"
)

// Event is something to tell.
type Event struct {
	Kind EventKind
	Text string
	// Fault is the rejected record.
	Fault *source.Fault
}
