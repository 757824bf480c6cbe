package auth

import (
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/latticekv/lattice/core/clock"
)

// Limits bound the requests of one credential on one instance. Zero is no
// limit.
type Limits struct {
	// Rate is requests a second, over time.
	Rate float64
	// Burst is how many may come at once before Rate counts; 0 with a Rate is
	// Rate, rounded up.
	Burst int
	// Concurrent is how many may be in work at once.
	Concurrent int
}

const (
	maxRate       = 1e6
	maxBurst      = 1e6
	maxConcurrent = 1e6
)

func (l Limits) check() error {
	switch {
	case math.IsNaN(l.Rate) || l.Rate < 0 || l.Rate > maxRate || l.Rate > 0 && l.Rate < 1e-3:
		return errors.New("rate must be 0.001 to 1000000 requests a second, or 0 for no limit")
	case l.Burst < 0 || l.Burst > maxBurst:
		return errors.New("burst must be 0 to 1000000")
	case l.Burst > 0 && l.Rate == 0:
		return errors.New("burst needs a rate")
	case l.Concurrent < 0 || l.Concurrent > maxConcurrent:
		return errors.New("concurrent must be 0 to 1000000")
	}
	return nil
}

func (l Limits) burst() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(1, int(math.Ceil(l.Rate)))
}

const (
	// maxLimiters bounds the credentials whose use is counted apart.
	maxLimiters = 4096
	// evictionTries bounds the search for one that can be forgotten.
	evictionTries = 32
	// busyWait is the advice to a credential that has too many requests in work.
	busyWait = time.Second
)

// limiters count the use of credentials. Those beyond maxLimiters that cannot be
// counted apart share one limiter.
type limiters struct {
	clock clock.Source

	mu     sync.Mutex
	byID   map[string]*limiter
	shared *limiter
}

func newLimiters(c clock.Source) *limiters {
	return &limiters{clock: c, byID: map[string]*limiter{}, shared: &limiter{}}
}

// limiter counts the use of one credential.
type limiter struct {
	limits Limits
	bucket *rate.Limiter
	active int
}

// enter counts a request in until leave is called, or returns a *WaitError.
func (l *limiters) enter(p *Principal) (leave func(), err error) {
	if p.Limits == (Limits{}) {
		return func() {}, nil
	}
	now := l.clock.Now().Time()
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of(p.ID, now)
	one.adopt(p.Limits)
	if n := p.Limits.Concurrent; n > 0 && one.active >= n {
		return nil, &WaitError{Err: ErrLimited, RetryAfter: busyWait}
	}
	if one.bucket != nil {
		r := one.bucket.ReserveN(now, 1)
		if wait := r.DelayFrom(now); wait > 0 {
			r.CancelAt(now)
			return nil, &WaitError{Err: ErrLimited, RetryAfter: wait}
		}
	}
	one.active++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		one.active--
	}), nil
}

// of returns the limiter of a credential, forgetting one that says nothing any
// more if there are too many.
func (l *limiters) of(id string, now time.Time) *limiter {
	if one := l.byID[id]; one != nil {
		return one
	}
	if len(l.byID) >= maxLimiters && !l.forgetOne(now) {
		return l.shared
	}
	one := &limiter{}
	l.byID[id] = one
	return one
}

// forgetOne drops a limiter that would be the same if it were made anew.
func (l *limiters) forgetOne(now time.Time) bool {
	tries := 0
	for id, one := range l.byID {
		if one.idle(now) {
			delete(l.byID, id)
			return true
		}
		if tries++; tries == evictionTries {
			break
		}
	}
	return false
}

func (o *limiter) idle(now time.Time) bool {
	return o.active == 0 && (o.bucket == nil || o.bucket.TokensAt(now) >= float64(o.bucket.Burst()))
}

// adopt takes over limits that a reloaded key brings. What is used up stays so.
func (o *limiter) adopt(l Limits) {
	if o.limits == l {
		return
	}
	o.limits = l
	switch {
	case l.Rate == 0:
		o.bucket = nil
	case o.bucket == nil:
		o.bucket = rate.NewLimiter(rate.Limit(l.Rate), l.burst())
	default:
		o.bucket.SetLimit(rate.Limit(l.Rate))
		o.bucket.SetBurst(l.burst())
	}
}
