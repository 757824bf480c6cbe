package shard_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/trace"
	"github.com/latticekv/lattice/providers/memory"
)

// follower is a hook that keeps what it is told.
type follower struct {
	mu     sync.Mutex
	began  []trace.Append
	serves [][]trace.Ref
	ended  []trace.Appended
	// heard is what Appended was told.
	heard []trace.Appended
}

type nameKey struct{}
type withinKey struct{}

func (f *follower) Ref(ctx context.Context) trace.Ref {
	if name, ok := ctx.Value(nameKey{}).(string); ok {
		return name
	}
	return nil
}

func (f *follower) Append(ctx context.Context, a trace.Append, serves []trace.Ref) (context.Context, trace.AppendSpan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began, f.serves = append(f.began, a), append(f.serves, serves)
	return context.WithValue(ctx, withinKey{}, len(f.began)), f
}

func (f *follower) Phase(ctx context.Context, _ trace.Phase) (context.Context, trace.PhaseSpan) {
	return ctx, nil
}

func (f *follower) End(e trace.Appended) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, e)
}

func (f *follower) hear(_ context.Context, _ trace.Append, e trace.Appended) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, e)
}

// arranged is a table whose appends end as a test arranges it.
type arranged struct {
	store.Table
	// apply, unless nil, replaces Apply of transactions with a log row.
	apply func(ctx context.Context, next func() ([]store.ETag, error)) ([]store.ETag, error)
}

func (a *arranged) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	next := func() ([]store.ETag, error) { return a.Table.Apply(ctx, partition, ops) }
	if a.apply == nil || len(ops) < 2 {
		return next()
	}
	return a.apply(ctx, next)
}

func followed(t *testing.T) (*shard.Shard, *follower, *arranged) {
	f, a := &follower{}, &arranged{}
	s := fresh(t, func(c *shard.Config) {
		a.Table = c.Table
		c.Table, c.Trace, c.Appended = a, f, f.hear
		c.Tuning.Tree = "tree"
	})
	return s, f, a
}

func TestAnAppendIsTold(t *testing.T) {
	s, f, a := followed(t)
	within := 0
	a.apply = func(ctx context.Context, next func() ([]store.ETag, error)) ([]store.ETag, error) {
		within, _ = ctx.Value(withinKey{}).(int)
		return next()
	}
	put(t, s, "key", "value")
	if len(f.began) != 1 || len(f.ended) != 1 || len(f.heard) != 1 {
		t.Fatalf("told of %d begins, %d ends, %d events", len(f.began), len(f.ended), len(f.heard))
	}
	b := f.began[0]
	if b.Tree != "tree" || b.Partition != s.Partition() || b.Records != 1 || b.Requests != 1 || b.Bytes < len("key")+len("value") {
		t.Errorf("began %+v", b)
	}
	if e := f.ended[0]; e.Outcome != trace.Landed || e.Err != nil || e != f.heard[0] {
		t.Errorf("ended %+v, heard %+v", e, f.heard[0])
	}
	if within != 1 {
		t.Error("the storage operation ran outside of the append")
	}
}

