package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/cmd/lattice/internal/rows"
)

// store is a Target in memory.
type store struct {
	mu      sync.Mutex
	values  map[string]string
	ttls    map[string]time.Duration
	types   map[string]string
	batches []int
	// before, if set, may fail a batch before it is carried out.
	before func(n int, ops []client.Op) error
	// after, if set, may lose the reply of one that was.
	after func(n int) error
	// status, if set, may refuse a key.
	status func(key string) string
	delay  time.Duration
	calls  int
	flying int
	most   int
}

func newStore() *store {
	return &store{values: map[string]string{}, ttls: map[string]time.Duration{}, types: map[string]string{}}
}

func (s *store) enter(ctx context.Context) (int, error) {
	s.mu.Lock()
	s.calls++
	n := s.calls
	s.flying++
	s.most = max(s.most, s.flying)
	s.mu.Unlock()
	if s.delay == 0 {
		return n, nil
	}
	select {
	case <-time.After(s.delay):
		return n, nil
	case <-ctx.Done():
		return n, context.Cause(ctx)
	}
}

func (s *store) leave() {
	s.mu.Lock()
	s.flying--
	s.mu.Unlock()
}

func (s *store) Batch(ctx context.Context, b client.Batch) ([]client.OpResult, error) {
	n, err := s.enter(ctx)
	defer s.leave()
	if err != nil {
		return nil, err
	}
	if s.before != nil {
		if err := s.before(n, b.Ops); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, len(b.Ops))
	results := make([]client.OpResult, len(b.Ops))
	for i, op := range b.Ops {
		results[i] = client.OpResult{Key: op.Key, Status: "ok"}
		if s.status != nil {
			if st := s.status(op.Key); st != "" {
				results[i].Status = st
				continue
			}
		}
		s.values[op.Key], s.ttls[op.Key] = string(op.Value)+string(op.JSON), op.TTL
	}
	if s.after != nil {
		if err := s.after(n); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (s *store) Set(ctx context.Context, key string, value []byte, o client.SetOptions) (client.SetResult, error) {
	_, err := s.enter(ctx)
	defer s.leave()
	if err != nil {
		return client.SetResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key], s.types[key], s.ttls[key] = string(value), o.ContentType, o.TTL
	return client.SetResult{Version: "1"}, nil
}

func row(line int64, key, value string) rows.Row {
	return rows.Row{Line: line, Raw: []byte(key + "=" + value), Op: client.Op{Key: key, Value: []byte(value), Text: true}}
}

// list is a Source of rows and faults; end follows, io.EOF if nil.
type list struct {
	items []any
	end   error
	// block, if set, is waited for before the end.
	block chan struct{}
}

func (l *list) Next() (rows.Row, error) {
	if len(l.items) == 0 {
		if l.block != nil {
			<-l.block
		}
		if l.end != nil {
			return rows.Row{}, l.end
		}
		return rows.Row{}, io.EOF
	}
	it := l.items[0]
	l.items = l.items[1:]
	if f, ok := it.(*rows.Fault); ok {
		return rows.Row{}, f
	}
	return it.(rows.Row), nil
}

func many(n int) *list {
	l := &list{}
	for i := range n {
		l.items = append(l.items, row(int64(i+1), fmt.Sprintf("k%05d", i), fmt.Sprint(i)))
	}
	return l
}

// run runs under virtual time.
func run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func want(t *testing.T, got Summary, read, written, rejected int64) {
	t.Helper()
	if got.Read != read || got.Written != written || got.Rejected != rejected {
		t.Fatalf("summary %+v; want read %d, written %d, rejected %d", got, read, written, rejected)
	}
}

func TestEverythingIsWritten(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.delay = 10 * time.Millisecond
		sum, err := Run(t.Context(), s, many(10_000), Options{BatchOps: 100})
		if err != nil {
			t.Fatal(err)
		}
		want(t, sum, 10_000, 10_000, 0)
		if len(s.values) != 10_000 || s.values["k00042"] != "42" || sum.Settled != 10_000 || sum.Unsettled != 0 {
			t.Fatalf("%d values, %+v", len(s.values), sum)
		}
		if s.most != 4 || slices.Max(s.batches) != 100 {
			t.Fatalf("%d requests at once, batches up to %d", s.most, slices.Max(s.batches))
		}
	})
}

