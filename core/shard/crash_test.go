package shard_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// life is a scripted life of a shard: every kind of operation there is, some of
// them while nothing else happens. It stops at the first error, and keeps what
// was acknowledged and what was under way.
type life struct {
	s     *shard.Shard
	src   clock.Source
	acked map[string]string
	// open is the write whose outcome the script did not learn, "" if none;
	// maybe is the value it would leave.
	open, maybe string
	err         error
}

func (l *life) put(ctx context.Context, key, value string) {
	l.write(ctx, shard.Write{Op: shard.OpPut, Key: key, Value: []byte(value)}, value)
}

func (l *life) remove(ctx context.Context, key string) {
	l.write(ctx, shard.Write{Op: shard.OpDelete, Key: key}, "")
}

func (l *life) write(ctx context.Context, w shard.Write, leaves string) {
	if l.err != nil {
		return
	}
	l.open, l.maybe = w.Key, leaves
	if _, l.err = l.s.Write(ctx, []shard.Write{w}); l.err != nil {
		return
	}
	l.open = ""
	if leaves == "" {
		delete(l.acked, w.Key)
	} else {
		l.acked[w.Key] = leaves
	}
}

func (l *life) tick(ctx context.Context, wait time.Duration) {
	if l.err != nil {
		return
	}
	if _, l.err = l.s.Checkpoint(ctx, force()); l.err == nil {
		_, l.err = l.s.Collect(ctx)
	}
	if l.err == nil {
		l.err = l.src.Sleep(ctx, wait)
	}
}

func (l *life) run(ctx context.Context) {
	for round := range 4 {
		for i := range 6 {
			l.put(ctx, fmt.Sprint("key", i), fmt.Sprint("round ", round))
		}
		l.put(ctx, fmt.Sprint("large", round%2), strings.Repeat("large ", 50+round))
		l.remove(ctx, "key3")
		l.tick(ctx, 12*time.Second)
		l.put(ctx, "key4", "after")
	}
	l.tick(ctx, 0)
}

// A shard is killed at every single storage operation of its life, before the
// operation had its effect and after, and recovered by another instance:
// everything acknowledged is there, nothing else is, and life goes on.
func TestCrashAtEveryOperation(t *testing.T) {
	points := 0
	for n := uint64(1); ; n++ {
		reached := false
		for _, point := range faulty.Points {
			synctest.Test(t, func(t *testing.T) {
				if crash(t, n, point) {
					reached = true
					points++
				}
			})
			if t.Failed() {
				t.Fatalf("killed at operation %d, %v its effect", n, point)
			}
		}
		if !reached {
			break
		}
	}
	t.Logf("%d crash points", points)
	if points < 150 {
		t.Errorf("only %d crash points: the script does too little", points)
	}
}

// crash lives until the n-th operation and reports whether there was one.
func crash(t *testing.T, n uint64, point faulty.Point) bool {
	src := clock.NewSystem()
	m := memory.New(memory.Options{Clock: src})
	in := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: src})
	if err := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0").Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	in.KillAt(n, point)
	ctx, cancel := in.Context(t.Context())
	defer cancel()
	l := &life{s: instance(t, in.Table(), in.Blobs(), quick).Shard("s-test-0"), src: src, acked: map[string]string{}}
	l.run(ctx)
	if !in.Killed() {
		if l.err != nil {
			t.Fatalf("nobody was killed: %v", l.err)
		}
		return false
	}
	got := contents(t, m)
	want := maps.Clone(l.acked)
	if l.open != "" && got[l.open] != want[l.open] {
		// The write under way may have been logged before the end.
		delete(want, l.open)
		if l.maybe != "" {
			want[l.open] = l.maybe
		}
	}
	sameContents(t, "after the crash", got, want)
	heir := &life{s: instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0"), src: src, acked: want}
	_ = src.Sleep(t.Context(), time.Minute)
	heir.run(t.Context())
	if heir.err != nil {
		t.Fatalf("life after the crash: %v", heir.err)
	}
	_ = src.Sleep(t.Context(), time.Minute)
	heir.tick(t.Context(), 0)
	sameContents(t, "life after the crash", contents(t, m), heir.acked)
	if blobs, _ := stored(t, m); len(blobs) > 20 {
		t.Errorf("%d blobs remain: orphans are not collected: %v", len(blobs), blobs)
	}
	return true
}
