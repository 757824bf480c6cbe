package shard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// faultyShard is a shard behind faults, and a second instance without any.
type faultyShard struct {
	*shard.Shard
	faults *faulty.Instance
	other  *shard.Shard
	src    *clock.System
	mem    *memory.Store
}

func newFaulty(t *testing.T, edit func(*shard.Config)) faultyShard {
	t.Helper()
	src := clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src})
	in := faulty.New(mem.Table(), mem.Blobs(), faulty.Options{Clock: src})
	f := faultyShard{
		Shard:  instance(t, in.Table(), in.Blobs(), edit).Shard("s-test-0"),
		other:  instance(t, mem.Table(), mem.Blobs(), nil).Shard("s-test-0"),
		faults: in, src: src, mem: mem,
	}
	if err := f.other.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, f.Shard, "warm", "up")
	return f
}

// rows returns the number of log rows.
func (f faultyShard) rows(t *testing.T) uint64 {
	t.Helper()
	st, err := f.other.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Seq
}

// onAppend is a rule for the next appends.
func onAppend(times int, do faulty.Fault) faulty.Rule {
	return faulty.Rule{When: faulty.Kinds(faulty.Apply), Times: times, Do: do}
}

// An append whose reply is lost, or that is performed twice, is one success;
// one that never arrived is sent again. In every case there is one row.
func TestAmbiguousAppendIsResolved(t *testing.T) {
	faults := map[string]faulty.Fault{
		"the reply is lost":                    faulty.Lose(),
		"the request is lost":                  faulty.Drop(),
		"it is performed twice":                faulty.Duplicate(),
		"it lands late, after it was repeated": faulty.Hold(30 * time.Millisecond),
		"the storage is unavailable":           faulty.Fail(store.ErrUnavailable),
		"the storage is throttled":             faulty.Fail(&store.ThrottledError{RetryAfter: time.Second, Err: faulty.ErrInjected}),
	}
	for name, fault := range faults {
		for _, times := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " x", times), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFaulty(t, nil)
					before := f.rows(t)
					rule := f.faults.Add(onAppend(times, fault))
					res := write(t, f.Shard, shard.Write{Op: shard.OpPut, Key: "a", Value: []byte("1"), IfAbsent: true})
					if res.Status != shard.StatusApplied || rule.Fired() == 0 {
						t.Fatalf("result %+v, fault fired %d times", res, rule.Fired())
					}
					f.faults.Wait()
					if got := f.rows(t) - before; got != 1 {
						t.Fatalf("the append is in the log %d times", got)
					}
					if e, ok := get(t, f.other, "a"); !ok || e.Version != res.Version {
						t.Fatalf("another instance reads %v, version %s instead of %s", ok, e.Version, res.Version)
					}
				})
			})
		}
	}
}

// While a reply is missing another instance appends. The first append must be
// told apart from its loss by its id, not by the head.
func TestAmbiguousAppendBehindAnotherWriter(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, nil)
				f.faults.Add(onAppend(1, func(ctx context.Context, _ *faulty.Instance, _ *faulty.Call, perform func(context.Context) error) error {
					if landed {
						if err := perform(ctx); err != nil {
							t.Error(err)
						}
					}
					put(t, f.other, "a", "theirs")
					return store.ErrOutcomeUnknown
				}))
				res := put(t, f.Shard, "a", "ours")
				e, _ := get(t, f.other, "a")
				if want := map[bool]string{true: "theirs", false: "ours"}[landed]; string(e.Value) != want {
					t.Fatalf("the key holds %q, not %q", e.Value, want)
				}
				if theirs := !landed; res.Existed != theirs {
					t.Fatalf("the put says that the key existed: %v", res.Existed)
				}
			})
		})
	}
}

// An append of unknown outcome that cannot be resolved in time is reported as
// such, and may land until the head moves. Memory must not answer under the
// lease meanwhile, whether it lands before the next read or never does.
func TestUnresolvedAppend(t *testing.T) {
	for _, landsFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("lands before the next read ", landsFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, withLeases)
				f.faults.Add(onAppend(0, faulty.Hold(0)))
				f.faults.Add(faulty.Rule{When: faulty.Reads, Do: faulty.Fail(store.ErrUnavailable)})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := f.Write(ctx, []shard.Write{{Op: shard.OpPut, Key: "a", Value: []byte("1")}})
				if !errors.Is(err, store.ErrOutcomeUnknown) {
					t.Fatalf("got %v, not an unknown outcome", err)
				}
				f.faults.Clear()
				if landsFirst {
					f.faults.Release()
				}
				_, ours := get(t, f.Shard, "a")
				f.faults.Release()
				_, theirs := get(t, f.other, "a")
				_, again := get(t, f.Shard, "a")
				if ours != landsFirst || theirs != ours || again != ours {
					t.Fatalf("the key exists: %v, for another instance %v, then %v", ours, theirs, again)
				}
			})
		})
	}
}

// A group of which the append fails for good: no member hears of success, and
// when they all try again nothing is there twice.
func TestFailedGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, nil)
		f.faults.Add(onAppend(0, faulty.Fail(store.ErrUnavailable)))
		attempt := func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w := shard.Write{Op: shard.OpPut, Key: fmt.Sprint("k", i), Value: []byte("v"), IfAbsent: true}
			res, err := f.Write(ctx, []shard.Write{w})
			if err == nil && res[0].Status != shard.StatusApplied {
				return fmt.Errorf("result %+v", res[0])
			}
			return err
		}
		together(20, func(i int) {
			// Who gives up while the append is under way cannot know.
			if err := attempt(i); !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Errorf("member %d: %v", i, err)
			}
		})
		if v, err := f.other.View(t.Context(), shard.ReadOptions{}); err != nil {
			t.Fatal(err)
		} else if n, _ := v.Count(t.Context(), shard.Bounds{}, nil); n != 1 {
			t.Fatalf("%d keys after a failure", n)
		}
		f.faults.Clear()
		together(20, func(i int) {
			if err := attempt(i); err != nil {
				t.Errorf("second try of member %d: %v", i, err)
			}
		})
	})
}

// A caller that gives up is taken out of the queue, or told that it cannot
// know; the lead it may have been given goes on to the next.
func TestCancelledCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, nil)
		f.faults.Add(faulty.Rule{When: faulty.Kinds(faulty.Apply), Do: faulty.Delay(100*time.Millisecond, 0)})
		together(30, func(i int) {
			ctx := t.Context()
			if i%3 != 0 {
				c, cancel := context.WithTimeout(ctx, time.Duration(i)*10*time.Millisecond)
				defer cancel()
				ctx = c
			}
			_, err := f.Write(ctx, []shard.Write{{Op: shard.OpPut, Key: fmt.Sprint("k", i), Value: []byte("v")}})
			if i%3 == 0 && err != nil {
				t.Errorf("patient caller %d: %v", i, err)
			}
			if err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrOutcomeUnknown) {
				t.Errorf("caller %d: %v is no category", i, err)
			}
		})
		put(t, f.Shard, "after", "all")
	})
}
