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
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/core/shard"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// contents reads all of a shard through a fresh instance.
func contents(t *testing.T, m *memory.Store) map[string]string {
	t.Helper()
	s := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0")
	return contentsOf(t, s)
}

func contentsOf(t *testing.T, s *shard.Shard) map[string]string {
	t.Helper()
	v, err := s.View(t.Context(), shard.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, last := map[string]string{}, ""
	c := v.Entries(shard.Bounds{}, false)
	for c.Next(t.Context()) {
		e := *c.Entry()
		if e.Key <= last {
			t.Fatalf("key %q after %q", e.Key, last)
		}
		value, err := v.Load(t.Context(), &e)
		if err != nil {
			t.Fatal(err)
		}
		got[e.Key], last = string(value), e.Key
	}
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

func sameContents(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: key %q holds %q, not %q", when, k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: key %q should not exist", when, k)
		}
	}
	t.FailNow()
}

// quick makes checkpoints, merges and collections happen within a short test.
func quick(c *shard.Config) {
	c.LeafTargetBytes = 1 << 10
	c.WalGracePeriod, c.BlobGracePeriod = time.Second, 10*time.Second
	c.Tuning.InlineValueBytes = 64
	c.Tuning.TombstoneGracePeriod = 30 * time.Second
}

func force() shard.CheckpointOptions {
	return shard.CheckpointOptions{Force: true, Budget: time.Minute, MergeBytes: 2 << 10}
}

// scribble makes n random writes to a shard and to a model of it.
func scribble(t *testing.T, rnd *rand.Rand, s *shard.Shard, model map[string]string, n int) {
	t.Helper()
	for range n {
		key := fmt.Sprintf("key-%03d", rnd.IntN(200))
		if rnd.IntN(4) == 0 {
			r := write(t, s, shard.Write{Op: shard.OpDelete, Key: key})
			if _, ok := model[key]; ok != r.Existed {
				t.Fatalf("delete of %s says existed %v", key, r.Existed)
			}
			delete(model, key)
			continue
		}
		value := strings.Repeat(fmt.Sprint(rnd.IntN(1000)), 1+rnd.IntN(40))
		put(t, s, key, value)
		model[key] = value
	}
}

func TestCheckpointsMergesAndCollectionKeepEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(1, 2)), map[string]string{}
		var collected shard.CollectReport
		for round := range 60 {
			scribble(t, rnd, s, model, 40)
			if _, err := s.Checkpoint(t.Context(), force()); err != nil {
				t.Fatal(err)
			}
			rep, err := s.Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			collected.Rows, collected.Blobs = collected.Rows+rep.Rows, collected.Blobs+rep.Blobs
			_ = src.Sleep(t.Context(), 3*time.Second)
			when := fmt.Sprint("round ", round)
			sameContents(t, when, contentsOf(t, s), model)
			sameContents(t, when+", cold", contents(t, m), model)
		}
		if collected.Rows < 1000 || collected.Blobs < 100 {
			t.Errorf("collected only %+v", collected)
		}
		st, err := s.Stats(t.Context())
		if err != nil || st.Live != int64(len(model)) {
			t.Errorf("estimate of %d live entries for %d (%v)", st.Live, len(model), err)
		}
	})
}

// Storage does not grow without end under overwrites: what is replaced goes.
func TestStorageIsReclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(3, 4)), map[string]string{}
		for range 30 {
			scribble(t, rnd, s, model, 100)
			maintain(t, s, src)
		}
		for key := range model {
			write(t, s, shard.Write{Op: shard.OpDelete, Key: key})
		}
		for range 20 {
			maintain(t, s, src)
		}
		blobs, rows := stored(t, m)
		// Manifests that were replaced within their grace stay.
		if len(blobs) > 4 || rows > 60 {
			t.Errorf("an emptied shard still has %d rows and the blobs %v", rows, blobs)
		}
	})
}

