package azhttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/store"
)

// orphaned returns a land whose place is missing while its data is there.
func orphaned() *land {
	l := newLand()
	l.Unused = func(context.Context) error { return store.Corruptf("container box holds data") }
	return l
}

// TestPlaceThatIsMissingBesideItsDataIsNotMade: a process that never saw it cannot
// know, and asks.
func TestPlaceThatIsMissingBesideItsDataIsNotMade(t *testing.T) {
	l := orphaned()
	_, errRead := l.Read(t.Context(), l.call)
	errOpen := l.Open(t.Context(), func(context.Context) error { return l.call() })
	for _, err := range []error{errRead, l.Write(t.Context(), l.call), errOpen} {
		if !errors.Is(err, store.ErrCorrupt) || store.Transient(err) || !strings.Contains(err.Error(), "table tab is gone") || !strings.Contains(err.Error(), "container box holds data") {
			t.Errorf("got %v", err)
		}
	}
	if n := l.creates.Load(); n != 0 {
		t.Errorf("%d creations", n)
	}
}

// TestPlaceThatAnotherMakesAndFillsMeanwhileServes: between the answer that it is
// missing and the look at its data.
func TestPlaceThatAnotherMakesAndFillsMeanwhileServes(t *testing.T) {
	for name, act := range map[string]func(*land) error{
		"read": func(l *land) error {
			found, err := l.Read(t.Context(), l.call)
			if err == nil && !found {
				return errors.New("not found")
			}
			return err
		},
		"write": func(l *land) error { return l.Write(t.Context(), l.call) },
		"open":  func(l *land) error { return l.Open(t.Context(), func(context.Context) error { return l.call() }) },
	} {
		t.Run(name, func(t *testing.T) {
			l := orphaned()
			holds := l.Unused
			l.Unused = func(ctx context.Context) error {
				l.there.Store(true)
				return holds(ctx)
			}
			if err := act(l); err != nil || l.creates.Load() != 0 {
				t.Errorf("%v after %d creations", err, l.creates.Load())
			}
		})
	}
}

// TestOpeningFindsWhatAnotherFilledMeanwhile: between its own look and the one
// before the creation.
func TestOpeningFindsWhatAnotherFilledMeanwhile(t *testing.T) {
	l := orphaned()
	holds, looks := l.Unused, 0
	l.Unused = func(ctx context.Context) error {
		if looks++; looks == 1 {
			return nil
		}
		l.there.Store(true)
		return holds(ctx)
	}
	if err := l.Open(t.Context(), func(context.Context) error { return l.call() }); err != nil || looks != 2 || l.creates.Load() != 0 {
		t.Errorf("%v after %d looks and %d creations", err, looks, l.creates.Load())
	}
}

func TestWhatMustBeThereFirstIsMadeFirst(t *testing.T) {
	l := newLand()
	var order []string
	l.Unused = func(context.Context) error { order = append(order, "look"); return nil }
	broken := fmt.Errorf("no container: %w", store.ErrUnavailable)
	l.Prepare = func(context.Context) error { order = append(order, "before"); return broken }
	if err := l.Write(t.Context(), l.call); !errors.Is(err, broken) || l.creates.Load() != 0 {
		t.Errorf("%v after %d creations", err, l.creates.Load())
	}
	broken = nil
	if err := l.Write(t.Context(), l.call); err != nil || l.creates.Load() != 1 {
		t.Errorf("%v after %d creations", err, l.creates.Load())
	}
	if want := []string{"look", "before", "look", "before"}; !slices.Equal(order, want) {
		t.Errorf("got %v", order)
	}
}

func TestLookThatIsNotPermittedMakesNothing(t *testing.T) {
	l := newLand()
	l.Unused = func(context.Context) error {
		return Fail(&StatusError{Status: 403, Code: "AuthorizationPermissionMismatch"}, false)
	}
	_, errRead := l.Read(t.Context(), l.call)
	for _, err := range []error{errRead, l.Write(t.Context(), l.call)} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be found out") {
			t.Errorf("got %v", err)
		}
	}
	if n := l.creates.Load(); n != 0 {
		t.Errorf("%d creations", n)
	}
}

// TestRefusalsOfWhatIsInsideProveThePlace: whatever is said of a row, its table is
// there.
func TestRefusalsOfWhatIsInsideProveThePlace(t *testing.T) {
	for _, proof := range []*StatusError{{Status: 404, Code: "ResourceNotFound"}, {Status: 409, Code: "EntityAlreadyExists"}, {Status: 412, Code: "UpdateConditionNotSatisfied"}} {
		for _, write := range []bool{false, true} {
			l := newLand()
			inside := func() error { return Fail(proof, write) }
			var err error
			if write {
				err = l.Write(t.Context(), inside)
			} else {
				_, err = l.Read(t.Context(), inside)
			}
			if !errors.Is(err, Classify(proof, write)) {
				t.Fatal(err)
			}
			if err := l.Write(t.Context(), l.call); !errors.Is(err, store.ErrCorrupt) || l.creates.Load() != 0 {
				t.Errorf("%s: then %v after %d creations", proof.Code, err, l.creates.Load())
			}
		}
	}
}

// TestPlaceThatWasMadeJustNowMayBeUnknownToAnotherFrontEnd: that is no loss.
func TestPlaceThatWasMadeJustNowMayBeUnknownToAnotherFrontEnd(t *testing.T) {
	l := newLand()
	if err := l.Write(t.Context(), l.call); err != nil {
		t.Fatal(err)
	}
	l.there.Store(false)
	_, errRead := l.Read(t.Context(), l.call)
	for _, err := range []error{errRead, l.Write(t.Context(), l.call)} {
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCorrupt) {
			t.Errorf("just after: %v", err)
		}
	}
	l.made.Add(-int64(2 * settling))
	if err := l.Write(t.Context(), l.call); !errors.Is(err, store.ErrCorrupt) || l.creates.Load() != 1 {
		t.Errorf("later: %v after %d creations", err, l.creates.Load())
	}
}