func TestLastRowOfAKeyWins(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	run(t, func(t *testing.T) {
		s := newStore()
		s.delay = time.Millisecond
		s.before = func(n int, _ []client.Op) error {
			if n%7 == 0 {
				return &client.Error{Status: 503, Code: client.ErrStorageThrottled}
			}
			return nil
		}
		l, last := &list{}, map[string]string{}
		for i := range 5000 {
			k, v := fmt.Sprint("k", r.IntN(60)), fmt.Sprint(i)
			last[k] = v
			l.items = append(l.items, row(int64(i+1), k, v))
		}
		sum, err := Run(t.Context(), s, l, Options{BatchOps: 20})
		if err != nil {
			t.Fatal(err)
		}
		want(t, sum, 5000, 5000, 0)
		if !maps.Equal(s.values, last) {
			t.Fatalf("values are not those of the last rows")
		}
	})
}

func TestFaultsAndRefusalsAreReported(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.status = func(key string) string {
			if key == "k00003" {
				return "key_too_long"
			}
			return ""
		}
		l := many(10)
		l.items = slices.Insert(l.items, 5, any(&rows.Fault{Line: 99, Reason: "bad"}))
		var faults []string
		sum, err := Run(t.Context(), s, l, Options{OnReject: func(f *rows.Fault) { faults = append(faults, f.Error()+" "+string(f.Raw)) }})
		if err != nil {
			t.Fatal(err)
		}
		want(t, sum, 11, 9, 2)
		slices.Sort(faults)
		if !slices.Equal(faults, []string{"line 4: key too long k00003=3", "line 99: bad "}) {
			t.Fatalf("%q", faults)
		}
	})
}

func TestRefusedBatchIsTakenApart(t *testing.T) {
	for name, named := range map[string]bool{"answer names the key": true, "by halves": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				bad := map[string]bool{"k00007": true, "k00070": true}
				s := newStore()
				s.before = func(_ int, ops []client.Op) error {
					for _, op := range ops {
						if bad[op.Key] {
							e := &client.Error{Status: 413, Code: client.ErrValueTooLarge, Detail: "big"}
							if named {
								e.Key = op.Key
							}
							return e
						}
					}
					return nil
				}
				var faults []string
				sum, err := Run(t.Context(), s, many(100), Options{Concurrency: 1, OnReject: func(f *rows.Fault) { faults = append(faults, f.Key+" "+f.Reason) }})
				if err != nil {
					t.Fatal(err)
				}
				want(t, sum, 100, 98, 2)
				if !slices.Equal(faults, []string{"k00007 value_too_large: big", "k00070 value_too_large: big"}) || len(s.values) != 98 {
					t.Fatalf("%q, %d values", faults, len(s.values))
				}
				if s.calls > 30 {
					t.Fatalf("%d requests to find two rows", s.calls)
				}
			})
		})
	}
}

func TestRefusedRowUncoversTheOneBefore(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.before = func(_ int, ops []client.Op) error {
			for _, op := range ops {
				if string(op.Value) == "bad" {
					return &client.Error{Status: 400, Code: client.ErrInvalidArgument}
				}
			}
			return nil
		}
		sum, err := Run(t.Context(), s, &list{items: []any{row(1, "k", "good"), row(2, "k", "bad")}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want(t, sum, 2, 1, 1)
		if s.values["k"] != "good" {
			t.Fatalf("value %q", s.values["k"])
		}
	})
}

