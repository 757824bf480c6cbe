package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/client/clienttest"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/durable/durabletest"
	"github.com/latticekv/lattice/migrate/keys"
	"github.com/latticekv/lattice/migrate/ledger"
	"github.com/latticekv/lattice/migrate/mapping"
	"github.com/latticekv/lattice/migrate/source"
	"github.com/latticekv/lattice/migrate/source/sourcetest"
	"github.com/latticekv/lattice/migrate/spool"
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

var (
	epoch     = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	errKilled = errors.New("killed")
)

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

// world is a source with a tree that was migrated from it.
type world struct {
	t      testing.TB
	clock  *clock
	store  *sourcetest.Store
	server *clienttest.Server
	tree   *client.Tree
	// dir is the folder of the migration.
	dir string
}

// newWorld migrates n rows, in a way that the ledger knows of.
func newWorld(t testing.TB, n int) *world {
	t.Helper()
	w := &world{t: t, clock: &clock{at: epoch}, server: clienttest.New(), dir: durabletest.Folder(t)}
	w.store = &sourcetest.Store{Name: "store", PageSize: 7, Now: w.clock.now}
	w.server.Now = w.clock.now
	c, err := client.New("http://tree.test", client.Options{HTTPClient: &http.Client{Transport: inProcess{w.server}}, Retry: client.RetryPolicy{Max: -1}})
	if err != nil {
		t.Fatal(err)
	}
	w.tree = c.Tree("t")
	if _, err := w.tree.Create(context.Background(), client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w.row(fmt.Sprintf("k/%04d", (i*37)%n), fmt.Sprint("value ", i), 0)
	}
	w.migrated(w.dir)
	return w
}

// row puts a record into the source and its entry into the tree.
func (w *world) row(id, value string, ttl time.Duration) {
	w.t.Helper()
	w.has(id, value, ttl)
	w.put(id, value, ttl)
}

// has puts a record into the source alone.
func (w *world) has(id, value string, ttl time.Duration) {
	r := sourcetest.Row{ID: id, Payload: []byte(value)}
	if ttl != 0 {
		r.Expiry = epoch.Add(ttl)
	}
	w.store.Put(r)
}

// put writes to the tree alone, as somebody else would.
func (w *world) put(key, value string, ttl time.Duration) {
	w.t.Helper()
	if _, err := w.tree.Set(context.Background(), key, []byte(value), client.SetOptions{TTL: ttl}); err != nil {
		w.t.Fatal(err)
	}
}

// migrated records what the tree holds as written by the migration.
func (w *world) migrated(path string) {
	w.t.Helper()
	l, err := ledger.Append(w.folder(path, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	for k, e := range w.live() {
		if err := l.Add(k, e.Version); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := l.Sync(); err != nil {
		w.t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) folder(path string, step durable.Step) *durable.Dir {
	d, err := durable.Open(path, step)
	if err != nil {
		panic(err)
	}
	return d
}

// live reads the tree.
func (w *world) live() map[string]client.Entry {
	out := map[string]client.Entry{}
	for e, err := range w.tree.Scan(context.Background(), client.Query{}) {
		if err != nil {
			panic(err)
		}
		out[e.Key] = e
	}
	return out
}

// values are the tree's keys and values.
func (w *world) values() map[string]string {
	out := map[string]string{}
	for k, e := range w.live() {
		out[k] = string(e.Value)
	}
	return out
}

// records are what the tree should hold, in the end.
func (w *world) records() map[string]string {
	out := map[string]string{}
	for p, err := range w.store.Source().Read(context.Background(), nil) {
		if err != nil {
			panic(err)
		}
		for _, r := range p.Records {
			id, _ := r.Get("id")
			out[id.(string)] = string(r.Payload)
		}
	}
	return out
}

func (w *world) same() error {
	if got, want := w.values(), w.records(); !maps.Equal(got, want) {
		var lines []string
		for k := range got {
			if v, ok := want[k]; !ok || v != got[k] {
				lines = append(lines, fmt.Sprintf("tree %s=%q", k, got[k]))
			}
		}
		for k := range want {
			if v, ok := got[k]; !ok || v != want[k] {
				lines = append(lines, fmt.Sprintf("source %s=%q", k, want[k]))
			}
		}
		slices.Sort(lines)
		return errors.New("tree and source differ: " + strings.Join(lines, ", "))
	}
	return nil
}

// mapper makes entries; the key is the id.
func (w *world) mapper() func(*source.Record, *spool.Entry) error {
	tpl, err := keys.Parse("{id:raw}", nil, keys.Options{})
	if err != nil {
		panic(err)
	}
	m, err := mapping.New(mapping.Options{Template: tpl, Now: w.clock.now})
	if err != nil {
		panic(err)
	}
	return m.Map
}

// options of a pass since a cut, or one that compares if it is empty.
func (w *world) options(path string, step durable.Step, since string) Options {
	o := Options{
		Dir: w.folder(path, step), Source: w.store.Source(), Tree: w.tree, Target: "t at test", Map: w.mapper(), Mapping: "m", Since: since, Now: w.clock.now,
		Spool: spool.Options{SortMemory: 1 << 20},
	}
	if since != "" {
		o.Source = w.store.Changing()
	}
	info, err := o.Source.Inspect(context.Background())
	if err != nil {
		panic(err)
	}
	o.Info = info
	return o
}

// cut is the present moment of the source.
func (w *world) cut() string { return w.options(w.dir, nil, "0").Info.Cut }

// pass runs one to its end in the folder of the migration.
func (w *world) pass(since string, change func(*Options)) Report {
	w.t.Helper()
	o := w.options(w.dir, nil, since)
	if change != nil {
		change(&o)
	}
	r, err := Run(context.Background(), o)
	if err != nil || !r.Complete {
		w.t.Fatal(err)
	}
	return r
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
func killedAfter(at int) durable.Step {
	n := 0
	return func(string) error {
		if n++; n > at {
			return errKilled
		}
		return nil
	}
}
