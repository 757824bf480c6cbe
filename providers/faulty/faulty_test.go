package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// world is a store and one instance over it.
func world(o faulty.Options) (*memory.Store, *faulty.Instance) {
	inner := memory.New(memory.Options{})
	return inner, faulty.New(inner.Table(), inner.Blobs(), o)
}

func TestConformanceWithoutFaults(t *testing.T) {
	_, in := world(faulty.Options{})
	storetest.RunTable(t, func(*testing.T) store.Table { return in.Table() })
	storetest.RunBlobs(t, func(*testing.T) store.BlobStore { return in.Blobs() })
}

// insert applies one insert through an instance.
func insert(t *testing.T, table store.Table, key string) error {
	t.Helper()
	_, err := table.Apply(t.Context(), "p", []store.Op{store.Insert(key, []byte(key))})
	return err
}

// exists reports whether the row is in the store beneath.
func exists(t *testing.T, s *memory.Store, key string) bool {
	t.Helper()
	_, err := s.Table().Get(t.Context(), "p", key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestFaultOnWrite(t *testing.T) {
	throttled := &store.ThrottledError{RetryAfter: 3 * time.Second, Err: errors.New("busy")}
	for _, c := range []struct {
		name    string
		fault   faulty.Fault
		want    error
		applied bool
	}{
		{"unavailable before effect", faulty.Fail(store.ErrUnavailable), store.ErrUnavailable, false},
		{"throttled before effect", faulty.Fail(throttled), store.ErrThrottled, false},
		{"reply lost", faulty.Lose(), store.ErrOutcomeUnknown, true},
		{"request lost", faulty.Drop(), store.ErrOutcomeUnknown, false},
		{"reply of the second try", faulty.Duplicate(), store.ErrExists, true},
		{"held back", faulty.Hold(0), store.ErrOutcomeUnknown, false},
		{"crash before effect", faulty.Crash(faulty.BeforeEffect), store.ErrOutcomeUnknown, false},
		{"crash after effect", faulty.Crash(faulty.AfterEffect), store.ErrOutcomeUnknown, true},
		{"delay", faulty.Delay(time.Microsecond, time.Microsecond), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner, in := world(faulty.Options{})
			rule := in.Add(faulty.Rule{Name: c.name, When: faulty.Kinds(faulty.Apply), Times: 1, Do: c.fault})
			if err := insert(t, in.Table(), "a"); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got := exists(t, inner, "a"); got != c.applied {
				t.Errorf("applied is %v, want %v", got, c.applied)
			}
			if rule.Fired() != 1 || rule.Seen() != 1 {
				t.Errorf("the rule fired %d times on %d calls", rule.Fired(), rule.Seen())
			}
		})
	}
}

func TestThrottlingKeepsItsAdvice(t *testing.T) {
	_, in := world(faulty.Options{})
	in.Add(faulty.Rule{Do: faulty.Fail(&store.ThrottledError{RetryAfter: 3 * time.Second, Err: errors.New("busy")})})
	if got := store.RetryAfter(insert(t, in.Table(), "a")); got != 3*time.Second {
		t.Errorf("retry after %s", got)
	}
}

func TestLostReplyOfAReadIsUnavailable(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{"lose": faulty.Lose(), "drop": faulty.Drop(), "hold": faulty.Hold(0)} {
		_, in := world(faulty.Options{})
		if err := insert(t, in.Table(), "a"); err != nil {
			t.Fatal(err)
		}
		in.Add(faulty.Rule{When: faulty.Reads, Do: fault})
		row, err := in.Table().Get(t.Context(), "p", "a")
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) || row.Data != nil {
			t.Errorf("%s: got %q, error %v", name, row.Data, err)
		}
		if in.Held() != 0 {
			t.Errorf("%s: a read is held", name)
		}
	}
}

func TestFaultOnEveryBlobCall(t *testing.T) {
	inner, in := world(faulty.Options{})
	blobs := in.Blobs()
	calls := map[faulty.Kind]func() error{
		faulty.BlobPut:      func() error { _, err := blobs.Put(t.Context(), "x", nil, store.Always); return err },
		faulty.BlobGet:      func() error { _, _, err := blobs.Get(t.Context(), "x"); return err },
		faulty.BlobGetRange: func() error { _, _, err := blobs.GetRange(t.Context(), "x", 0, 1); return err },
		faulty.BlobList:     func() error { _, err := blobs.List(t.Context(), "", ""); return err },
		faulty.BlobDelete:   func() error { return blobs.Delete(t.Context(), "x") },
	}
	for kind, call := range calls {
		rule := in.Add(faulty.Rule{When: faulty.Kinds(kind), Times: 1, Do: faulty.Fail(store.ErrThrottled)})
		if err := call(); !errors.Is(err, store.ErrThrottled) || !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("%s: got %v", kind, err)
		}
		if rule.Fired() != 1 {
			t.Errorf("%s: the rule fired %d times", kind, rule.Fired())
		}
	}
	if page, err := inner.Blobs().List(t.Context(), "", ""); err != nil || len(page.Blobs) != 0 {
		t.Errorf("%d blobs were written, error %v", len(page.Blobs), err)
	}
}

