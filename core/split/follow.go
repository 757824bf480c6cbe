package split

import (
	"context"

	"github.com/latticekv/lattice/core/trace"
)

// phase works on the present phase until it is over or the budget is spent, and
// tells those who follow.
func (w *worker) phase(ctx context.Context) (spent bool, err error) {
	was := w.s.Phase
	if h := w.c.Trace; h != nil {
		var span trace.PhaseSpan
		ctx, span = h.Phase(ctx, trace.Phase{Tree: w.tree.Name(), ID: w.s.ID, Source: uint32(w.s.Source), Name: was.String()})
		if span != nil {
			defer func() {
				end := trace.PhaseEnd{Target: -1, Over: w.s.Phase != was, Err: err}
				if w.s.HasTarget {
					end.Target = int64(w.s.Target)
				}
				span.End(end)
			}()
		}
	}
	for w.s.Phase == was && !spent {
		if err := w.step(ctx); err != nil {
			return false, err
		}
		spent = w.c.Clock.Now().Mono >= w.deadline
	}
	return spent, nil
}