func TestTheOutcomeOfAnAppendIsTold(t *testing.T) {
	type apply = func(context.Context, func() ([]store.ETag, error)) ([]store.ETag, error)
	for name, c := range map[string]struct {
		want []trace.Outcome
		make func(t *testing.T, a *arranged, stop func()) apply
	}{
		"a race is lost, and the append made again": {[]trace.Outcome{trace.LostRace, trace.Landed}, func(t *testing.T, a *arranged, _ func()) apply {
			other := instance(t, a.Table, memory.New(memory.Options{}).Blobs(), nil).Shard("s-test-0")
			return func(_ context.Context, next func() ([]store.ETag, error)) ([]store.ETag, error) {
				a.apply = nil
				put(t, other, "other", "value")
				return next()
			}
		}},
		"the storage refuses": {[]trace.Outcome{trace.Failed}, func(*testing.T, *arranged, func()) apply {
			return func(context.Context, func() ([]store.ETag, error)) ([]store.ETag, error) {
				return nil, store.ErrTooLarge
			}
		}},
		"a reply is lost, and time is up": {[]trace.Outcome{trace.Unknown}, func(_ *testing.T, _ *arranged, stop func()) apply {
			return func(context.Context, func() ([]store.ETag, error)) ([]store.ETag, error) {
				stop()
				return nil, store.ErrOutcomeUnknown
			}
		}},
		"a reply is lost, and found to have been good": {[]trace.Outcome{trace.Landed}, func(_ *testing.T, a *arranged, _ func()) apply {
			return func(_ context.Context, next func() ([]store.ETag, error)) ([]store.ETag, error) {
				a.apply = nil
				_, _ = next()
				return nil, store.ErrOutcomeUnknown
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, f, a := followed(t)
			put(t, s, "key", "value")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			a.apply = c.make(t, a, stop)
			_, err := s.Write(ctx, []shard.Write{{Op: shard.OpPut, Key: "key", Value: []byte("two")}})
			if last := c.want[len(c.want)-1]; (err == nil) != (last == trace.Landed) {
				t.Errorf("the write returned %v", err)
			}
			var got []trace.Outcome
			for i, e := range f.ended[1:] {
				got = append(got, e.Outcome)
				if (e.Err == nil) != (e.Outcome == trace.Landed || e.Outcome == trace.LostRace) || e != f.heard[1+i] {
					t.Errorf("%s with the error %v, heard %+v", e.Outcome, e.Err, f.heard[1+i])
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("told %v, want %v", got, c.want)
			}
		})
	}
}

func TestAGroupNamesThoseItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, a := followed(t)
		put(t, s, "key", "value")
		free := make(chan struct{})
		a.apply = func(_ context.Context, next func() ([]store.ETag, error)) ([]store.ETag, error) {
			<-free
			return next()
		}
		var writers sync.WaitGroup
		for _, name := range []string{"first", "second", "", "fourth", "fifth"} {
			ctx := t.Context()
			if name != "" {
				ctx = context.WithValue(ctx, nameKey{}, name)
			}
			writers.Go(func() {
				if _, err := s.Write(ctx, []shard.Write{{Op: shard.OpPut, Key: "key" + name}}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // so they queue in this order
		}
		close(free)
		writers.Wait()
		// The first went alone; the second leads the others, one of whom nobody
		// follows.
		if len(f.serves) != 3 || f.began[2].Requests != 4 || f.began[2].Records != 4 {
			t.Fatalf("appends %+v", f.began)
		}
		if got := f.serves[2]; !slices.Equal(got, []trace.Ref{"fourth", "fifth"}) {
			t.Errorf("the group serves %v besides its leader", got)
		}
	})
}

// allocations of one operation when nobody follows. They are what they were
// before there was anything to follow; a hook may cost, its absence must not.
const (
	allocsOfGet = 0
	allocsOfPut = 18
)

func TestNobodyFollowingCostsNothing(t *testing.T) {
	for name, appended := range map[string]func(context.Context, trace.Append, trace.Appended){
		"nobody": nil, "only figures": func(context.Context, trace.Append, trace.Appended) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t, func(c *shard.Config) {
				c.Leases, c.Appended = true, appended
				c.Tuning.CheckpointTailRows, c.Tuning.CheckpointTailBytes = 1<<30, 1<<40
			})
			put(t, s, "key", "value")
			if n := testing.AllocsPerRun(1000, func() { get(t, s, "key") }); n > allocsOfGet {
				t.Errorf("a get allocates %v times, %d before", n, allocsOfGet)
			}
			writes := []shard.Write{{Op: shard.OpPut, Key: "key", Value: []byte("value")}}
			n := testing.AllocsPerRun(1000, func() {
				if _, err := s.Write(t.Context(), writes); err != nil {
					t.Fatal(err)
				}
			})
			if n > allocsOfPut {
				t.Errorf("a put allocates %v times, %d before", n, allocsOfPut)
			}
		})
	}
}
