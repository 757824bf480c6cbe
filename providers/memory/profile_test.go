package memory_test

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
	"github.com/latticekv/lattice/providers/memory"
)

// TestConformanceUnderAProfile runs the suite with latency but without limits:
// answers may be late, not wrong.
func TestConformanceUnderAProfile(t *testing.T) {
	delay := memory.Delay{Fixed: 50 * time.Microsecond, Jitter: 50 * time.Microsecond}
	profile := &memory.Profile{Read: delay, Range: delay, Apply: delay, BlobRead: delay, BlobWrite: delay, BlobList: delay}
	s := memory.New(memory.Options{Profile: profile})
	suite := storetest.Config{Rounds: 5, ModelSteps: 100, ListBlobs: 100}
	suite.RunTable(t, func(*testing.T) store.Table { return s.Table() })
	suite.RunBlobs(t, func(*testing.T) store.BlobStore { return s.Blobs() })
}

// calls are all operations, by the delay that governs each.
func calls(ctx context.Context, s *memory.Store) map[string]func() error {
	return map[string]func() error{
		"Read":  func() error { _, err := s.Table().Get(ctx, "p", "a"); return err },
		"Range": func() error { _, err := s.Table().Range(ctx, "p", store.RangeQuery{}); return err },
		"Apply": func() error {
			_, err := s.Table().Apply(ctx, "p", []store.Op{store.Insert("b", nil)})
			return err
		},
		"BlobRead":      func() error { _, _, err := s.Blobs().Get(ctx, "x"); return err },
		"BlobRead part": func() error { _, _, err := s.Blobs().GetRange(ctx, "x", 0, 1); return err },
		"BlobWrite":     func() error { _, err := s.Blobs().Put(ctx, "y", nil, store.Create); return err },
		"BlobDelete":    func() error { return s.Blobs().Delete(ctx, "x") },
		"BlobList":      func() error { _, err := s.Blobs().List(ctx, "", ""); return err },
	}
}

func profileOf(d memory.Delay) *memory.Profile {
	return &memory.Profile{Read: d, Range: d, Apply: d, BlobRead: d, BlobWrite: d, BlobList: d}
}

// seeded returns a store with a row "a" and a blob "x".
func seeded(t *testing.T, p *memory.Profile) *memory.Store {
	t.Helper()
	s := memory.New(memory.Options{Clock: clock.NewSeeded(clock.NewSystem(), 1), Profile: p})
	_, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Insert("a", nil)})
	_, blobErr := s.Blobs().Put(t.Context(), "x", []byte("x"), store.Create)
	if err := errors.Join(err, blobErr); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryCallTakesItsDelay(t *testing.T) {
	for name := range calls(t.Context(), nil) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := seeded(t, profileOf(memory.Delay{Fixed: time.Second, Jitter: time.Second}))
				start := time.Now()
				if err := calls(t.Context(), s)[name](); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < time.Second || took > 2*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// TestContextThatEndsOnTheWay ends each call's context after a quarter of its
// delay, before the effect, and after three quarters, behind it.
func TestContextThatEndsOnTheWay(t *testing.T) {
	writes := map[string]bool{"Apply": true, "BlobWrite": true, "BlobDelete": true}
	for name := range calls(t.Context(), nil) {
		for _, quarter := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s after %d/4", name, quarter), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := seeded(t, profileOf(memory.Delay{Fixed: 4 * time.Second}))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(quarter)*time.Second)
					defer cancel()
					want := store.ErrUnavailable
					if writes[name] {
						want = store.ErrOutcomeUnknown
					}
					if err := calls(ctx, s)[name](); !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want %v", err, want)
					}
					_, rowErr := s.Table().Get(t.Context(), "p", "b")
					_, _, newErr := s.Blobs().Get(t.Context(), "y")
					_, _, oldErr := s.Blobs().Get(t.Context(), "x")
					applied := rowErr == nil || newErr == nil || oldErr != nil
					if applied != (writes[name] && quarter == 3) {
						t.Errorf("applied is %v", applied)
					}
				})
			})
		}
	}
}

