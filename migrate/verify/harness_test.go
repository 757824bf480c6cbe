package verify

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
)

// inProcess carries requests to a handler without a socket.
type inProcess struct{ h http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

var epoch = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// world is a tree and a list of source entries.
type world struct {
	t      testing.TB
	server *clienttest.Server
	tree   *client.Tree
	clock  *clock
	items  []Item
	// rangeSize is for tests that are killed.
	rangeSize int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, server: clienttest.New(), clock: &clock{at: epoch}}
	w.server.Now = w.clock.now
	c, err := client.New("http://tree.test", client.Options{HTTPClient: &http.Client{Transport: inProcess{w.server}}, Retry: client.RetryPolicy{Max: -1}})
	if err != nil {
		t.Fatal(err)
	}
	w.tree = c.Tree("t")
	if _, err := w.tree.Create(context.Background(), client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// put writes to the tree; ttl 0 is for ever.
func (w *world) put(key, value string, ttl time.Duration) {
	w.t.Helper()
	if _, err := w.tree.Set(context.Background(), key, []byte(value), client.SetOptions{TTL: ttl}); err != nil {
		w.t.Fatal(err)
	}
}

// has adds to the source.
func (w *world) has(key, value string, ttl time.Duration) {
	it := NewItem(key, []byte(value), time.Time{}, "row "+key)
	if ttl != 0 {
		it.Expiry = epoch.Add(ttl)
	}
	at, _ := slices.BinarySearchFunc(w.items, key, func(it Item, k string) int { return bytes.Compare([]byte(it.Key), []byte(k)) })
	w.items = slices.Insert(w.items, at, it)
}

func (w *world) alike(key, value string) {
	w.put(key, value, 0)
	w.has(key, value, 0)
}

// entries yields the source.
func (w *world) entries(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for _, it := range w.items {
			if err := ctx.Err(); err != nil {
				yield(Item{}, err)
				return
			}
			if (after == "" || it.Key > after) && !yield(it, nil) {
				return
			}
		}
	}
}

func keysOf(keys ...string) Keys {
	return func(_ context.Context, after string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for _, k := range keys {
				if (after == "" || k > after) && !yield(k, nil) {
					return
				}
			}
		}
	}
}

func folder(t testing.TB, path string, step durable.Step) *durable.Dir {
	t.Helper()
	d, err := durable.Open(path, step)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// verify runs to the end in a folder of its own.
func (w *world) verify(o Options) Report {
	w.t.Helper()
	if o.Dir == nil {
		o.Dir = folder(w.t, durabletest.Folder(w.t), nil)
	}
	o.Now = w.clock.now
	r, err := Against(context.Background(), w.entries, w.tree, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// found lists the differences as "class key".
func found(r Report) []string {
	out := []string{}
	for _, d := range r.First {
		out = append(out, fmt.Sprintf("%s %s", d.Class, d.Key))
	}
	slices.Sort(out)
	return out
}

func wantFound(t testing.TB, r Report, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if int64(len(want)) != r.Total.Differs() {
		t.Errorf("%d differences, want %d", r.Total.Differs(), len(want))
	}
}

// beforeBatchGet calls f before each request that reads values by key.
func beforeBatchGet(f func()) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && path.Base(r.URL.Path) == "batch-get" {
			f()
		}
		return false
	}
}

// atEach calls f for every point, many at a time: killed runs wait for disks.
func atEach(t *testing.T, points int, f func(at int, path string) error) {
	t.Helper()
	dir := durabletest.Folder(t)
	var g errgroup.Group
	g.SetLimit(24)
	for at := range points {
		g.Go(func() error {
			if err := f(at, filepath.Join(dir, fmt.Sprint(at))); err != nil {
				return fmt.Errorf("point %d of %d: %w", at, points, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// killedAfter refuses every change of the disk after a number of them.
func killedAfter(at int) func(string) error {
	n := 0
	return func(string) error {
		if n++; n > at {
			return errKilled
		}
		return nil
	}
}