func maintain(t *testing.T, s *shard.Shard, src clock.Source) {
	t.Helper()
	if _, err := s.Checkpoint(t.Context(), force()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = src.Sleep(t.Context(), 5*time.Second)
}

// stored lists the blobs and counts the rows of the shard.
func stored(t *testing.T, m *memory.Store) (blobs []string, rows int) {
	t.Helper()
	for marker := ""; ; {
		page, err := m.Blobs().List(t.Context(), "s-test-0/", marker)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Blobs {
			blobs = append(blobs, b.Name)
		}
		if marker = page.Next; marker == "" {
			break
		}
	}
	page, err := m.Table().Range(t.Context(), "s-test-0", store.RangeQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return blobs, len(page.Rows)
}

// Rows outlive their checkpoint by the grace period: who is a little behind
// follows the log and need not load the shard anew.
func TestRowsAreKeptForTheirGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			put(t, s, fmt.Sprint("k", i), "v")
		}
		_ = src.Sleep(t.Context(), 500*time.Millisecond)
		for _, wait := range []time.Duration{0, 600 * time.Millisecond} {
			_ = src.Sleep(t.Context(), wait)
			if _, err := s.Checkpoint(t.Context(), force()); err != nil {
				t.Fatal(err)
			}
			rep, err := s.Collect(t.Context())
			if want := map[bool]int{true: 10}[wait > 0]; err != nil || rep.Rows != want {
				t.Errorf("after %s more: %+v, %v", wait, rep, err)
			}
		}
	})
}

// Two instances checkpoint at once: one pointer wins, nothing is lost, and what
// the loser wrote is not left behind.
func TestTwoInstancesCheckpointAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		in := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: src})
		in.Add(faulty.Rule{When: faulty.Any, Do: faulty.Delay(2*time.Millisecond, 2*time.Millisecond)})
		var shards []*shard.Shard
		for range 3 {
			shards = append(shards, instance(t, in.Table(), in.Blobs(), quick).Shard("s-test-0"))
		}
		if err := shards[0].Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(5, 6)), map[string]string{}
		superseded := 0
		for range 10 {
			scribble(t, rnd, shards[rnd.IntN(3)], model, 30)
			reports := make([]shard.CheckpointReport, 3)
			together(3, func(i int) {
				var err error
				if reports[i], err = shards[i].Checkpoint(t.Context(), force()); err != nil {
					t.Error(err)
				}
			})
			for _, r := range reports {
				if r.Superseded {
					superseded++
				}
			}
			sameContents(t, "after a race", contents(t, m), model)
		}
		if superseded == 0 {
			t.Error("no checkpoint was ever superseded: the test tests nothing")
		}
	})
}

// A cold instance has read the head and not yet the manifest when that is
// replaced and collected: it goes on with the new one.
func TestOpenWhileTheManifestIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(7, 8)), map[string]string{}
		scribble(t, rnd, s, model, 100)
		maintain(t, s, src)
		in := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: src})
		overtaken := in.Add(faulty.Rule{When: faulty.Kinds(faulty.BlobGet), Times: 1, Do: faulty.Do(func(context.Context, *faulty.Call) error {
			scribble(t, rnd, s, model, 100)
			for range 4 {
				maintain(t, s, src)
			}
			return nil
		})})
		cold := instance(t, in.Table(), in.Blobs(), quick).Shard("s-test-0")
		sameContents(t, "overtaken", contentsOf(t, cold), model)
		if overtaken.Fired() != 1 {
			t.Error("the cold instance never read a blob")
		}
	})
}

// A reader with a warm but old view meets blobs that are gone.
func TestReaderOutlivesItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		noCache := func(c *shard.Config) { quick(c); c.CacheBytes = 0 }
		s := instance(t, m.Table(), m.Blobs(), noCache).Shard("s-test-0")
		reader := instance(t, m.Table(), m.Blobs(), noCache).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(9, 10)), map[string]string{}
		scribble(t, rnd, s, model, 300)
		maintain(t, s, src)
		view, err := reader.View(t.Context(), shard.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			scribble(t, rnd, s, model, 300)
			maintain(t, s, src)
		}
		for _, key := range slices.Sorted(maps.Keys(model))[:5] {
			e, ok, err := reader.Read(t.Context(), key, shard.ReadOptions{MaxAge: time.Hour})
			if err != nil || !ok || e.Version.IsZero() {
				t.Fatalf("get of %s by a reader with an old view: %v, %v", key, ok, err)
			}
		}
		c := view.Entries(shard.Bounds{}, false)
		for c.Next(t.Context()) {
		}
		if err := c.Err(); !errors.Is(err, shard.ErrViewExpired) {
			t.Fatalf("a view over collected blobs ends with %v", err)
		}
	})
}

