package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/memory"
)

// front stands before two instances over one store, which take turns, and loses
// replies to calls that it has handed on.
type front struct {
	instances [2]http.Handler
	turn      atomic.Int64
	// lose says that the reply to a call, which has been carried out, is lost.
	lose atomic.Pointer[func(r *http.Request) bool]
}

// loses sets what is lost from now on.
func (f *front) loses(lose func(r *http.Request) bool) { f.lose.Store(&lose) }

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	instance := f.instances[f.turn.Add(1)%2]
	if lose := f.lose.Load(); lose == nil || !(*lose)(r) {
		instance.ServeHTTP(w, r)
		return
	}
	instance.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

func newFront(t *testing.T) (*front, *client.Client) {
	t.Helper()
	m := memory.New(memory.Options{})
	f := &front{}
	for i := range f.instances {
		svc, err := service.New(service.Config{Table: m.Table(), Blobs: m.Blobs(), Options: options.Default(), Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		f.instances[i] = svc.Handler()
	}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, client.Options{Retry: client.RetryPolicy{Base: time.Millisecond}})
	must(t, err)
	t.Cleanup(c.CloseIdle)
	return f, c
}

func accounts() (ops []client.Op, keys []string) {
	for i := range 16 {
		key := fmt.Sprintf("account/%02d", i)
		ops, keys = append(ops, client.Op{Key: key, Value: []byte("0")}), append(keys, key)
	}
	return ops, keys
}

// TestAtomicBatchIsDoneOnceThoughRepliesAreLost repeats a batch over several
// shards through another instance: it inherits the outcome, and does not write
// over what came after.
func TestAtomicBatchIsDoneOnceThoughRepliesAreLost(t *testing.T) {
	f, c := newFront(t)
	ctx, tree := t.Context(), c.Tree("t")
	_, err := tree.Create(ctx, client.CreateOptions{ShardCount: 8})
	must(t, err)
	ops, keys := accounts()
	for i := range ops {
		ops[i].IfAbsent = true
	}
	var lost atomic.Int64
	f.loses(func(r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/batch") {
			return false
		}
		n := lost.Add(1)
		if n == 3 {
			// Somebody has seen the batch and gone on from there.
			_, err := tree.Set(context.WithoutCancel(ctx), keys[5], []byte("later"), client.SetOptions{})
			if err != nil {
				t.Error(err)
			}
		}
		return n <= 3
	})
	results, err := tree.Atomic(ctx, ops, client.AtomicOptions{})
	must(t, err)
	if n := lost.Load(); n != 4 {
		t.Fatalf("%d attempts", n)
	}
	es, err := tree.GetMany(ctx, keys, client.ReadOptions{})
	if err != nil || len(es) != 16 {
		t.Fatalf("%d entries, %v", len(es), err)
	}
	for i, e := range es {
		if later := i == 5; results[i].Existed || (e.Version == results[i].Version) == later || (string(e.Value) == "later") != later {
			t.Errorf("%s = %q, version %s; result %+v", e.Key, e.Value, e.Version, results[i])
		}
	}
	// Without a name the outcome of a batch with conditions stays unknown.
	lost.Store(0)
	_, err = tree.Batch(ctx, client.Batch{Ops: []client.Op{{Key: "x", IfAbsent: true}, {Key: "y", IfAbsent: true}}, Atomic: true})
	if n := lost.Load(); err == nil || n != 1 {
		t.Errorf("%d attempts, %v", n, err)
	}
}

// TestCursorNeitherSkipsNorRepeatsThoughRepliesAreLost loses two of three
// replies, and changes the tree meanwhile.
func TestCursorNeitherSkipsNorRepeatsThoughRepliesAreLost(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprint("snapshot ", snapshot), func(t *testing.T) {
			f, c := newFront(t)
			ctx, tree := t.Context(), filled(t, c, 200)
			cur := openCursor(t, tree, client.CursorQuery{Kind: client.CursorEntries, Snapshot: snapshot})
			var calls atomic.Int64
			f.loses(func(r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/next") {
					return false
				}
				n := calls.Add(1)
				if n%3 == 1 {
					_, err := tree.Set(context.WithoutCancel(ctx), fmt.Sprintf("k%03d+", n*2), []byte("x"), client.SetOptions{})
					if err != nil {
						t.Error(err)
					}
				}
				return n%3 != 0
			})
			var stable, all []string
			for _, k := range cursorKeys(t, cur, 17) {
				if all = append(all, k); !strings.HasSuffix(k, "+") {
					stable = append(stable, k)
				}
			}
			if !slices.Equal(stable, numberedKeys(0, 200)) {
				t.Errorf("the cursor gave %q", stable)
			}
			if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) || snapshot && len(all) != 200 {
				t.Errorf("out of order, twice, or not of the snapshot: %q", all)
			}
			if n := calls.Load(); n != 3*12 {
				t.Errorf("%d calls for 12 pages", n)
			}
			must(t, cur.Close(ctx))
		})
	}
}

// TestSnapshotCursorShowsOneRoundWhileWritesGoOn takes snapshots of keys on eight
// shards that atomic batches rewrite all the time.
func TestSnapshotCursorShowsOneRoundWhileWritesGoOn(t *testing.T) {
	_, c := newFront(t)
	ctx, tree := t.Context(), c.Tree("t")
	_, err := tree.Create(ctx, client.CreateOptions{ShardCount: 8})
	must(t, err)
	ops, keys := accounts()
	_, err = tree.Atomic(ctx, ops, client.AtomicOptions{})
	must(t, err)
	rounds, done, stopped := make(chan struct{}), make(chan struct{}), sync.WaitGroup{}
	stopped.Go(func() {
		for n := 1; ; n++ {
			for i := range ops {
				ops[i].Value = []byte(fmt.Sprint(n))
			}
			if _, err := tree.Batch(ctx, client.Batch{Ops: ops, Atomic: true}); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			case rounds <- struct{}{}:
			default:
			}
		}
	})
	defer stopped.Wait()
	defer close(done)
	for range 10 {
		cur := openCursor(t, tree, client.CursorQuery{Kind: client.CursorEntries, Snapshot: true})
		var got []string
		round := ""
		for e, err := range cur.All(ctx, 3) {
			must(t, err)
			if got = append(got, e.Key); round != "" && round != string(e.Value) {
				t.Fatalf("%s is of round %s, those before of %s", e.Key, e.Value, round)
			}
			if round = string(e.Value); len(got)%3 == 0 {
				<-rounds // a round is written between any two pages
			}
		}
		if !slices.Equal(got, keys) {
			t.Fatalf("the snapshot has %q", got)
		}
		must(t, cur.Close(ctx))
	}
}
