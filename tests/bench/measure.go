package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// operation is one call of a client.
type operation func(ctx context.Context, key string) error

// result is a cell of the comparison.
type result struct {
	perSecond float64
	p50, p99  time.Duration
}

// worker is one client: it draws its keys and keeps its own times.
type worker struct {
	rnd   *rand.Rand
	names []string
	took  []time.Duration
	err   error
}

// measure lets clients repeat an operation on random keys, one after the other
// each, and reports what came to an end between warm-up and end.
func measure(ctx context.Context, s *settings, clients int, op operation) (result, error) {
	names := keyNames(s.keys)
	workers := make([]*worker, clients)
	begin := time.Now().Add(s.warmup)
	end := begin.Add(s.duration)
	var all sync.WaitGroup
	for i := range workers {
		w := &worker{rnd: rand.New(rand.NewPCG(s.seed, uint64(i))), names: names}
		workers[i] = w
		all.Go(func() { w.work(ctx, op, begin, end) })
	}
	all.Wait()
	return gather(workers, s.duration)
}

func (w *worker) work(ctx context.Context, op operation, begin, end time.Time) {
	for start := time.Now(); start.Before(end); {
		if w.err = op(ctx, w.names[w.rnd.IntN(len(w.names))]); w.err != nil {
			return
		}
		now := time.Now()
		if !now.Before(begin) && now.Before(end) {
			w.took = append(w.took, now.Sub(start))
		}
		start = now
	}
}

func gather(workers []*worker, d time.Duration) (result, error) {
	var took []time.Duration
	var errs []error
	for _, w := range workers {
		took = append(took, w.took...)
		errs = append(errs, w.err)
	}
	if err := errors.Join(errs...); err != nil {
		return result{}, err
	}
	if len(took) == 0 {
		return result{}, errors.New("no operation came to an end in time")
	}
	slices.Sort(took)
	return result{
		perSecond: float64(len(took)) / d.Seconds(),
		p50:       took[len(took)/2],
		p99:       took[len(took)*99/100],
	}, nil
}

func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user-%08d", i)
	}
	return names
}

// values returns random bytes, which no compression makes smaller.
func values(seed uint64, bytes int) func() []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	var mu sync.Mutex
	source := rand.NewChaCha8(key)
	return func() []byte {
		value := make([]byte, bytes)
		mu.Lock()
		defer mu.Unlock()
		_, _ = source.Read(value) // it never fails
		return value
	}
}
