package run

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/leaf"
	"github.com/latticekv/lattice/core/record"
	"github.com/latticekv/lattice/core/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// blobs is a blob store in memory that counts, and fails when told.
type blobs struct {
	mu      sync.Mutex
	data    map[string][]byte
	gets    []string
	written int64
	puts    int
	// fault, unless nil, is asked before a put, whose data is stored all the
	// same if apply.
	fault func(name string) (err error, apply bool)
	// hold, unless nil, keeps reads waiting until it is closed.
	hold    chan struct{}
	waiting int
}

func newBlobs() *blobs { return &blobs{data: map[string][]byte{}} }

func (b *blobs) Put(_ context.Context, name string, data []byte, cond store.PutCondition) (store.ETag, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := store.CheckBlob(name, len(data), cond); err != nil {
		return "", err
	}
	if cond.Mode != store.PutCreate {
		return "", fmt.Errorf("put of %q is not create-only: %w", name, store.ErrInvalid)
	}
	b.puts++
	var err error
	if b.fault != nil {
		var apply bool
		if err, apply = b.fault(name); err != nil && !apply {
			return "", err
		}
	}
	if _, ok := b.data[name]; ok {
		return "", store.ErrExists
	}
	b.data[name] = bytes.Clone(data)
	b.written += int64(len(data))
	return "e", err
}

func (b *blobs) Get(_ context.Context, name string) ([]byte, store.ETag, error) {
	b.await()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gets = append(b.gets, name)
	data, ok := b.data[name]
	if !ok {
		return nil, "", store.ErrNotFound
	}
	return bytes.Clone(data), "e", nil
}

func (b *blobs) await() {
	if b.hold == nil {
		return
	}
	b.mu.Lock()
	b.waiting++
	b.mu.Unlock()
	<-b.hold
}

func (b *blobs) GetRange(context.Context, string, int64, int64) ([]byte, store.ETag, error) {
	return nil, "", store.ErrInvalid
}

func (b *blobs) List(context.Context, string, string) (store.BlobPage, error) {
	return store.BlobPage{}, store.ErrInvalid
}

func (b *blobs) Delete(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.data[name]; !ok {
		return store.ErrNotFound
	}
	delete(b.data, name)
	return nil
}

// takeGets returns the names read since it was called last.
func (b *blobs) takeGets() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	gets := b.gets
	b.gets = nil
	return gets
}

// manual is a clock that moves when told, or when slept on.
type manual struct {
	mu  sync.Mutex
	now clock.Instant
	rnd uint64
}

func newManual() *manual {
	return &manual{now: clock.Instant{Wall: 1_800_000_000_000 * int64(time.Millisecond)}}
}

func (m *manual) Now() clock.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *manual) Sleep(ctx context.Context, d time.Duration) error {
	m.advance(d)
	return context.Cause(ctx)
}

func (m *manual) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Wall += int64(d)
	m.now.Mono += d
}

func (m *manual) Uint64() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rnd = m.rnd*6364136223846793005 + 1442695040888963407
	return m.rnd >> 11
}

// newStore returns a store over blobs with small leaves.
func newStore(b store.BlobStore, opts Options) (*Store, *manual) {
	n := 0
	var mu sync.Mutex
	clk := newManual()
	return &Store{
		Blobs: b, Cache: leaf.NewCache(64 << 20), Clock: clk, Prefix: "t/0/", Options: opts,
		NewName: func(kind string) string {
			mu.Lock()
			defer mu.Unlock()
			n++
			return fmt.Sprintf("%s/%06d", kind, n)
		},
	}, clk
}

// fresh returns a store over the same blobs that remembers nothing.
func fresh(s *Store) *Store {
	return &Store{Blobs: s.Blobs, Cache: leaf.NewCache(64 << 20), Clock: s.Clock, Prefix: s.Prefix, NewName: s.NewName, Options: s.Options}
}

// put returns an entry written at a logical time.
func put(key, value string, at int) record.Entry {
	return record.Entry{Key: key, Value: []byte(value), Version: clock.Version{Time: clock.At(1_800_000_000_000) + clock.HLC(at)}}
}

// dead returns a tombstone of a logical time.
func dead(key string, at int) record.Entry {
	return record.Entry{Key: key, Tombstone: true, Version: clock.Version{Time: clock.At(1_800_000_000_000) + clock.HLC(at)}}
}

// numbered returns entries with keys k<i> for i in [from, to) by step.
func numbered(from, to, step, at int) []record.Entry {
	var out []record.Entry
	for i := from; i < to; i += step {
		out = append(out, put(fmt.Sprintf("k%06d", i), fmt.Sprintf("value %d at %d", i, at), at))
	}
	return out
}

func mustFlush(t testing.TB, s *Store, set *Set, entries []record.Entry) *Set {
	t.Helper()
	next, err := s.Flush(t.Context(), set, set.Seq()+1, Slice(entries))
	if err != nil {
		t.Fatalf("flush: %v", err)
	}
	return next
}