func TestHeldWriteLandsOnRelease(t *testing.T) {
	inner, in := world(faulty.Options{})
	in.Add(faulty.Rule{When: faulty.Writes, Times: 2, Do: faulty.Hold(0)})
	data := []byte("first")
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := in.Table().Apply(ctx, "p", []store.Op{store.Insert("a", data)}); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	// The caller goes on: its context ends, its buffer is reused.
	cancel()
	copy(data, "XXXXX")
	if err := insert(t, in.Table(), "b"); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	if err := insert(t, inner.Table(), "b"); err != nil {
		t.Fatal(err)
	}
	in.Kill()
	if in.Held() != 2 || exists(t, inner, "a") {
		t.Fatalf("%d writes are held", in.Held())
	}
	in.Release()
	row, err := inner.Table().Get(t.Context(), "p", "a")
	if err != nil || string(row.Data) != "first" {
		t.Errorf("the held write left %q, error %v", row.Data, err)
	}
	// The second met a row that was there: its condition failed.
	if in.Held() != 0 || in.Landed() != 1 {
		t.Errorf("%d are held, %d landed", in.Held(), in.Landed())
	}
}

func TestHeldWriteLandsAfterItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, in := world(faulty.Options{})
		in.Add(faulty.Rule{When: faulty.Writes, Times: 1, Do: faulty.Hold(time.Minute)})
		if err := insert(t, in.Table(), "a"); !errors.Is(err, store.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		start := time.Now()
		in.Wait()
		if passed := time.Since(start); passed < time.Minute || passed > 2*time.Minute {
			t.Errorf("landed after %s", passed)
		}
		if !exists(t, inner, "a") || in.Landed() != 1 {
			t.Errorf("landed %d", in.Landed())
		}
	})
}

func TestDelayLetsTimePassOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, in := world(faulty.Options{})
		in.Add(faulty.Rule{Do: faulty.Delay(time.Second, time.Minute)})
		start := time.Now()
		done := make(chan error)
		go func() { done <- insert(t, in.Table(), "a") }()
		if err := clock.NewSystem().Sleep(t.Context(), 900*time.Millisecond); err != nil || exists(t, inner, "a") {
			t.Fatal("applied before the delay", err)
		}
		if err := clock.NewSystem().Sleep(t.Context(), 2*time.Second); err != nil || !exists(t, inner, "a") {
			t.Fatal("not applied after the delay", err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(start); passed < 61*time.Second || passed > 122*time.Second {
			t.Errorf("took %s", passed)
		}
	})
}

func TestContextThatEndsInADelay(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after time.Duration
		want          error
		applied       bool
	}{
		{"ahead of the call", time.Hour, 0, store.ErrUnavailable, false},
		{"ahead of the reply", 0, time.Hour, store.ErrOutcomeUnknown, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, in := world(faulty.Options{})
				in.Add(faulty.Rule{Do: faulty.Delay(c.before, c.after)})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := in.Table().Apply(ctx, "p", []store.Op{store.Insert("a", nil)})
				if !errors.Is(err, c.want) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if exists(t, inner, "a") != c.applied {
					t.Errorf("applied is %v", !c.applied)
				}
			})
		})
	}
}

// TestCrashPointsAreExhausted is the pattern for all multi-step operations:
// learn the number of calls, then kill at each, before and after its effect.
func TestCrashPointsAreExhausted(t *testing.T) {
	const rows = 5
	script := func(ctx context.Context, table store.Table) error {
		for i := range rows {
			if _, err := table.Apply(ctx, "p", []store.Op{store.Insert(fmt.Sprintf("row%d", i), nil)}); err != nil {
				return err
			}
		}
		return nil
	}
	_, dry := world(faulty.Options{})
	if err := script(t.Context(), dry.Table()); err != nil || dry.Calls() != rows {
		t.Fatalf("the dry run made %d calls, error %v", dry.Calls(), err)
	}
	for n := uint64(1); n <= dry.Calls(); n++ {
		for _, point := range faulty.Points {
			t.Run(fmt.Sprintf("call %d %s", n, point), func(t *testing.T) {
				inner, in := world(faulty.Options{})
				in.KillAt(n, point)
				ctx, cancel := in.Context(t.Context())
				defer cancel()
				if err := script(ctx, in.Table()); !errors.Is(err, faulty.ErrKilled) || !errors.Is(err, store.ErrOutcomeUnknown) {
					t.Fatalf("got %v", err)
				}
				if <-ctx.Done(); !errors.Is(context.Cause(ctx), faulty.ErrKilled) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
				want := int(n) - 1
				if point == faulty.AfterEffect {
					want++
				}
				page, err := inner.Table().Range(t.Context(), "p", store.RangeQuery{})
				if err != nil || len(page.Rows) != want {
					t.Errorf("%d rows were written, want %d, error %v", len(page.Rows), want, err)
				}
			})
		}
	}
}

