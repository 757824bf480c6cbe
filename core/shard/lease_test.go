package shard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// bent is a clock whose wall and monotonic readings a test bends apart, as a
// freeze or an adjustment does.
type bent struct {
	*clock.System
	wall, mono time.Duration
}

func (b *bent) Now() clock.Instant {
	now := b.System.Now()
	return clock.Instant{Wall: now.Wall + int64(b.wall), Mono: now.Mono + b.mono}
}

// pair is two instances of one shard.
type pair struct {
	a, b *shard.Shard
	pool *shard.Pool // of a
	time *bent       // of a
	mem  *memory.Store
}

func newPair(t *testing.T, editA, editB func(*shard.Config)) pair {
	t.Helper()
	src := &bent{System: clock.NewSystem()}
	mem := memory.New(memory.Options{Clock: src.System})
	p := pair{time: src, mem: mem}
	p.pool = instance(t, mem.Table(), mem.Blobs(), func(c *shard.Config) { c.Clock = src; editA(c) })
	p.a = p.pool.Shard("s-test-0")
	p.b = instance(t, mem.Table(), mem.Blobs(), editB).Shard("s-test-0")
	if err := p.a.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func withoutLeases(*shard.Config) {}

// within fails the test if f takes less or more time.
func within(t *testing.T, least, most time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if d := time.Since(start); d < least || d > most {
		t.Errorf("took %s, not %s to %s", d, least, most)
	}
}

func owner(t *testing.T, s *shard.Shard) shard.Lease {
	t.Helper()
	l, err := s.Lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLeaseOfADeadOwnerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, withLeases, withoutLeases)
		put(t, p.a, "k", "1")
		if e, ok := get(t, p.b, "k"); !ok || string(e.Value) != "1" {
			t.Fatal("a reader without lease does not see what the owner wrote")
		}
		within(t, 10*time.Second, 11*time.Second, func() { put(t, p.b, "k", "2") })
	})
}

func TestActiveOwnerHandsOver(t *testing.T) {
	for name, activity := range map[string]func(t *testing.T, s *shard.Shard){
		"writing": func(t *testing.T, s *shard.Shard) { put(t, s, "mine", "x") },
		"reading": func(t *testing.T, s *shard.Shard) { get(t, s, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, withLeases, withLeases)
				put(t, p.a, "k", "1")
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						select {
						case <-stop:
							return
						default:
							activity(t, p.a)
							_ = p.time.Sleep(context.Background(), 20*time.Millisecond)
						}
					}
				}()
				within(t, 0, 3*time.Second, func() { put(t, p.b, "k", "2") })
				if l := owner(t, p.b); l.Owner != 0 || l.Backoff == 0 {
					t.Errorf("after a handoff the lease is %+v, not at rest", l)
				}
				within(t, 0, time.Second, func() { put(t, p.b, "k", "3") })
				close(stop)
				<-done
				if e, _ := get(t, p.a, "k"); string(e.Value) != "3" {
					t.Errorf("the former owner reads %q", e.Value)
				}
			})
		})
	}
}

// A busy owner appends without a pause, and the request for its lease loses one
// race after the other. It must be made again.
func TestBusyOwnerHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, withLeases)
		put(t, f.Shard, "k", "1")
		lost := 0
		theirs := faulty.New(f.mem.Table(), f.mem.Blobs(), faulty.Options{Clock: f.src})
		theirs.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Times: 4, Do: faulty.Do(func(context.Context, *faulty.Call) error {
			lost++
			put(t, f.Shard, "k", "mine")
			return nil
		})})
		other := instance(t, theirs.Table(), theirs.Blobs(), nil).Shard("s-test-0")
		done := make(chan struct{})
		go func() { defer close(done); put(t, other, "k", "theirs") }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
				put(t, f.Shard, "busy", "x")
				_ = f.src.Sleep(t.Context(), 50*time.Millisecond)
			}
		}
		if lost != 4 {
			t.Errorf("the request lost %d races", lost)
		}
		if l := owner(t, other); l.Owner != 0 {
			t.Errorf("the owner did not hand over: %+v", l)
		}
	})
}

