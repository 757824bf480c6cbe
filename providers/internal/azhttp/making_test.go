package azhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/store"
)

// land is a service with one place that may be there or not.
type land struct {
	*Place
	there   atomic.Bool
	creates atomic.Int64
	// refuse is the answer to a creation, in place of success.
	refuse *StatusError
	// slow is how long a creation takes.
	slow time.Duration
}

func newLand() *land {
	l := &land{}
	l.Place = &Place{
		What: "table", Name: "tab", Setting: "LATTICE_TABLE_NAME", Role: "Contributor", Command: "make tab",
		Missing:      func(e *StatusError) bool { return e.Code == "TableNotFound" },
		BeingDeleted: "TableBeingDeleted", Exists: "TableAlreadyExists",
		Create: func(ctx context.Context) error {
			l.creates.Add(1)
			select {
			case <-time.After(l.slow):
			case <-ctx.Done():
				return store.CheckContext(ctx)
			}
			if l.refuse != nil {
				return Fail(l.refuse, false)
			}
			l.there.Store(true)
			return nil
		},
	}
	return l
}

// call is an exchange with what stands in the place.
func (l *land) call() error {
	if l.there.Load() {
		return nil
	}
	return Fail(&StatusError{Status: 404, Code: "TableNotFound"}, true)
}

func TestReadsOfAMissingPlaceFindNothingAndMakeNothing(t *testing.T) {
	l := newLand()
	for range 3 {
		if found, err := l.Read(t.Context(), l.call); found || err != nil {
			t.Fatalf("got %v, %v", found, err)
		}
	}
	if n := l.creates.Load(); n != 0 {
		t.Fatalf("%d creations", n)
	}
	l.there.Store(true) // by another process
	if found, err := l.Read(t.Context(), l.call); !found || err != nil {
		t.Fatalf("got %v, %v", found, err)
	}
}

func TestFirstWritesShareOneCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand()
		l.slow = time.Second
		var calls atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				err := l.Write(t.Context(), func() error {
					calls.Add(1)
					return l.call()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if l.creates.Load() != 1 || calls.Load() != 128 {
			t.Fatalf("%d creations, %d writes", l.creates.Load(), calls.Load())
		}
		if err := l.Write(t.Context(), l.call); err != nil || l.creates.Load() != 1 {
			t.Fatalf("then %v after %d creations", err, l.creates.Load())
		}
	})
}

// TestWriterWhoGivesUpTakesNobodyAlong: the others' creation goes on.
func TestWriterWhoGivesUpTakesNobodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand()
		l.slow = 10 * time.Second
		var wg sync.WaitGroup
		for i := range 4 {
			limit := time.Minute
			if i == 0 {
				limit = 5 * time.Second
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				if err := l.Write(ctx, l.call); (err == nil) != (limit == time.Minute) || err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("with %v: %v", limit, err)
				}
			})
			synctest.Wait() // the first one begins
		}
		wg.Wait()
		if n := l.creates.Load(); n != 2 {
			t.Fatalf("%d creations", n)
		}
	})
}

func TestWhoWaitsForACreationStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand()
		l.slow = time.Minute
		go func() { _ = l.Write(t.Context(), l.call) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := l.Write(ctx, l.call); !errors.Is(err, store.ErrUnavailable) || time.Since(begun) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(begun))
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestCreationThatIsOfNoUseIsExplainedAtOnce(t *testing.T) {
	cases := map[string]struct {
		refuse *StatusError
		want   []string
	}{
		"no permission": {&StatusError{Status: 403, Code: "AuthorizationPermissionMismatch"}, []string{"table tab", "may not create it", "make tab", "Contributor", "AuthorizationPermissionMismatch"}},
		"no identity":   {&StatusError{Status: 401, Code: "InvalidAuthenticationInfo"}, []string{"may not create it"}},
		"being deleted": {&StatusError{Status: 409, Code: "TableBeingDeleted"}, []string{"table tab is being deleted", "40 s", "LATTICE_TABLE_NAME"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLand()
				l.refuse = c.refuse
				err := l.Write(t.Context(), l.call)
				if !errors.Is(err, store.ErrUnavailable) || l.creates.Load() != 1 {
					t.Fatalf("%v after %d creations", err, l.creates.Load())
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v does not tell %q", err, want)
					}
				}
			})
		})
	}
}

func TestCreationIsTriedAgainWhereThatMayHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLand()
		l.refuse = &StatusError{Status: 503, Code: "ServerBusy"}
		if err := l.Write(t.Context(), l.call); !errors.Is(err, store.ErrThrottled) || l.creates.Load() != 4 {
			t.Fatalf("%v after %d creations", err, l.creates.Load())
		}
		l.refuse = &StatusError{Status: 409, Code: "TableAlreadyExists"}
		l.there.Store(false)
		err := l.Write(t.Context(), l.call)
		if err == nil || !strings.Contains(err.Error(), "made just now") || !store.Transient(err) {
			t.Fatalf("a place that does not appear: %v", err)
		}
	})
}

// TestPlaceThatVanishesIsNotMadeAnew: an empty store in place of a full one would
// be the worst of answers.
func TestPlaceThatVanishesIsNotMadeAnew(t *testing.T) {
	l := newLand()
	l.there.Store(true)
	if _, err := l.Read(t.Context(), l.call); err != nil {
		t.Fatal(err)
	}
	l.there.Store(false)
	_, errRead := l.Read(t.Context(), l.call)
	errWrite := l.Write(t.Context(), l.call)
	for _, err := range []error{errRead, errWrite} {
		if !errors.Is(err, store.ErrCorrupt) || store.Transient(err) || !strings.Contains(err.Error(), "is gone") {
			t.Errorf("got %v", err)
		}
	}
	if n := l.creates.Load(); n != 0 {
		t.Errorf("%d creations", n)
	}
}

func TestNameThatIsBlockedIsExplained(t *testing.T) {
	l := newLand()
	blocked := func() error { return Fail(&StatusError{Status: http.StatusConflict, Code: "TableBeingDeleted"}, true) }
	_, errRead := l.Read(t.Context(), blocked)
	for _, err := range []error{errRead, l.Write(t.Context(), blocked)} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "40 s") {
			t.Errorf("got %v", err)
		}
	}
}

func TestCreationThatPanicsHoldsNobodyUp(t *testing.T) {
	var f flights
	func() {
		defer func() { _ = recover() }()
		_ = f.do(t.Context(), func(context.Context) error { panic("boom") })
	}()
	if err := f.do(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
