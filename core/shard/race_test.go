package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// Races that random schedules meet once in a thousand, each staged by itself.

// slowReply makes the next calls of a kind take effect at once and reply late.
func slowReply(times int, kind faulty.Kind) faulty.Rule {
	return faulty.Rule{When: faulty.Kinds(kind), Times: times, Do: faulty.Delay(0, time.Second)}
}

// An append of the lease's owner has landed, and its reply is on the way.
// Another instance, which asks the log, sees it already; so the owner must not
// answer from memory without it.
func TestLeasedReadWaitsForTheAppendUnderWay(t *testing.T) {
	reads := map[string]func(t *testing.T, s *shard.Shard) string{
		"get": func(t *testing.T, s *shard.Shard) string {
			e, _ := get(t, s, "k")
			return string(e.Value)
		},
		"scan": func(t *testing.T, s *shard.Shard) string { return contentsOf(t, s)["k"] },
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, withLeases)
				put(t, f.Shard, "k", "1")
				get(t, f.Shard, "k")
				f.faults.Add(slowReply(1, faulty.Apply))
				done := make(chan struct{})
				go func() { defer close(done); put(t, f.Shard, "k", "2") }()
				_ = f.src.Sleep(t.Context(), 100*time.Millisecond)
				if e, _ := get(t, f.other, "k"); string(e.Value) != "2" {
					t.Fatalf("the append has not landed: %q", e.Value)
				}
				if got := read(t, f.Shard); got != "2" {
					t.Errorf("the owner still answers %q", got)
				}
				if _, ok := get(t, f.Shard, "other"); ok {
					t.Error("a key exists that nobody wrote")
				}
				<-done
			})
		})
	}
}

// The owner hands its lease over with an append whose reply is late. The other
// instance appends as soon as it sees that; the former owner must not answer
// from memory meanwhile.
func TestHandedOverLeaseEndsBeforeTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, withLeases)
		put(t, f.Shard, "k", "1")
		get(t, f.Shard, "k")
		taken := make(chan struct{})
		go func() { defer close(taken); put(t, f.other, "k", "2") }()
		_ = f.src.Sleep(t.Context(), 100*time.Millisecond)
		f.faults.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Skip: 1, Times: 1, Do: faulty.Delay(0, 2*time.Second)})
		released := make(chan struct{})
		go func() { defer close(released); put(t, f.Shard, "x", "y") }()
		<-taken
		select {
		case <-released:
			t.Fatal("the reply of the handover was not late")
		default:
		}
		if e, _ := get(t, f.Shard, "k"); string(e.Value) != "2" {
			t.Errorf("the former owner answers %q", e.Value)
		}
		<-released
	})
}

// A failed condition is an answer about the state, and needs the same proof as a
// read: here another instance has appended since memory was current.
func TestFailedConditionIsProvedCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, withLeases, withoutLeases)
		put(t, p.a, "k", "1")
		_ = p.time.Sleep(t.Context(), time.Minute)
		p.time.wall = -time.Hour // its wall clock says that the lease is young
		second := put(t, p.b, "k", "2")
		r := write(t, p.a, shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("3"), IfVersion: second.Version})
		if r.Status != shard.StatusApplied {
			t.Errorf("a condition that holds is refused from stale memory: %+v", r)
		}
	})
}

// A reader that comes while a check is under way is not served by it: the check
// may have seen the log before a write that was acknowledged before the reader
// came.
func TestReaderNeedsACheckThatBeganAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, nil)
		put(t, f.Shard, "k", "1")
		f.faults.Add(slowReply(1, faulty.Range))
		early := make(chan struct{})
		go func() { defer close(early); get(t, f.Shard, "k") }()
		_ = f.src.Sleep(t.Context(), 100*time.Millisecond)
		put(t, f.other, "k", "2")
		if e, _ := get(t, f.Shard, "k"); string(e.Value) != "2" {
			t.Errorf("a reader after the write is served %q", e.Value)
		}
		<-early
	})
}

// The same while the shard is being opened.
func TestReaderNeedsAnOpeningThatBeganAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		in := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: src})
		writer := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0")
		if err := writer.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, writer, "k", "1")
		cold := instance(t, in.Table(), in.Blobs(), nil).Shard("s-test-0")
		in.Add(slowReply(1, faulty.Range))
		opening := make(chan struct{})
		go func() { defer close(opening); put(t, cold, "x", "y") }()
		_ = src.Sleep(t.Context(), 100*time.Millisecond)
		put(t, writer, "k", "2")
		if e, _ := get(t, cold, "k"); string(e.Value) != "2" {
			t.Errorf("a reader after the write is served %q", e.Value)
		}
		<-opening
	})
}