// damage overwrites every blob of a kind with something else.
func damage(t *testing.T, m *memory.Store, kind string, change func([]byte) []byte) {
	t.Helper()
	blobs, _ := stored(t, m)
	n := 0
	for _, name := range blobs {
		if !strings.Contains(name, "/"+kind) {
			continue
		}
		data, _, err := m.Blobs().Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if changed := change(bytes.Clone(data)); changed == nil {
			err = m.Blobs().Delete(t.Context(), name)
		} else {
			_, err = m.Blobs().Put(t.Context(), name, changed, store.Always)
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatalf("no blob of kind %s among %v", kind, blobs)
	}
}

// Damaged or missing storage is an error that says what and where, never fewer
// entries.
func TestDamageIsLoud(t *testing.T) {
	changes := map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"version": func(b []byte) []byte { b[len(b)/8] ^= 0x40; b[0] ^= 0x7f; return b },
		"gone":    func([]byte) []byte { return nil },
	}
	for _, kind := range []string{"leaf", "manifest", "value"} {
		for name, change := range changes {
			t.Run(kind+" "+name, func(t *testing.T) {
				m := memory.New(memory.Options{})
				s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
				if err := s.Create(t.Context()); err != nil {
					t.Fatal(err)
				}
				put(t, s, "k", strings.Repeat("large ", 100))
				if _, err := s.Checkpoint(t.Context(), force()); err != nil {
					t.Fatal(err)
				}
				damage(t, m, kind, change)
				cold := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
				_, _, err := cold.Read(t.Context(), "k", shard.ReadOptions{})
				if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "s-test-0") {
					t.Fatalf("got %v", err)
				}
			})
		}
	}
}

func TestDamagedLogIsLoud(t *testing.T) {
	changes := map[string]func(*testing.T, store.Table, []store.Row){
		"row flipped": func(t *testing.T, table store.Table, rows []store.Row) {
			bad := bytes.Clone(rows[3].Data)
			bad[len(bad)-1] ^= 1
			apply(t, table, store.Replace(rows[3].Key, bad, rows[3].ETag))
		},
		"row missing": func(t *testing.T, table store.Table, rows []store.Row) {
			apply(t, table, store.Delete(rows[3].Key, ""))
		},
		"row misplaced": func(t *testing.T, table store.Table, rows []store.Row) {
			apply(t, table, store.Replace(rows[3].Key, rows[4].Data, rows[3].ETag))
		},
		"head cut": func(t *testing.T, table store.Table, rows []store.Row) {
			apply(t, table, store.Replace(rows[0].Key, rows[0].Data[:20], rows[0].ETag))
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			m := memory.New(memory.Options{})
			s := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0")
			if err := s.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := range 8 {
				put(t, s, fmt.Sprint("k", i), "v")
			}
			page, err := m.Table().Range(t.Context(), "s-test-0", store.RangeQuery{})
			if err != nil {
				t.Fatal(err)
			}
			change(t, m.Table(), page.Rows)
			cold := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0")
			if _, err := cold.View(t.Context(), shard.ReadOptions{}); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "s-test-0") {
				t.Fatalf("got %v", err)
			}
			if _, err := cold.Write(t.Context(), []shard.Write{{Op: shard.OpPut, Key: "k", Value: nil}}); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("a write on top of damage: %v", err)
			}
		})
	}
}

func apply(t *testing.T, table store.Table, op store.Op) {
	t.Helper()
	if _, err := table.Apply(t.Context(), "s-test-0", []store.Op{op}); err != nil {
		t.Fatal(err)
	}
}

// Within the grace period a tombstone survives every merge: something may still
// bring an older entry.
func TestTombstonesOutliveMergesWithinTheirGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, s, "k", "v")
		maintain(t, s, src)
		write(t, s, shard.Write{Op: shard.OpDelete, Key: "k"})
		tombstones := func() int64 {
			maintain(t, s, src)
			st, err := s.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return st.Tombstones
		}
		if n := tombstones(); n != 1 {
			t.Fatalf("%d tombstones within the grace period", n)
		}
		_ = src.Sleep(t.Context(), time.Minute)
		put(t, s, "other", "v")
		if n := tombstones(); n != 0 {
			t.Fatalf("%d tombstones past the grace period", n)
		}
	})
}

func TestExpiredEntriesAreAbsentAndReclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		expiry := src.Now().Milli() + 8000
		write(t, s, shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("v"), Expiry: expiry})
		for _, checkpointed := range []bool{false, true} {
			if e, ok := get(t, s, "k"); !ok || e.Expiry != expiry {
				t.Fatalf("checkpointed %v: %v, expiry %d instead of %d", checkpointed, ok, e.Expiry, expiry)
			}
			maintain(t, s, src)
		}
		if _, ok := get(t, s, "k"); ok {
			t.Fatal("an expired key is live")
		}
		if n := len(contents(t, m)); n != 0 {
			t.Fatalf("a scan shows %d expired keys", n)
		}
		r := write(t, s, shard.Write{Op: shard.OpGetOrSet, Key: "k", Value: []byte("new")})
		if r.Status != shard.StatusApplied || r.Existed {
			t.Fatalf("get-or-set over an expired key: %+v", r)
		}
	})
}