// admitted counts how many of the calls made at a steady pace are served.
func admitted(t *testing.T, n int, pace time.Duration, call func(i int) error) int {
	t.Helper()
	src, served := clock.NewSystem(), 0
	for i := range n {
		err := call(i)
		switch {
		case err == nil:
			served++
		case !errors.Is(err, store.ErrThrottled) || store.RetryAfter(err) <= 0:
			t.Fatalf("call %d: %v", i, err)
		}
		if err := src.Sleep(t.Context(), pace); err != nil {
			t.Fatal(err)
		}
	}
	return served
}

func near(got, want, slack int) bool { return got >= want-slack && got <= want+slack }

// TestPartitionIsLimited offers ten seconds of five times the load.
func TestPartitionIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{Profile: &memory.Profile{PartitionEntities: 100}})
		two := func(i int) error {
			_, err := s.Table().Apply(t.Context(), "hot", []store.Op{
				store.Insert(fmt.Sprintf("a%d", i), nil), store.Insert(fmt.Sprintf("b%d", i), nil)})
			return err
		}
		if got := admitted(t, 2500, 4*time.Millisecond, two); !near(got, 500, 15) {
			t.Errorf("%d transactions of 2 entities were served in 10 s, want about 500", got)
		}
		page, err := s.Table().Range(t.Context(), "cold", store.RangeQuery{})
		if err != nil || len(page.Rows) != 0 {
			t.Errorf("another partition: %v", err)
		}
	})
}

// TestRowsOfARangeCount reads pages of 50 rows.
func TestRowsOfARangeCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{Profile: &memory.Profile{PartitionEntities: 1000}})
		var ops []store.Op
		for i := range 50 {
			ops = append(ops, store.Insert(fmt.Sprintf("row%02d", i), nil))
		}
		if _, err := s.Table().Apply(t.Context(), "p", ops); err != nil {
			t.Fatal(err)
		}
		read := func(int) error { _, err := s.Table().Range(t.Context(), "p", store.RangeQuery{}); return err }
		if got := admitted(t, 1000, 10*time.Millisecond, read); !near(got, 200, 5) {
			t.Errorf("%d pages of 50 rows were served in 10 s, want about 200", got)
		}
	})
}

func TestAccountIsLimitedAcrossTablesAndBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{Profile: &memory.Profile{AccountRequests: 100}})
		mixed := func(i int) (err error) {
			if i%2 == 0 {
				_, err = s.Table().Range(t.Context(), fmt.Sprintf("p%d", i), store.RangeQuery{})
			} else {
				_, err = s.Blobs().List(t.Context(), "", "")
			}
			return err
		}
		if got := admitted(t, 5000, 2*time.Millisecond, mixed); !near(got, 1000, 15) {
			t.Errorf("%d requests were served in 10 s, want about 1000", got)
		}
	})
}

func TestThrottledWriteHasNoEffectAndItsAdviceIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{Profile: &memory.Profile{PartitionEntities: 10, Burst: time.Second}})
		var err error
		for i := 0; err == nil; i++ {
			if i > 20 {
				t.Fatal("never throttled")
			}
			_, err = s.Table().Apply(t.Context(), "p", []store.Op{store.Insert(fmt.Sprintf("row%d", i), nil)})
		}
		wait := store.RetryAfter(err)
		if !errors.Is(err, store.ErrThrottled) || wait <= 0 || wait > time.Second {
			t.Fatalf("got %v", err)
		}
		if err := clock.NewSystem().Sleep(t.Context(), wait); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Insert("row10", nil)}); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

// TestProfileIsRepeatable compares the delays of two runs under one seed.
func TestProfileIsRepeatable(t *testing.T) {
	run := func(t *testing.T, seed uint64) (took []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New(memory.Options{Clock: clock.NewSeeded(clock.NewSystem(), seed), Profile: memory.Azure()})
			for range 20 {
				start := time.Now()
				if _, err := s.Table().Range(t.Context(), "p", store.RangeQuery{}); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
		})
		return took
	}
	first := fmt.Sprint(run(t, 1))
	if again := fmt.Sprint(run(t, 1)); again != first {
		t.Errorf("delays are %s, then %s", first, again)
	}
	if other := fmt.Sprint(run(t, 2)); other == first {
		t.Error("another seed gives the same delays")
	}
}
