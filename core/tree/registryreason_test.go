package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// TestReasonForWhichATreeIsNotMadeOutlivesTheDeadline: the storage says why it
// refuses a write, and the time of the request runs out on a read that was to
// find out what became of it.
func TestReasonForWhichATreeIsNotMadeOutlivesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{Clock: clock.NewSystem()})
		f := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: clock.NewSystem()})
		refused := false
		f.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Do: faulty.Do(func(context.Context, *faulty.Call) error {
			refused = true
			return fmt.Errorf("%w: nobody may create this", store.ErrUnavailable)
		})})
		f.Add(faulty.Rule{When: func(*faulty.Call) bool { return refused }, Do: faulty.Delay(time.Hour, 0)})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		in := open(t, f.Table(), f.Blobs())
		_, err := in.OpenOrCreate(ctx, "t")
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "nobody may create this") {
			t.Fatalf("got %v", err)
		}
	})
}