func TestKilledInstanceDoesNothingAndOthersLive(t *testing.T) {
	inner, in := world(faulty.Options{})
	other := faulty.New(inner.Table(), inner.Blobs(), faulty.Options{})
	in.Kill()
	in.Kill()
	if err := insert(t, in.Table(), "a"); !errors.Is(err, faulty.ErrKilled) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, _, err := in.Blobs().Get(t.Context(), "x"); !errors.Is(err, faulty.ErrKilled) {
		t.Errorf("got %v", err)
	}
	if !in.Killed() || other.Killed() || exists(t, inner, "a") {
		t.Error("the kill reached the store or the other instance")
	}
	if err := insert(t, other.Table(), "a"); err != nil {
		t.Error(err)
	}
}

func TestCancelOfTheContextIsNoKill(t *testing.T) {
	_, in := world(faulty.Options{})
	ctx, cancel := in.Context(t.Context())
	cancel()
	if !errors.Is(context.Cause(ctx), context.Canceled) || in.Killed() {
		t.Errorf("ended with %v, killed %v", context.Cause(ctx), in.Killed())
	}
}

func TestBlockedCallGoesOnWhenReleased(t *testing.T) {
	inner, in := world(faulty.Options{})
	reached, goOn := make(chan struct{}), make(chan struct{})
	in.Add(faulty.Rule{When: faulty.OnKey("a"), Do: faulty.Do(func(context.Context, *faulty.Call) error {
		close(reached)
		<-goOn
		return nil
	})})
	done := make(chan error)
	go func() { done <- insert(t, in.Table(), "a") }()
	<-reached
	if exists(t, inner, "a") {
		t.Error("a frozen call was applied")
	}
	if err := insert(t, in.Table(), "b"); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-done; err != nil || !exists(t, inner, "a") {
		t.Errorf("the call that went on: %v", err)
	}
}

func TestHooksSeeEveryCall(t *testing.T) {
	var before, after []string
	inner, in := world(faulty.Options{
		Before: func(_ context.Context, c *faulty.Call) error {
			before = append(before, c.String())
			if c.Kind == faulty.Range {
				return store.ErrThrottled
			}
			return nil
		},
		After: func(c *faulty.Call, err error) { after = append(after, fmt.Sprint(c.Kind, " ", err == nil)) },
	})
	if err := insert(t, in.Table(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Table().Range(t.Context(), "p", store.RangeQuery{From: "a"}); !errors.Is(err, store.ErrThrottled) {
		t.Error(err)
	}
	if err := in.Blobs().Delete(t.Context(), "x/y"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	wantBefore := []string{"call 1 (apply p a)", "call 2 (range p a)", "call 3 (blob delete x/y)"}
	if fmt.Sprint(before) != fmt.Sprint(wantBefore) || fmt.Sprint(after) != "[apply true blob delete false]" {
		t.Errorf("before saw %q, after saw %q", before, after)
	}
	if !exists(t, inner, "a") || in.Calls() != 3 {
		t.Errorf("%d calls", in.Calls())
	}
}

// TestDuplicateThatIsHeldLandsTwice: both on their way, perhaps at once, while nobody
// waits for either.
func TestDuplicateThatIsHeldLandsTwice(t *testing.T) {
	_, in := world(faulty.Options{})
	in.Add(faulty.Rule{When: faulty.Writes, Do: faulty.Duplicate()}, faulty.Rule{When: faulty.Writes, Do: faulty.Hold(time.Microsecond)})
	for i := range 50 {
		if _, err := in.Blobs().Put(t.Context(), fmt.Sprint("b", i), []byte("x"), store.Always); !errors.Is(err, store.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	}
	in.Wait()
	if n := in.Landed(); n != 100 {
		t.Errorf("%d landed", n)
	}
}