func TestBusyServiceSlowsDownAndGoesOn(t *testing.T) {
	for name, fail := range map[string]error{
		"throttled":   &client.Error{Status: 503, Code: client.ErrStorageThrottled, RetryAfter: 3 * time.Second},
		"over quota":  &client.Error{Status: 429, Code: client.ErrQuotaExceeded, RetryAfter: 3 * time.Second},
		"unreachable": io.ErrUnexpectedEOF,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				s, waits := newStore(), 0
				s.before = func(n int, _ []client.Op) error {
					if n <= 3 {
						return fail
					}
					return nil
				}
				start := time.Now()
				sum, err := Run(t.Context(), s, many(500), Options{Concurrency: 1, BatchOps: 100, OnWait: func(time.Duration, error) { waits++ }})
				if err != nil {
					t.Fatal(err)
				}
				want(t, sum, 500, 500, 0)
				if waits != 3 || client.RetryAfter(fail) > 0 && time.Since(start) < 9*time.Second {
					t.Fatalf("%d waits, %s", waits, time.Since(start))
				}
			})
		})
	}
}

func TestBusyKeysAreSentAgain(t *testing.T) {
	run(t, func(t *testing.T) {
		s, refused := newStore(), 0
		s.status = func(key string) string {
			if key == "k00005" && refused < 2 {
				refused++
				return "unavailable"
			}
			return ""
		}
		sum, err := Run(t.Context(), s, many(10), Options{Concurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		want(t, sum, 10, 10, 0)
		if !slices.Equal(s.batches, []int{10, 1, 1}) {
			t.Fatalf("batches %v", s.batches)
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.before = func(n int, _ []client.Op) error {
			if n > 2 {
				return &client.Error{Status: 503, Code: client.ErrUnavailable}
			}
			return nil
		}
		start := time.Now()
		sum, err := Run(t.Context(), s, many(1000), Options{Concurrency: 1, BatchOps: 100, RetryFor: time.Minute})
		if !errors.Is(err, ErrPatience) || !errors.Is(err, client.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		if d := time.Since(start); d > time.Minute {
			t.Fatalf("gave up after %s", d)
		}
		if sum.Written != 200 || sum.Settled != 200 || sum.Unsettled == 0 {
			t.Fatalf("summary %+v", sum)
		}
	})
}

func TestServiceThatWasNeverThereIsNotWaitedForLong(t *testing.T) {
	away := errors.New("connection refused")
	for name, c := range map[string]struct {
		answer error
		least  time.Duration
		most   time.Duration
	}{
		"never there":      {away, 3 * time.Second, 10 * time.Second},
		"there, but busy":  {&client.Error{Status: 503, Code: client.ErrUnavailable}, 40 * time.Second, time.Minute},
		"there, then away": {nil, 40 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				s := newStore()
				s.before = func(n int, _ []client.Op) error {
					if n > 1 && c.answer == nil {
						return away
					}
					return c.answer
				}
				var told error
				start := time.Now()
				_, err := Run(t.Context(), s, many(1000), Options{
					Concurrency: 1, BatchOps: 100, RetryFor: time.Minute, OnWait: func(_ time.Duration, err error) { told = err },
				})
				if d := time.Since(start); !errors.Is(err, ErrPatience) || d < c.least || d > c.most {
					t.Errorf("gave up after %s: %v", d, err)
				}
				if told == nil || !errors.Is(err, told) {
					t.Errorf("told to wait for %v", told)
				}
			})
		})
	}
}

func TestFatalAnswerEndsTheRun(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.before = func(n int, _ []client.Op) error {
			if n > 1 {
				return &client.Error{Status: 403, Code: client.ErrAuthorizationDenied}
			}
			return nil
		}
		sum, err := Run(t.Context(), s, many(10_000), Options{Concurrency: 1, BatchOps: 10})
		if !errors.Is(err, client.ErrAuthorizationDenied) || s.calls != 2 {
			t.Fatalf("%v after %d calls", err, s.calls)
		}
		if sum.Written != 10 || sum.Rejected != 0 || sum.Settled != 10 || sum.Unsettled == 0 {
			t.Fatalf("summary %+v", sum)
		}
	})
}

