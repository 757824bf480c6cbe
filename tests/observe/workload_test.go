package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
)

const (
	hotClients = 6
	// pace is the pause between two requests of a client: the load is to be seen,
	// and not to be felt.
	pace = 4 * time.Millisecond
)

// workload is everything that clients do to the service, until it is stopped.
type workload struct {
	w    *world
	src  clock.Source
	stop context.CancelFunc
	done sync.WaitGroup
}

// begin makes the trees and starts the clients, half of them on each instance.
func (w *world) begin() *workload {
	w.t.Helper()
	l := &workload{w: w, src: clock.NewSystem()}
	ctx, stop := context.WithCancel(w.t.Context())
	l.stop = stop
	w.t.Cleanup(l.end)
	first, second := w.client(w.first, w.admin, true), w.client(w.second, w.admin, true)
	for _, name := range []string{"hot", "mixed", "loading"} {
		if _, err := first.Tree(name).Create(ctx, client.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, _, err := first.Tree("loading").BeginBulkLoad(ctx, "left-open"); err != nil {
		w.t.Fatal(err)
	}
	keys := hotKeys(400)
	for n := range hotClients {
		c := []*client.Client{first, second}[n%2]
		l.goes(ctx, pace, func(ctx context.Context, i int) error { return heat(ctx, c.Tree("hot"), keys[(7*i+n)%len(keys)], i) })
	}
	for _, c := range []*client.Client{first, second} {
		l.goes(ctx, 10*pace, func(ctx context.Context, i int) error { return mix(ctx, c.Tree("mixed"), i) })
	}
	l.goes(ctx, 50*pace, l.refused())
	return l
}

// goes repeats something with pauses. Errors fail the test, unless the storage
// throttles, or has: then the service may ask to try again.
func (l *workload) goes(ctx context.Context, pause time.Duration, f func(context.Context, int) error) {
	l.done.Go(func() {
		for i := 0; l.src.Sleep(ctx, pause) == nil; i++ {
			// What has begun is finished, so that the end leaves no errors.
			if err := f(context.WithoutCancel(ctx), i); err != nil && !(l.w.rough.Load() && unavailable(err)) {
				l.w.t.Errorf("workload: %v", err)
				return
			}
		}
	})
}

// end waits until all have ended.
func (l *workload) end() {
	l.stop()
	l.done.Wait()
}

// hotKeys are keys of the first shard of a tree of four.
func hotKeys(n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("key-%05d", i); keyspace.Slot(key) < keyspace.Slots/4 {
			keys = append(keys, key)
		}
	}
	return keys
}

func heat(ctx context.Context, t *client.Tree, key string, i int) error {
	if i%3 == 0 {
		_, err := t.Get(ctx, key, client.ReadOptions{})
		if errors.Is(err, client.ErrKeyNotFound) {
			err = nil
		}
		return err
	}
	_, err := t.Set(ctx, key, []byte("hot"), client.SetOptions{})
	return err
}

// mix does one thing of each kind.
func mix(ctx context.Context, t *client.Tree, i int) error {
	key := func(n int) string { return fmt.Sprintf("mixed-%03d", (5*i+n)%300) }
	var ops []client.Op
	for n := range 5 {
		ops = append(ops, client.Op{Key: key(n), Value: []byte("together")})
	}
	_, ofBatch := t.Batch(ctx, client.Batch{Ops: ops})
	_, ofAtomic := t.Atomic(ctx, ops, client.AtomicOptions{})
	_, ofMany := t.GetMany(ctx, []string{key(0), key(1)}, client.ReadOptions{})
	_, ofCount := t.Count(ctx, client.Range{Prefix: "mixed-1"}, client.CountOptions{})
	_, ofDelete := t.Delete(ctx, key(4), client.DeleteOptions{})
	_, ofPage := t.Page(ctx, client.Query{Range: client.Range{Prefix: "mixed-"}, Limit: 50})
	err := errors.Join(ofBatch, ofAtomic, ofMany, ofCount, ofDelete, ofPage)
	for e, of := range t.Scan(ctx, client.Query{Range: client.Range{Prefix: "mixed-2"}}) {
		if err = errors.Join(err, of); of != nil || e.Key == "" {
			break
		}
	}
	return err
}

// refused asks for what is refused: each kind of refusal once.
func (l *workload) refused() func(context.Context, int) error {
	w := l.w
	admin, reader := w.client(w.first, w.admin, false).Tree("mixed"), w.client(w.first, w.reader, false).Tree("mixed")
	slow, nobody := w.client(w.first, w.slow, false).Tree("mixed"), w.client(w.second, "lattice_nobody-has-this-key-anywhere-here", false).Tree("mixed")
	return func(ctx context.Context, i int) error {
		_, missing := admin.Get(ctx, "no such key", client.ReadOptions{})
		_, changed := admin.Set(ctx, "mixed-001", nil, client.SetOptions{IfVersion: "0123456789abcdef01234567"})
		_, denied := reader.Set(ctx, "mixed-001", nil, client.SetOptions{})
		_, unknown := nobody.Get(ctx, "mixed-001", client.ReadOptions{})
		err := errors.Join(wants(missing, http.StatusNotFound), wants(changed, http.StatusPreconditionFailed),
			wants(denied, http.StatusForbidden), wants(unknown, http.StatusUnauthorized))
		// The limit is a request a second: one of several is over it.
		over := 0
		for range 3 {
			if _, limited := slow.Get(ctx, "mixed-001", client.ReadOptions{}); wants(limited, http.StatusTooManyRequests) == nil {
				over++
			}
		}
		if over == 0 {
			err = errors.Join(err, errors.New("no request was over the limit"))
		}
		return err
	}
}

// unavailable reports whether an error asks to try again.
func unavailable(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Status == http.StatusServiceUnavailable
}

// wants returns nil for a refusal with the status. While the storage throttles, a
// 503 is one as well.
func wants(err error, status int) error {
	var e *client.Error
	if errors.As(err, &e) && e.Status == status || unavailable(err) {
		return nil
	}
	return fmt.Errorf("%w, want %d", err, status)
}

// snapshot opens a snapshot that stays open, for the figures of snapshots and
// cursors.
func (w *world) snapshot() {
	w.t.Helper()
	_, err := w.client(w.first, w.admin, true).Tree("mixed").OpenCursor(w.t.Context(), client.CursorQuery{Kind: client.CursorKeys, Snapshot: true})
	if err != nil {
		w.t.Fatal(err)
	}
}