// An instance was frozen for long, its view is older than what the log still
// has. Its append must fail, and it reads again.
func TestFrozenInstanceBehindTruncation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		frozen := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := s.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := put(t, frozen, "k", "old")
		rnd, model := rand.New(rand.NewPCG(11, 12)), map[string]string{}
		scribble(t, rnd, s, model, 100)
		newest := put(t, s, "k", "new")
		for range 5 {
			maintain(t, s, src)
		}
		if _, rows := stored(t, m); rows > 20 {
			t.Fatalf("%d rows left: the log was not truncated", rows)
		}
		r := write(t, frozen, shard.Write{Op: shard.OpPut, Key: "k", Value: []byte("mine"), IfVersion: first.Version})
		if r.Status != shard.StatusMismatch || r.Version != newest.Version {
			t.Fatalf("an append on top of a truncated past: %+v", r)
		}
		put(t, frozen, "other", "x")
		model["k"], model["other"] = "new", "x"
		sameContents(t, "after waking up", contentsOf(t, frozen), model)
	})
}

// An instance freezes between storing a large value and logging it; meanwhile
// the blob is collected as an orphan. The write must not be acknowledged.
func TestFrozenBetweenValueAndLog(t *testing.T) {
	for _, at := range []struct {
		name string
		when faulty.Match
	}{
		{"before the append is judged", faulty.Kinds(faulty.Range)},
		{"before the append is sent", faulty.Kinds(faulty.Apply)},
	} {
		t.Run(at.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := clock.NewSystem()
				m := memory.New(memory.Options{Clock: src})
				in := faulty.New(m.Table(), m.Blobs(), faulty.Options{Clock: src})
				s := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
				frozen := instance(t, in.Table(), in.Blobs(), quick).Shard("s-test-0")
				if err := s.Create(t.Context()); err != nil {
					t.Fatal(err)
				}
				rule := in.Add(faulty.Rule{When: at.when, Times: 1, Do: faulty.Do(func(context.Context, *faulty.Call) error {
					for range 10 {
						put(t, s, "x", "y")
						maintain(t, s, src)
					}
					return nil
				})})
				w := shard.Write{Op: shard.OpPut, Key: "k", Value: bytes.Repeat([]byte("large"), 100)}
				_, err := frozen.Write(context.Background(), []shard.Write{w})
				if rule.Fired() != 1 {
					t.Fatal("never frozen")
				}
				if err == nil {
					sameContents(t, "acknowledged", contents(t, m), map[string]string{"x": "y", "k": string(w.Value)})
				} else if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrOutcomeUnknown) {
					t.Fatal(err)
				}
				if _, err := frozen.Write(t.Context(), []shard.Write{w}); err != nil {
					t.Fatalf("second try: %v", err)
				}
				sameContents(t, "second try", contents(t, m), map[string]string{"x": "y", "k": string(w.Value)})
			})
		})
	}
}

func TestClosedShardRefusesAndReopens(t *testing.T) {
	m := memory.New(memory.Options{})
	a := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0")
	b := instance(t, m.Table(), m.Blobs(), nil).Shard("s-test-0")
	if err := a.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, b, "k", "v")
	for range 2 { // closing twice changes nothing
		if err := a.SetClosed(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	_, werr := b.Write(t.Context(), []shard.Write{{Op: shard.OpPut, Key: "k", Value: []byte("w")}})
	_, _, gerr := b.Get(t.Context(), "k", shard.ReadOptions{})
	_, verr := b.View(t.Context(), shard.ReadOptions{})
	for _, err := range []error{werr, gerr, verr} {
		if !errors.Is(err, shard.ErrClosed) {
			t.Errorf("a closed shard answers %v", err)
		}
	}
	if err := b.SetClosed(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if e, ok := get(t, a, "k"); !ok || string(e.Value) != "v" {
		t.Errorf("after reopening: %v, %q", ok, e.Value)
	}
	if err := a.Destroy(t.Context()); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("destroying an open shard: %v", err)
	}
}

// TestClosedShardIsReopenedByWhomItsLogHasLeftBehind: the rows that follow what the
// instance remembers are gone, and the shard is closed. That is no shard that is
// being destroyed.
func TestClosedShardIsReopenedByWhomItsLogHasLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		a := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		behind := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		if err := a.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		rnd, model := rand.New(rand.NewPCG(1, 1)), map[string]string{}
		scribble(t, rnd, a, model, 20)
		get(t, behind, "k")
		for range 2 {
			scribble(t, rnd, a, model, 50)
			if _, err := a.Checkpoint(t.Context(), force()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if _, err := a.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.SetClosedAt(t.Context(), true, 1); err != nil {
			t.Fatal(err)
		}
		if err := behind.SetClosedAt(t.Context(), false, 2); err != nil {
			t.Fatal(err)
		}
		sameContents(t, "reopened", contents(t, m), model)
	})
}