// A token never comes back: it grows with each owner, whatever releases and
// expiries lie between.
func TestLeaseTokenOnlyGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, withLeases, withLeases)
		last := uint64(0)
		for round := range 4 {
			s := p.a
			if round%2 == 1 {
				s = p.b
			}
			put(t, s, "k", "v")
			l := owner(t, s)
			if l.Token <= last {
				t.Fatalf("round %d: token %d after %d", round, l.Token, last)
			}
			last = l.Token
			_ = p.time.Sleep(t.Context(), time.Minute)
		}
	})
}

func TestReleaseAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, withLeases, withLeases)
		put(t, p.a, "k", "1")
		if err := p.pool.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		within(t, 0, 100*time.Millisecond, func() { put(t, p.b, "k", "2") })
		if e, _ := get(t, p.a, "k"); string(e.Value) != "2" {
			t.Fatalf("an instance that gave its lease back reads %q", e.Value)
		}
	})
}

func TestExclusiveStoreIgnoresDeadOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exclusive := func(c *shard.Config) { c.Leases, c.Exclusive = true, true }
		p := newPair(t, exclusive, exclusive)
		put(t, p.a, "k", "1") // and dies
		within(t, 0, 100*time.Millisecond, func() { put(t, p.b, "k", "2") })
	})
}

// A frozen owner wakes up: its monotonic clock stood still while the wall clock
// went on, or the wall clock was set back while the monotonic one went on. In
// both cases its lease is lost, and it must not answer from memory.
func TestLeaseIsLostByEitherClock(t *testing.T) {
	for name, bend := range map[string]func(*bent){
		"frozen":              func(b *bent) { b.mono = -time.Hour },
		"wall clock set back": func(b *bent) { b.wall = -time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, withLeases, withoutLeases)
				put(t, p.a, "k", "1")
				get(t, p.a, "k")
				_ = p.time.Sleep(t.Context(), time.Minute)
				bend(p.time)
				put(t, p.b, "k", "2")
				if e, _ := get(t, p.a, "k"); string(e.Value) != "2" {
					t.Fatalf("the former owner reads %q from memory", e.Value)
				}
			})
		})
	}
}

// A forgotten object and the one that takes its place in the same process are
// two owners.
func TestForgottenShardAnswersByTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(c *shard.Config) { c.Leases, c.Exclusive, c.MaxOpenShards = true, true, 1 }, withoutLeases)
		put(t, p.a, "k", "1")
		get(t, p.a, "k")
		other := p.pool.Shard("s-test-1")
		again := p.pool.Shard("s-test-0")
		if again == p.a || other == nil {
			t.Fatal("the pool remembers more shards than it may")
		}
		put(t, again, "k", "2")
		if e, _ := get(t, p.a, "k"); string(e.Value) != "2" {
			t.Fatalf("the forgotten object reads %q", e.Value)
		}
	})
}

// Versions grow although the clock of the next writer lags hours behind.
func TestVersionsSurviveAClockThatJumpsBack(t *testing.T) {
	p := newPair(t, withoutLeases, withoutLeases)
	p.time.wall = 3 * time.Hour
	first := put(t, p.a, "k", "ahead")
	p.time.wall = -3 * time.Hour
	for _, s := range []*shard.Shard{p.b, p.a} {
		next := put(t, s, "k", "behind")
		if next.Version.Compare(first.Version) <= 0 {
			t.Fatalf("version %s after %s", next.Version, first.Version)
		}
		first = next
	}
	if e, _ := get(t, p.b, "k"); string(e.Value) != "behind" {
		t.Fatalf("the later write lost: %q", e.Value)
	}
}

func TestWriterGivesUpOnAForeignLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, withLeases, withoutLeases)
		put(t, p.a, "k", "1")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := p.b.Write(ctx, []shard.Write{{Op: shard.OpPut, Key: "k", Value: []byte("2")}})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		if e, _ := get(t, p.a, "k"); string(e.Value) != "1" {
			t.Fatalf("the refused write is there: %q", e.Value)
		}
	})
}