func TestInterruptWritesWhatWasRead(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.delay = time.Second
		ctx, cancel := context.WithCancel(t.Context())
		l := many(250)
		l.block = make(chan struct{})
		defer close(l.block)
		time.AfterFunc(1100*time.Millisecond, cancel)
		sum, err := Run(ctx, s, l, Options{BatchOps: 100})
		if !errors.Is(err, ErrInterrupted) {
			t.Fatalf("error %v", err)
		}
		want(t, sum, 250, 250, 0)
		if sum.Settled != 250 || sum.Unsettled != 0 || len(s.values) != 250 {
			t.Fatalf("summary %+v, %d values", sum, len(s.values))
		}
	})
}

func TestInterruptDoesNotWaitForever(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.before = func(int, []client.Op) error { return &client.Error{Status: 503, Code: client.ErrUnavailable} }
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		start := time.Now()
		l := many(50)
		l.block = make(chan struct{})
		defer close(l.block)
		sum, err := Run(ctx, s, l, Options{BatchOps: 10, Grace: 3 * time.Second, RetryFor: time.Hour})
		if !errors.Is(err, ErrInterrupted) || time.Since(start) > 9*time.Second {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
		if sum.Written != 0 || sum.Settled != 0 || sum.Unsettled == 0 {
			t.Fatalf("summary %+v", sum)
		}
	})
}

func TestInterruptedRunGoesOn(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.delay = 50 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(420*time.Millisecond, cancel)
		sum, err := Run(ctx, s, many(10_000), Options{BatchOps: 50})
		if !errors.Is(err, ErrInterrupted) || sum.Settled == 0 || sum.Settled == 10_000 || sum.Settled != sum.Written {
			t.Fatalf("%v, %+v", err, sum)
		}
		again, err := Run(t.Context(), s, many(10_000), Options{BatchOps: 50, SkipRows: sum.Settled})
		if err != nil || again.Skipped != sum.Settled || again.Written != 10_000-sum.Settled {
			t.Fatalf("%v, %+v", err, again)
		}
		if len(s.values) != 10_000 {
			t.Fatalf("%d values", len(s.values))
		}
	})
}

func TestTooManyRejects(t *testing.T) {
	run(t, func(t *testing.T) {
		l := &list{}
		for i := range 1000 {
			l.items = append(l.items, &rows.Fault{Line: int64(i), Reason: "bad"})
		}
		sum, err := Run(t.Context(), newStore(), l, Options{MaxRejects: 10})
		if !errors.Is(err, ErrTooManyRejects) || sum.Rejected != 10 {
			t.Fatalf("%v, %+v", err, sum)
		}
	})
}

func TestReadErrorEndsTheRun(t *testing.T) {
	run(t, func(t *testing.T) {
		l := many(10)
		l.end = io.ErrUnexpectedEOF
		sum, err := Run(t.Context(), newStore(), l, Options{})
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		want(t, sum, 10, 10, 0)
	})
}

