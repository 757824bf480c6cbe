package split

import (
	"encoding/json"
	"fmt"
)

// Phase is how far a split has come. The names are stored.
type Phase uint8

// The phases, in their order. Every one may be entered again after a crash.
const (
	// PhaseBeginShadowWrite: the intent is recorded; target and mirror open.
	PhaseBeginShadowWrite Phase = iota + 1
	// PhaseDrain: what the source had before is carried over.
	PhaseDrain
	// PhaseSwap: the source refuses the slots, the rest is carried over, and the
	// map gives them to the target.
	PhaseSwap
	// PhaseReject: the refusal is asserted once more.
	PhaseReject
	// PhaseComplete: stragglers are carried over, and both heads close.
	PhaseComplete
	// PhaseDone: nothing is left to do; the split is history.
	PhaseDone
)

var phaseNames = map[Phase]string{
	PhaseBeginShadowWrite: "BeginShadowWrite",
	PhaseDrain:            "Drain",
	PhaseSwap:             "Swap",
	PhaseReject:           "Reject",
	PhaseComplete:         "Complete",
	PhaseDone:             "Done",
}

// String returns the stored name.
func (p Phase) String() string {
	if name, ok := phaseNames[p]; ok {
		return name
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// MarshalJSON writes the name; an unknown phase is an error.
func (p Phase) MarshalJSON() ([]byte, error) {
	name, ok := phaseNames[p]
	if !ok {
		return nil, fmt.Errorf("unknown phase %d", uint8(p))
	}
	return json.Marshal(name)
}

// UnmarshalJSON reads a name; an unknown one is an error.
func (p *Phase) UnmarshalJSON(b []byte) error {
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return err
	}
	for phase, n := range phaseNames {
		if n == name {
			*p = phase
			return nil
		}
	}
	return fmt.Errorf("unknown phase %q", name)
}
