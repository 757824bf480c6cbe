package faulty

import (
	"context"
	"slices"
	"time"

	"github.com/latticekv/lattice/core/clock"
)

// heldWrite is a write on its way.
type heldWrite struct {
	ctx     context.Context
	perform func(context.Context) error
	call    *Call
}

// hold keeps a write until it is released, or until delay has passed.
func (in *Instance) hold(ctx context.Context, c *Call, perform func(context.Context) error, delay time.Duration) {
	w := &heldWrite{ctx: ctx, perform: perform, call: c}
	in.mu.Lock()
	in.held = append(in.held, w)
	in.mu.Unlock()
	if delay <= 0 {
		return
	}
	in.late.Go(func() {
		// The context cannot end, so the sleep cannot fail.
		_ = in.clock.Sleep(ctx, clock.Jitter(in.clock, 2*delay))
		in.land(w)
	})
}

// land performs a held write unless somebody else did.
func (in *Instance) land(w *heldWrite) {
	in.mu.Lock()
	i := slices.Index(in.held, w)
	if i >= 0 {
		in.held = slices.Delete(in.held, i, i+1)
	}
	in.mu.Unlock()
	if i < 0 {
		return
	}
	if err := w.perform(w.ctx); err == nil {
		in.mu.Lock()
		in.landed++
		in.mu.Unlock()
	}
}

// Held returns the number of writes on their way.
func (in *Instance) Held() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.held)
}

// Landed returns the number of held writes that were applied; one whose
// condition no longer held when it arrived does not count.
func (in *Instance) Landed() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.landed
}

// Release performs all held writes now, in the order in which they were made,
// and returns after the last.
func (in *Instance) Release() {
	in.mu.Lock()
	writes := slices.Clone(in.held)
	in.mu.Unlock()
	for _, w := range writes {
		in.land(w)
	}
}

// Wait waits for the writes that land by themselves after a delay.
func (in *Instance) Wait() { in.late.Wait() }
