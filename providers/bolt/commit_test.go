package bolt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	bbolt "go.etcd.io/bbolt"

	"github.com/latticekv/lattice/core/store"
)

func openInternal(t testing.TB) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// put is a write of one row past all checks.
func put(key string) func(tx *bbolt.Tx) error {
	return func(tx *bbolt.Tx) error { return tx.Bucket(rowBucket).Put([]byte(key), nil) }
}

func (s *Store) has(t *testing.T, key string) bool {
	t.Helper()
	found := false
	err := s.db.View(func(tx *bbolt.Tx) error {
		found = tx.Bucket(rowBucket).Get([]byte(key)) != nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// blockLeader occupies the lead until the returned function is called.
func blockLeader(t *testing.T, s *Store) (release func()) {
	t.Helper()
	started, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.commit.do(context.WithoutCancel(t.Context()), 0, func(*bbolt.Tx) error {
			close(started)
			<-goOn
			return errors.New("nothing to write")
		})
	}()
	<-started
	return func() {
		close(goOn)
		<-done
	}
}

func TestWaitingWritesShareOneTransaction(t *testing.T) {
	s := openInternal(t)
	synctest.Test(t, func(t *testing.T) {
		release := blockLeader(t, s)
		var ids sync.Map
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				err := s.commit.do(t.Context(), 0, func(tx *bbolt.Tx) error {
					ids.Store(tx.ID(), true)
					return put(fmt.Sprint("row", i))(tx)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		wg.Wait()
		groups := 0
		ids.Range(func(any, any) bool { groups++; return true })
		if groups != 1 {
			t.Errorf("50 waiting writes took %d transactions", groups)
		}
	})
	for i := range 50 {
		if !s.has(t, fmt.Sprint("row", i)) {
			t.Errorf("row %d is missing", i)
		}
	}
}

func TestGroupIsBounded(t *testing.T) {
	for _, c := range []struct {
		name                   string
		writes, bytes, atLeast int
	}{
		{"by writes", 2 * maxGroupWrites, 0, 2},
		{"by bytes", 10, maxGroupBytes / 2, 5},
		{"never below one write", 3, 2 * maxGroupBytes, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openInternal(t)
			synctest.Test(t, func(t *testing.T) {
				release := blockLeader(t, s)
				var ids sync.Map
				var wg sync.WaitGroup
				for i := range c.writes {
					wg.Go(func() {
						err := s.commit.do(t.Context(), c.bytes, func(tx *bbolt.Tx) error {
							ids.Store(tx.ID(), true)
							return put(fmt.Sprint("row", i))(tx)
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				release()
				wg.Wait()
				groups := 0
				ids.Range(func(any, any) bool { groups++; return true })
				if groups != c.atLeast {
					t.Errorf("%d transactions, want %d", groups, c.atLeast)
				}
			})
		})
	}
}

func TestRejectedWriteDoesNotFailItsGroup(t *testing.T) {
	s := openInternal(t)
	synctest.Test(t, func(t *testing.T) {
		release := blockLeader(t, s)
		var wg sync.WaitGroup
		var rejected atomic.Int64
		for i := range 20 {
			wg.Go(func() {
				_, err := s.Table().Apply(t.Context(), "p", []store.Op{
					store.Insert(fmt.Sprintf("own%02d", i), nil), store.Insert(fmt.Sprintf("shared%d", i%5), nil)})
				var op *store.OpError
				if errors.As(err, &op) && op.Index == 1 && errors.Is(err, store.ErrExists) {
					rejected.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		wg.Wait()
		page, err := s.Table().Range(t.Context(), "p", store.RangeQuery{})
		if err != nil || len(page.Rows) != 10 || rejected.Load() != 15 {
			t.Errorf("%d rows, %d rejected, error %v; want 10 and 15", len(page.Rows), rejected.Load(), err)
		}
	})
}

func TestWaitingWriteCanBeWithdrawn(t *testing.T) {
	s := openInternal(t)
	synctest.Test(t, func(t *testing.T) {
		release := blockLeader(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := make(chan error, 1), make(chan error, 1)
		go func() { gone <- s.commit.do(ctx, 0, put("gone")) }()
		synctest.Wait()
		go func() { stays <- s.commit.do(t.Context(), 0, put("stays")) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("withdrawn write says %v", err)
		}
		release()
		if err := <-stays; err != nil {
			t.Error(err)
		}
	})
	if s.has(t, "gone") || !s.has(t, "stays") {
		t.Error("the wrong write was withdrawn")
	}
}

// TestCancelledLeaderStillLeads cancels writers at every moment; whoever waits
// behind them must get an answer, and the answer must be true.
func TestCancelledLeaderStillLeads(t *testing.T) {
	s := openInternal(t)
	var wg sync.WaitGroup
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		key := fmt.Sprintf("row%d", i)
		wg.Go(func() {
			err := s.commit.do(ctx, 0, put(key))
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if applied := s.has(t, key); applied != (err == nil) {
				t.Errorf("%s: applied %v, error %v", key, applied, err)
			}
		})
		wg.Go(cancel)
	}
	wg.Wait()
	if err := s.commit.do(t.Context(), 0, put("last")); err != nil || len(s.commit.queue) != 0 || s.commit.led {
		t.Errorf("the queue has %d writes, led %v, error %v", len(s.commit.queue), s.commit.led, err)
	}
}

func TestFullDiskAppliesNothingAndIsOverWhenThereIsSpace(t *testing.T) {
	s := openInternal(t)
	apply := func(key string, size int) error {
		_, err := s.Table().Apply(t.Context(), "p", []store.Op{store.Insert(key, make([]byte, size))})
		return err
	}
	if err := apply("before", 10); err != nil {
		t.Fatal(err)
	}
	s.db.MaxSize = 64 << 10
	if err := apply("large", store.MaxRowBytes); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Table().Get(t.Context(), "p", "large"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	s.db.MaxSize = 0
	if err := apply("large", store.MaxRowBytes); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
}

func TestFailedCommitStopsAllWrites(t *testing.T) {
	s := openInternal(t)
	group := []*write{{}, {err: store.ErrExists}}
	s.commit.fail(group, errors.New("input/output error"))
	if !errors.Is(group[0].err, store.ErrOutcomeUnknown) {
		t.Errorf("a write on its way says %v", group[0].err)
	}
	// It was rejected on top of a write that may not exist.
	if !errors.Is(group[1].err, store.ErrUnavailable) || errors.Is(group[1].err, store.ErrExists) {
		t.Errorf("a rejected write says %v", group[1].err)
	}
	if err := s.commit.do(t.Context(), 0, put("later")); !errors.Is(err, store.ErrUnavailable) || s.has(t, "later") {
		t.Errorf("a later write says %v", err)
	}
}

func TestHalfwayFailureRollsBackTheGroup(t *testing.T) {
	s := openInternal(t)
	err := s.commit.do(t.Context(), 0, func(tx *bbolt.Tx) error {
		if err := put("first")(tx); err != nil {
			return err
		}
		return halfway(tx.Bucket(rowBucket).Put(nil, nil))
	})
	if !errors.Is(err, store.ErrUnavailable) || s.has(t, "first") {
		t.Errorf("got %v", err)
	}
	if err := s.commit.do(t.Context(), 0, put("next")); err != nil || !s.has(t, "next") {
		t.Errorf("the next write says %v", err)
	}
}

func TestPanicInATransactionIsCorruption(t *testing.T) {
	s := openInternal(t)
	err := s.commit.do(t.Context(), 0, func(*bbolt.Tx) error { panic("page 7: invalid page type") })
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if err := s.commit.do(t.Context(), 0, put("next")); err != nil {
		t.Errorf("the next write says %v", err)
	}
}