// mustMerge merges until nothing is due.
func mustMerge(t testing.TB, s *Store, set *Set, p Policy, b Budget) *Set {
	t.Helper()
	for range 20_000 {
		next, more, err := s.MergeStep(t.Context(), set, p, b)
		if err != nil {
			t.Fatalf("merge: %v", err)
		}
		set = next
		if !more {
			return set
		}
	}
	t.Fatal("merging does not end")
	return nil
}

func mustSave(t testing.TB, s *Store, set *Set) *Set {
	t.Helper()
	saved, err := s.Save(t.Context(), s.Empty(), set, 0)
	if err != nil {
		t.Fatalf("save: %v", err)
	}
	return saved
}

func mustOpen(t testing.TB, s *Store, name string) *Set {
	t.Helper()
	set, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return set
}

// contents returns what an iterator yields.
func contents(t testing.TB, it Iterator) []record.Entry {
	t.Helper()
	var out []record.Entry
	for it.Next(t.Context()) {
		out = append(out, *it.Entry())
	}
	if err := it.Err(); err != nil {
		t.Fatalf("iterate: %v", err)
	}
	return out
}

// live returns keys and values of the entries that are no tombstones.
func live(entries []record.Entry) map[string]string {
	out := map[string]string{}
	for _, e := range entries {
		if !e.Tombstone {
			out[e.Key] = string(e.Value)
		}
	}
	return out
}

// check fails unless the view holds exactly the entries of the model, by every
// way of reading; tombstones count as absent.
func check(t testing.TB, set *Set, model map[string]string) {
	t.Helper()
	forward := contents(t, set.Iter(Bounds{}, false))
	if got := live(forward); !maps.Equal(got, model) {
		t.Fatalf("view holds %d entries, want %d", len(got), len(model))
	}
	if !slices.IsSortedFunc(forward, func(a, b record.Entry) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) }) {
		t.Fatal("forward iteration is not ascending")
	}
	back := contents(t, set.Iter(Bounds{}, true))
	slices.Reverse(back)
	if !slices.EqualFunc(forward, back, func(a, b record.Entry) bool { return a.Key == b.Key && a.Version == b.Version }) {
		t.Fatalf("reverse iteration yields %d entries, forward %d", len(back), len(forward))
	}
	for key, value := range model {
		e, ok, err := set.Get(t.Context(), key)
		if err != nil || !ok || e.Tombstone || string(e.Value) != value {
			t.Fatalf("get %q: %+v, %v, %v, want %q", key, e, ok, err, value)
		}
	}
	checkShape(t, set)
}

// checkShape fails unless the view satisfies what a manifest must, and every
// blob that it names exists.
func checkShape(t testing.TB, set *Set) {
	t.Helper()
	if err := checkRuns(set.runs); err != nil {
		t.Fatalf("order of runs: %v", err)
	}
	for i, r := range set.runs {
		if !ascending(r.Leaves) {
			t.Fatalf("leaves of run %d overlap", i)
		}
		if r.settled > len(r.Leaves) {
			t.Fatalf("run %d has %d settled leaves of %d", i, r.settled, len(r.Leaves))
		}
	}
	b := set.store.Blobs.(*blobs)
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range set.Blobs() {
		if _, ok := b.data[name]; !ok {
			t.Fatalf("view names %q, which does not exist", name)
		}
	}
}

func TestPutRetriesWhatMayHelp(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name  string
		err   error
		apply bool
		times int
		want  error
		puts  int
	}{
		{"lost reply, applied", store.ErrOutcomeUnknown, true, 1, nil, 2},
		{"lost reply, not applied", store.ErrOutcomeUnknown, false, 3, nil, 4},
		{"throttled", &store.ThrottledError{RetryAfter: time.Second, Err: boom}, false, 1, nil, 2},
		{"unavailable for long", store.ErrUnavailable, false, 100, store.ErrUnavailable, 5},
		{"refused", store.ErrTooLarge, false, 100, store.ErrTooLarge, 1},
		{"own echo", store.ErrExists, true, 1, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBlobs()
			s, _ := newStore(b, Options{})
			left := tc.times
			b.fault = func(string) (error, bool) {
				if left == 0 {
					return nil, false
				}
				left--
				return tc.err, tc.apply
			}
			err := s.put(t.Context(), "t/0/leaf/1", []byte("x"))
			if !errors.Is(err, tc.want) || b.puts != tc.puts {
				t.Errorf("error %v after %d puts, want %v after %d", err, b.puts, tc.want, tc.puts)
			}
			if _, ok := b.data["t/0/leaf/1"]; ok != (err == nil) {
				t.Errorf("stored: %v, error %v", ok, err)
			}
		})
	}
}