// A lost reply is looked for in a log that has been truncated meanwhile: nobody
// can tell, and nobody may guess.
func TestLostReplyBehindTruncation(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, quick)
				busy := instance(t, f.mem.Table(), f.mem.Blobs(), quick).Shard("s-test-0")
				// While one append is slow the others gather to a group.
				f.faults.Add(onAppend(1, faulty.Delay(100*time.Millisecond, 0)))
				f.faults.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Skip: 1, Times: 1, Do: func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
					if landed {
						if err := perform(ctx); err != nil {
							t.Error(err)
						}
					}
					for range 3 {
						scribble(t, rand.New(rand.NewPCG(1, 1)), busy, map[string]string{}, 20)
						maintain(t, busy, f.src)
					}
					return store.ErrOutcomeUnknown
				}})
				together(4, func(i int) {
					w := shard.Write{Op: shard.OpPut, Key: fmt.Sprint("mine", i), Value: []byte("1"), IfAbsent: true}
					if i == 0 {
						put(t, f.Shard, "slow", "1")
						return
					}
					_ = f.src.Sleep(t.Context(), 10*time.Millisecond)
					if _, err := f.Write(t.Context(), []shard.Write{w}); !errors.Is(err, store.ErrOutcomeUnknown) {
						t.Errorf("got %v, not an unknown outcome", err)
					}
				})
				for i := 1; i < 4; i++ {
					if _, ok := get(t, f.Shard, fmt.Sprint("mine", i)); ok != landed {
						t.Errorf("key %d exists: %v", i, ok)
					}
				}
			})
		})
	}
}

// Blobs of a checkpoint that was replaced within the grace period are spared,
// however old they are.
func TestRetiredCheckpointIsSparedWithinItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		reader := instance(t, m.Table(), m.Blobs(), func(c *shard.Config) { quick(c); c.CacheBytes = 0 }).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(9, 10)), map[string]string{}
		scribble(t, rnd, s, model, 300)
		maintain(t, s, src)
		before := maps.Clone(model)
		_ = src.Sleep(t.Context(), time.Hour)
		view, err := reader.View(t.Context(), shard.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		scribble(t, rnd, s, model, 600)
		maintain(t, s, src)
		c, n := view.Entries(shard.Bounds{}, false), 0
		for c.Next(t.Context()) {
			n++
		}
		if c.Err() != nil || n != len(before) {
			t.Errorf("a view within its grace shows %d of %d entries: %v", n, len(before), c.Err())
		}
	})
}

// A large value's row lands between the collector's search and its fence: what
// was an orphan is one no longer.
func TestOrphanIsAdoptedBeforeTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		resume, written := make(chan struct{}), make(chan struct{})
		f.faults.Add(onAppend(1, faulty.Do(func(context.Context, *faulty.Call) error { <-resume; return nil })))
		value := strings.Repeat("large", 100)
		go func() { defer close(written); put(t, f.Shard, "k", value) }()
		_ = f.src.Sleep(t.Context(), 20*time.Second)
		cin := faulty.New(f.mem.Table(), f.mem.Blobs(), faulty.Options{Clock: f.src})
		fenced := cin.Add(onAppend(1, faulty.Do(func(context.Context, *faulty.Call) error {
			close(resume)
			<-written
			return nil
		})))
		collector := instance(t, cin.Table(), cin.Blobs(), quick).Shard("s-test-0")
		if _, err := collector.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if fenced.Fired() != 1 {
			t.Fatal("the collector found no orphan")
		}
		if got := contents(t, f.mem)["k"]; got != value {
			t.Errorf("the value has %d bytes", len(got))
		}
	})
}

// A checkpoint freezes before it moves the pointer, and a collector takes its
// blobs for orphans: it must not move the pointer to them afterwards.
func TestFrozenCheckpointGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, quick)
		collector := instance(t, f.mem.Table(), f.mem.Blobs(), quick).Shard("s-test-0")
		f.faults.Add(onAppend(1, faulty.Do(func(context.Context, *faulty.Call) error {
			_ = f.src.Sleep(context.Background(), 20*time.Second)
			_, err := collector.Collect(context.Background())
			return err
		})))
		rep, err := f.Checkpoint(t.Context(), force())
		if err != nil || !rep.Superseded {
			t.Errorf("the frozen checkpoint reports %+v, %v", rep, err)
		}
		sameContents(t, "afterwards", contents(t, f.mem), map[string]string{"warm": "up"})
	})
}