func TestSilentInputIsFlushed(t *testing.T) {
	run(t, func(t *testing.T) {
		s, l := newStore(), many(3)
		l.block = make(chan struct{})
		time.AfterFunc(3*time.Second, func() {
			s.mu.Lock()
			n := len(s.values)
			s.mu.Unlock()
			if n != 3 {
				t.Errorf("%d values while the input is silent", n)
			}
			close(l.block)
		})
		if _, err := Run(t.Context(), s, l, Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestExpiryIsCountedWhenSent(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		fails := 0
		s.before = func(int, []client.Op) error {
			if fails++; fails == 1 {
				return &client.Error{Status: 503, Code: client.ErrUnavailable, RetryAfter: 10 * time.Second}
			}
			return nil
		}
		at := func(key string, d time.Duration) rows.Row {
			r := row(1, key, "v")
			r.ExpiresAt = time.Now().Add(d)
			return r
		}
		own := row(1, "own", "v")
		own.Op.TTL = time.Hour
		l := &list{items: []any{at("past", -time.Second), at("soon", 5*time.Second), at("later", time.Minute), row(1, "default", "v"), own}}
		sum, err := Run(t.Context(), s, l, Options{Concurrency: 1, TTL: 7 * time.Hour})
		if err != nil || sum.Expired != 2 || sum.Written != 3 {
			t.Fatalf("%v, %+v", err, sum)
		}
		if d := s.ttls["later"]; d > 50*time.Second || d < 45*time.Second {
			t.Fatalf("50 s are left, sent %s", d)
		}
		if s.ttls["default"] != 7*time.Hour || s.ttls["own"] != time.Hour {
			t.Fatalf("times to live %v", s.ttls)
		}
	})
}

func TestRowsThatGoAlone(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		typed := row(2, "typed", "new")
		typed.ContentType = "image/png"
		doc := rows.Row{Op: client.Op{Key: "doc", JSON: []byte(`"` + strings.Repeat("x", 900) + `"`)}}
		l := &list{items: []any{row(1, "typed", "old"), typed, row(3, "large", strings.Repeat("x", 900)), doc, row(4, "typed2", "v")}}
		sum, err := Run(t.Context(), s, l, Options{Concurrency: 1, BatchBytes: 1000})
		if err != nil {
			t.Fatal(err)
		}
		want(t, sum, 5, 5, 0)
		if s.values["typed"] != "new" || s.types["typed"] != "image/png" || s.types["large"] != "text/plain; charset=utf-8" || s.types["doc"] != "application/json" {
			t.Fatalf("%v, %v", s.values["typed"], s.types)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	run(t, func(t *testing.T) {
		s := newStore()
		s.delay = time.Second
		stats := &Stats{}
		big := strings.Repeat("x", 1000)
		l := &list{}
		for i := range 2000 {
			l.items = append(l.items, row(int64(i+1), fmt.Sprint(i), big))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			sum, err := Run(t.Context(), s, l, Options{Concurrency: 2, BatchBytes: 10_000, Stats: stats})
			if err != nil || sum.Written != 2000 {
				t.Errorf("%v, %+v", err, sum)
			}
		}()
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
				held := stats.Read.Load() - stats.Written.Load()
				if held*2000 > 2*memoryFactor*10_000+20*2200 {
					t.Fatalf("%d rows are held", held)
				}
			}
		}
	})
}

// TestNothingIsLostUnderFaults loses requests and replies at random and
// interrupts at random; what is settled is written, and going on completes it.
func TestNothingIsLostUnderFaults(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for i := range 20 {
		run(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			var mu sync.Mutex
			chance := func(p float64) bool { mu.Lock(); defer mu.Unlock(); return r.Float64() < p }
			s := newStore()
			s.delay = 20 * time.Millisecond
			s.before = func(int, []client.Op) error {
				if chance(0.1) {
					return &client.Error{Status: 503, Code: client.ErrStorageThrottled}
				}
				return nil
			}
			s.after = func(int) error {
				if chance(0.1) {
					return io.ErrUnexpectedEOF
				}
				return nil
			}
			const n = 3000
			skip := int64(0)
			for round := 0; ; round++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+r.IntN(400))*time.Millisecond)
				sum, err := Run(ctx, s, many(n), Options{BatchOps: 30, SkipRows: skip, Grace: time.Duration(1+r.IntN(200)) * time.Millisecond})
				cancel()
				for k := skip; k < sum.Settled; k++ {
					if _, ok := s.values[fmt.Sprintf("k%05d", k)]; !ok {
						t.Fatalf("seed %d/%d: row %d counts as settled and is not there", seed, i, k+1)
					}
				}
				if err == nil {
					break
				}
				if !errors.Is(err, ErrInterrupted) || sum.Settled < skip || round > 500 {
					t.Fatalf("seed %d/%d: %v, %+v", seed, i, err, sum)
				}
				skip = sum.Settled
			}
			if len(s.values) != n {
				t.Fatalf("seed %d/%d: %d values", seed, i, len(s.values))
			}
		})
	}
}