func TestDestroyLeavesNothing(t *testing.T) {
	m := memory.New(memory.Options{})
	pool := instance(t, m.Table(), m.Blobs(), quick)
	s, other := pool.Shard("s-test-0"), instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	scribble(t, rand.New(rand.NewPCG(1, 1)), s, map[string]string{}, 250)
	if _, err := s.Checkpoint(t.Context(), force()); err != nil {
		t.Fatal(err)
	}
	get(t, other, "k")
	if err := errors.Join(s.SetClosed(t.Context(), true), s.Clear(t.Context()), s.Clear(t.Context())); err != nil {
		t.Fatal(err)
	}
	if blobs, rows := stored(t, m); len(blobs) != 0 || rows != 1 {
		t.Errorf("after clearing: %d rows, %v", rows, blobs)
	}
	// Late creators, writers and cold readers find the shard closed.
	late := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
	if err := late.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*shard.Shard{late, other} {
		if _, err := s.Write(t.Context(), []shard.Write{{Op: shard.OpPut, Key: "k"}}); !errors.Is(err, shard.ErrClosed) {
			t.Errorf("a write to a cleared shard: %v", err)
		}
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if blobs, rows := stored(t, m); len(blobs)+rows != 0 {
		t.Errorf("left: %d rows, %v", rows, blobs)
	}
	if err := pool.Shard("s-test-0").Destroy(t.Context()); !errors.Is(err, shard.ErrNoShard) {
		t.Errorf("destroying nothing: %v", err)
	}
	if _, err := other.Write(t.Context(), []shard.Write{{Op: shard.OpPut, Key: "k"}}); !errors.Is(err, shard.ErrNoShard) {
		t.Errorf("a write to a destroyed shard: %v", err)
	}
}

// Slots that moved away are refused by every instance, whatever it remembers,
// hidden from scans and counts, and dropped by merges.
func TestMovedSlotsAreRefusedAndHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := clock.NewSystem()
		m := memory.New(memory.Options{Clock: src})
		a := instance(t, m.Table(), m.Blobs(), quick).Shard("s-test-0")
		b := instance(t, m.Table(), m.Blobs(), func(c *shard.Config) { quick(c); c.Leases = true }).Shard("s-test-0")
		if err := a.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		model := map[string]string{}
		for i := range 300 {
			key := fmt.Sprintf("key-%03d", i)
			put(t, a, key, "v")
			model[key] = "v"
		}
		maintain(t, a, src)
		get(t, b, "key-000")
		var moved keyspace.SlotSet
		gone := ""
		for key := range model {
			if slot := keyspace.Slot(key); slot%2 == 0 {
				moved.Add(slot)
				gone = key
				delete(model, key)
			}
		}
		if err := a.MoveAway(t.Context(), moved); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]*shard.Shard{"a": a, "b": b} {
			if _, _, err := s.Get(t.Context(), gone, shard.ReadOptions{}); !errors.Is(err, shard.ErrStaleRouting) {
				t.Errorf("%s: get of a moved key: %v", name, err)
			}
			if r := put(t, s, gone, "stale"); r.Status != shard.StatusStale {
				t.Errorf("%s: put of a moved key: %+v", name, r)
			}
			sameContents(t, name, contentsOf(t, s), model)
		}
		for range 2 {
			for key := range model {
				put(t, a, key, "w")
				model[key] = "w"
			}
			maintain(t, a, src)
		}
		sameContents(t, "merged", contents(t, m), model)
		if st, err := a.Stats(t.Context()); err != nil || st.Entries > int64(len(model)) {
			t.Errorf("merges kept %d entries of %d (%v)", st.Entries, len(model), err)
		}
	})
}