// The owner's lease was taken over by an instance whose clock runs ahead of
// what MaxClockSkew allows. Once the owner has seen that, it answers no more
// from memory.
func TestOwnerThatSeesItsLeaseTakenStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := &bent{System: clock.NewSystem(), wall: time.Hour}
		p := newPair(t, withLeases, func(c *shard.Config) { c.Clock = ahead })
		put(t, p.a, "k", "1")
		put(t, p.b, "k", "2")
		if _, err := p.a.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, p.b, "k", "3")
		if e, _ := get(t, p.a, "k"); string(e.Value) != "3" {
			t.Errorf("the former owner answers %q", e.Value)
		}
	})
}

// An entry that one instance has seen expired does not come back for another
// whose clock is behind.
func TestExpiredStaysExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := &bent{System: clock.NewSystem(), wall: 400 * time.Millisecond}
		p := newPair(t, withoutLeases, func(c *shard.Config) { c.Clock = ahead })
		write(t, p.a, shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("v"), Expiry: p.time.Now().Milli() + 300})
		if r := write(t, p.b, shard.Write{Op: shard.OpPut, Key: "seen", IfAbsent: true}); r.Status != shard.StatusApplied {
			t.Fatalf("%+v", r)
		}
		if _, ok := get(t, p.b, "k"); ok {
			t.Fatal("the entry is live for the instance ahead")
		}
		if _, ok := get(t, p.a, "k"); ok {
			t.Error("the entry is back for the instance behind")
		}
		if r := write(t, p.a, shard.Write{Op: shard.OpGetOrSet, Key: "k", Value: []byte("new")}); r.Status != shard.StatusApplied {
			t.Errorf("get-or-set finds it live: %+v", r)
		}
	})
}

// A valid blob of another value or checkpoint in the place of the right one.
func TestExchangedBlobsAreLoud(t *testing.T) {
	for _, kind := range []string{"manifest", "value", "leaf"} {
		t.Run(kind, func(t *testing.T) {
			m := memory.New(memory.Options{})
			s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
			if err := s.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			var old []byte
			for i := range 2 {
				put(t, s, fmt.Sprint("k", i), strings.Repeat("large ", 100+i))
				if _, err := s.Checkpoint(t.Context(), shard.CheckpointOptions{Force: true}); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					damage(t, m, kind, func(b []byte) []byte { old = bytes.Clone(b); return b })
				}
			}
			damage(t, m, kind, func([]byte) []byte { return slices.Clone(old) })
			cold := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
			e, ok, err := cold.Read(t.Context(), "k1", shard.ReadOptions{})
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("got %v, %d bytes, %v", ok, len(e.Value), err)
			}
		})
	}
}

// A shard whose destruction was cut short is refused as closed, and the
// destruction can be finished, whatever is gone already.
func TestHalfDestroyedShard(t *testing.T) {
	m := memory.New(memory.Options{})
	in := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	s := instance(t, in.Table(), in.Blobs(), quick).Shard("s-test-0")
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	rnd, model := rand.New(rand.NewPCG(1, 1)), map[string]string{}
	scribble(t, rnd, s, model, 300)
	if _, err := s.Checkpoint(t.Context(), force()); err != nil {
		t.Fatal(err)
	}
	scribble(t, rnd, s, model, 150)
	if err := s.SetClosed(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for {
		in.Clear()
		in.Add(faulty.Rule{When: faulty.Writes, Skip: 1, Do: faulty.Fail(faulty.ErrInjected)})
		err := s.Destroy(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, faulty.ErrInjected) {
			t.Fatal(err)
		}
		cold := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if _, err := cold.View(t.Context(), shard.ReadOptions{}); !errors.Is(err, shard.ErrClosed) {
			t.Fatalf("a half destroyed shard answers %v", err)
		}
	}
	if blobs, rows := stored(t, m); len(blobs)+rows != 0 {
		t.Errorf("left: %d rows, %v", rows, blobs)
	}
}
