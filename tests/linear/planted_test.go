package linear

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/tests/history"
)

// liar passes everything on, and spoils some of the answers.
type liar struct {
	history.Store
	spoil func(inner history.Store, ctx context.Context, op *history.Op)
	count func(total int) int
}

// Do implements history.Store.
func (l liar) Do(ctx context.Context, op *history.Op) {
	if l.spoil != nil {
		l.spoil(l.Store, ctx, op)
		return
	}
	l.Store.Do(ctx, op)
}

// Count implements history.Store.
func (l liar) Count(ctx context.Context, s *history.Survey) bool {
	ok := l.Store.Count(ctx, s)
	if l.count != nil {
		s.Total = l.count(s.Total)
	}
	return ok
}

// every calls f once in n times.
func every(n int, f func()) {
	everyMu.Lock()
	calls++
	due := calls%n == 0
	everyMu.Unlock()
	if due {
		f()
	}
}

var (
	everyMu sync.Mutex
	calls   int
)

// staleReads answers some reads with what an earlier one saw.
func staleReads() liar {
	var mu sync.Mutex
	old := map[string]history.Op{}
	return liar{spoil: func(inner history.Store, ctx context.Context, op *history.Op) {
		inner.Do(ctx, op)
		if op.Kind != history.Get || op.Void || op.Unknown {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if seen, ok := old[op.Key]; ok {
			every(4, func() { op.Seen, op.Version = seen.Seen, seen.Version })
			return
		}
		old[op.Key] = *op
	}}
}

// droppedWrites acknowledges some writes that it never makes.
func droppedWrites() liar {
	return liar{spoil: func(inner history.Store, ctx context.Context, op *history.Op) {
		dropped := false
		if op.Kind == history.Put && op.IfVersion == "" && !op.IfAbsent {
			every(8, func() { dropped = true })
		}
		if dropped {
			op.FoundUnset = true
			return
		}
		inner.Do(ctx, op)
	}}
}

// deniedWrites says of some writes that they were not made.
func deniedWrites() liar {
	return liar{spoil: func(inner history.Store, ctx context.Context, op *history.Op) {
		inner.Do(ctx, op)
		if op.Kind == history.Put && !op.Mismatch {
			every(4, func() { op.Void = true })
		}
	}}
}

// TestPlantedViolationsAreFound spoils the answers of a healthy cluster: the
// check that finds nothing elsewhere must find this.
func TestPlantedViolationsAreFound(t *testing.T) {
	whole := func(ops []history.Op, surveys []history.Survey) bool {
		return history.CheckTogether(ops, surveys, checkLimit).Key != ""
	}
	keys := func(ops []history.Op, surveys []history.Survey) bool {
		return history.Check(withLooks(ops, surveys), checkLimit).Key != ""
	}
	bounds := func(ops []history.Op, surveys []history.Survey) bool {
		for i := range surveys {
			least, most := history.Bounds(ops, &surveys[i])
			if surveys[i].Seen == nil && (surveys[i].Total < least || surveys[i].Total > most) {
				return true
			}
		}
		return false
	}
	for _, c := range []struct {
		name string
		lie  func() liar
		seen func([]history.Op, []history.Survey) bool
	}{
		{"stale reads", staleReads, keys},
		{"writes acknowledged and dropped", droppedWrites, keys},
		{"writes made and denied", deniedWrites, keys},
		{"counts one too high, by bounds", func() liar { return liar{count: func(n int) int { return n + 1 }} }, bounds},
		{"counts one too low, as a whole", func() liar { return liar{count: func(n int) int { return n - 1 }} }, whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			if ops, surveys := spoiled(t, 1, true, c.lie()); c.seen(ops, surveys) {
				t.Error("a violation was found that is none")
			}
			// A lie may happen to be one that nobody notices.
			for seed := range uint64(5) {
				if ops, surveys := spoiled(t, seed, false, c.lie()); c.seen(ops, surveys) {
					return
				}
			}
			t.Error("no violation was found")
		})
	}
}

// spoiled returns the history of a cluster without faults.
func spoiled(t *testing.T, seed uint64, honest bool, l liar) (ops []history.Op, surveys []history.Survey) {
	t.Run(fmt.Sprintf("honest %v", honest), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := plan{instances: 2, clients: 6, each: 30, keys: 3, shards: 1, leases: func(int) bool { return false }}
			c := newCluster(t, seed, p)
			if !honest {
				c.wrap = func(s history.Store) history.Store {
					return liar{Store: s, spoil: l.spoil, count: l.count}
				}
			}
			c.run()
			ops, surveys = c.Ops(), c.Surveys()
			if known, failed := c.Outcomes(); honest && failed > 0 {
				t.Errorf("%d operations failed, %d came to an end", failed, known)
			}
		})
	})
	return ops, surveys
}
