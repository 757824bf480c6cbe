package tree

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
)

// counting makes requests whose n-th computation takes a second and yields n.
func counting(calls *atomic.Int64) request[int64] {
	return request[int64]{
		clock: clock.NewSystem(), ttl: 5 * time.Second,
		fits: func(*int64) bool { return true },
		compute: func(ctx context.Context, _ *int64) (*int64, error) {
			n := calls.Add(1)
			if err := clock.NewSystem().Sleep(ctx, time.Second); err != nil {
				return nil, err
			}
			return &n, nil
		},
	}
}

func TestSharedComputesOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			s     shared[int64]
			calls atomic.Int64
			wg    sync.WaitGroup
		)
		r := counting(&calls)
		for range 32 {
			wg.Go(func() {
				if v, err := s.get(t.Context(), r); err != nil || *v != 1 {
					t.Errorf("got %v, %v", v, err)
				}
			})
		}
		wg.Wait()
		for _, c := range []struct {
			after time.Duration
			want  int64
		}{{3999 * time.Millisecond, 1}, {time.Millisecond, 2}, {3 * time.Second, 2}, {2 * time.Second, 3}} {
			time.Sleep(c.after)
			if v, err := s.get(t.Context(), r); err != nil || *v != c.want {
				t.Errorf("after %s more: got %d, %v, want %d", c.after, *v, err, c.want)
			}
		}
	})
}

// Whoever computes and gives up answers for nobody else; whoever waits and gives
// up is let go.
func TestSharedOutlivesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			s     shared[int64]
			calls atomic.Int64
			wg    sync.WaitGroup
		)
		r := counting(&calls)
		leader, giveUp := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := s.get(leader, r); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who gave up is told %v", err)
			}
		})
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			if _, err := s.get(hasty, r); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("the hasty one is told %v", err)
			}
		})
		wg.Go(func() {
			if v, err := s.get(t.Context(), r); err != nil || *v != 2 {
				t.Errorf("the patient one gets %v, %v", v, err)
			}
		})
		time.Sleep(200 * time.Millisecond)
		giveUp()
		wg.Wait()
	})
}

func TestSharedKeepsNoFailure(t *testing.T) {
	var (
		s     shared[int64]
		calls atomic.Int64
	)
	r := counting(&calls)
	r.compute = func(context.Context, *int64) (*int64, error) {
		n := calls.Add(1)
		if n == 1 {
			return nil, store.ErrCorrupt
		}
		return &n, nil
	}
	if _, err := s.get(t.Context(), r); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
	if v, err := s.get(t.Context(), r); err != nil || *v != 2 {
		t.Errorf("got %v, %v", v, err)
	}
}

// What is dropped is not served again, and what is on its way then neither.
func TestSharedDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			s     shared[int64]
			calls atomic.Int64
			wg    sync.WaitGroup
		)
		r := counting(&calls)
		wg.Go(func() {
			if v, err := s.get(t.Context(), r); err != nil || *v != 1 {
				t.Errorf("the one before the drop gets %v, %v", v, err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		s.drop()
		after := func() {
			if v, err := s.get(t.Context(), r); err != nil || *v != 2 {
				t.Errorf("after the drop: got %v, %v", v, err)
			}
		}
		wg.Go(after)
		time.Sleep(600 * time.Millisecond) // the one before the drop is over
		after()
		after()
		wg.Wait()
	})
}

// An outcome that is of no use to the caller is made anew.
func TestSharedFitsTheCaller(t *testing.T) {
	var (
		s     shared[int64]
		calls atomic.Int64
	)
	r := counting(&calls)
	r.compute = func(_ context.Context, before *int64) (*int64, error) {
		n := calls.Add(1)
		if n == 2 && (before == nil || *before != 1) {
			t.Errorf("the computation is told of %v before", before)
		}
		return &n, nil
	}
	_, err := s.get(t.Context(), r)
	must(t, err)
	r.fits = func(v *int64) bool { return *v > 1 }
	if v, err := s.get(t.Context(), r); err != nil || *v != 2 {
		t.Errorf("got %v, %v", v, err)
	}
}
