// Package clock is where time and chance enter core: a Source of instants and
// of randomness, the hybrid logical clock that stamps versions, and versions
// themselves. Nothing else in core asks the machine for the time.
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Instant is one reading of both clocks of a machine. The wall clock may jump;
// the monotonic one stops while a process or a virtual machine is frozen. What
// must be trusted is trusted only as long as both agree.
type Instant struct {
	// Wall is Unix time in nanoseconds.
	Wall int64
	// Mono is the time since some fixed moment of this process.
	Mono time.Duration
}

// Milli returns the wall clock as Unix milliseconds.
func (i Instant) Milli() int64 { return i.Wall / int64(time.Millisecond) }

// Time returns the wall clock as a UTC time.
func (i Instant) Time() time.Time { return time.Unix(0, i.Wall).UTC() }

// Source tells time, waits, and draws random numbers. It is safe for
// concurrent use.
type Source interface {
	// Now reads both clocks.
	Now() Instant
	// Sleep waits for d or until ctx ends, and then returns ctx's cause.
	Sleep(ctx context.Context, d time.Duration) error
	// Uint64 returns a uniformly random number.
	Uint64() uint64
}

// System is the Source of a real process. Inside a testing/synctest bubble its
// time is virtual.
type System struct{ start time.Time }

// NewSystem returns a Source over the machine's clocks and random numbers.
func NewSystem() *System { return &System{start: time.Now()} }

// Now implements Source.
func (s *System) Now() Instant {
	now := time.Now()
	return Instant{Wall: now.UnixNano(), Mono: now.Sub(s.start)}
}

// Sleep implements Source.
func (s *System) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Uint64 implements Source.
func (s *System) Uint64() uint64 { return rand.Uint64() }

// Jitter returns a random duration in [d/2, d].
func Jitter(src Source, d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	half := uint64(d / 2)
	return d - time.Duration(src.Uint64()%(half+1))
}
