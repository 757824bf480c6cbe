package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// counted is a table that counts its calls.
type counted struct {
	store.Table
	mu            sync.Mutex
	reads, writes int
}

func (c *counted) Get(ctx context.Context, partition, key string) (store.Row, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	return c.Table.Get(ctx, partition, key)
}

func (c *counted) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Table.Apply(ctx, partition, ops)
}

// shifted is a clock that is off by so much.
type shifted struct {
	*clock.System
	wall, mono time.Duration
}

func (s *shifted) Now() clock.Instant {
	now := s.System.Now()
	return clock.Instant{Wall: now.Wall + int64(s.wall), Mono: now.Mono + s.mono}
}

func newTable() *counted { return &counted{Table: memory.New(memory.Options{}).Table()} }

// record notes a tick that took so long and ends now.
func record(t *testing.T, b *Book, timer string, took time.Duration, failed int, err error) {
	t.Helper()
	started := b.clock.Now()
	started.Wall, started.Mono = started.Wall-int64(took), started.Mono-took
	if err := b.Record(t.Context(), Run{Timer: timer, Started: started, Failed: failed, Err: err, Success: err == nil || failed > 0}); err != nil {
		t.Fatal(err)
	}
}

func beatOf(t *testing.T, b *Book, timer string) Beat {
	t.Helper()
	all, err := b.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, beat := range all {
		if beat.Timer == timer {
			return beat
		}
	}
	t.Fatalf("no heartbeat of %s in %+v", timer, all)
	return Beat{}
}

func TestRecordTellsOfTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(newTable(), clock.NewSystem(), 0xabc)
		if all, err := b.Read(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("an empty table has %v, %v", all, err)
		}
		record(t, b, "collect", 2*time.Second, 0, nil)
		now := time.Now().UTC()
		want := Beat{
			Timer: "collect", Started: now.Add(-2 * time.Second), Took: 2 * time.Second,
			Instance: "0000000000000abc", Finished: now, Succeeded: now,
		}
		if got := beatOf(t, b, "collect"); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		record(t, b, "collect", time.Second, 0, errors.New("storage is away"))
		record(t, b, "monitor", 0, 3, errors.New("a shard is damaged"))
		got := beatOf(t, b, "collect")
		if got.Succeeded != now || got.Error != "storage is away" || got.Finished != now.Add(time.Minute) || got.Took != time.Second {
			t.Fatalf("after a failure %+v", got)
		}
		if got := beatOf(t, b, "monitor"); got.Failed != 3 || got.Error != "a shard is damaged" || got.Succeeded != got.Finished {
			t.Fatalf("after a success in part %+v", got)
		}
	})
}

func TestTicksThatEndAsBeforeAreWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		b := New(table, clock.NewSystem(), 1)
		for range 100 {
			record(t, b, "migrations", time.Millisecond, 0, nil)
			time.Sleep(time.Second)
		}
		if table.writes != 10 || table.reads != 10 {
			t.Fatalf("100 ticks in 100 s made %d writes and %d reads, want 10 of each", table.writes, table.reads)
		}
	})
}

func TestAnotherOutcomeIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		b := New(table, clock.NewSystem(), 1)
		fault := errors.New("fault")
		for i, failed := range []struct {
			n   int
			err error
		}{{0, nil}, {0, fault}, {0, fault}, {2, fault}, {3, fault}, {0, nil}, {0, nil}} {
			record(t, b, "migrations", 0, failed.n, failed.err)
			if want := []int{1, 2, 2, 3, 3, 4, 4}[i]; table.writes != want {
				t.Fatalf("%d writes after tick %d, want %d", table.writes, i, want)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestInstancesShareTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		books := []*Book{New(table, clock.NewSystem(), 1), New(table, clock.NewSystem(), 2), New(table, clock.NewSystem(), 3)}
		for range 100 {
			for _, b := range books {
				record(t, b, "migrations", 0, 0, nil)
			}
			time.Sleep(time.Second)
		}
		if table.writes > 10 || table.reads > 30 {
			t.Fatalf("three instances made %d writes and %d reads in 100 s", table.writes, table.reads)
		}
		if age := time.Since(beatOf(t, books[0], "migrations").Succeeded); age > 2*Interval {
			t.Fatalf("the row is %s old", age)
		}
	})
}

func TestFrozenInstanceDoesNotTrustItsNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		c := &shifted{System: clock.NewSystem()}
		b := New(table, c, 1)
		record(t, b, "collect", 0, 0, nil)
		// The wall clock went on, the monotonic one stood.
		c.wall += time.Hour
		record(t, b, "collect", 0, 0, nil)
		if table.writes != 2 {
			t.Fatalf("%d writes after a freeze, want 2", table.writes)
		}
		c.mono += time.Hour
		c.wall -= time.Hour - 20*time.Second
		record(t, b, "collect", 0, 0, nil)
		if table.reads != 3 {
			t.Fatalf("%d reads after the wall clock was set back, want 3", table.reads)
		}
	})
}

func TestTimesNeverGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		old, young := New(table, clock.NewSystem(), 1), New(table, clock.NewSystem(), 2)
		began := old.clock.Now()
		time.Sleep(time.Minute)
		record(t, young, "collect", time.Second, 0, nil)
		want := beatOf(t, young, "collect")
		// A tick that began long ago ends, and fails; it tells nothing new.
		time.Sleep(time.Second)
		if err := old.Record(t.Context(), Run{Timer: "collect", Started: began, Err: errors.New("cut off")}); err != nil {
			t.Fatal(err)
		}
		if got := beatOf(t, young, "collect"); got != want {
			t.Fatalf("an old tick made it %+v", got)
		}
		// One whose clock is behind succeeds: the success stays.
		late := New(table, &shifted{System: clock.NewSystem(), wall: -30 * time.Second}, 3)
		record(t, late, "collect", 0, 0, nil)
		if got := beatOf(t, young, "collect"); got.Succeeded.Before(want.Succeeded) || got.Started.Before(want.Started) {
			t.Fatalf("a slow clock made it %+v", got)
		}
	})
}

func TestOldTickThatSucceedsIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(newTable(), clock.NewSystem(), 1)
		began := b.clock.Now()
		time.Sleep(time.Minute)
		record(t, b, "collect", time.Second, 0, errors.New("fault"))
		time.Sleep(time.Minute)
		if err := b.Record(t.Context(), Run{Timer: "collect", Started: began, Success: true}); err != nil {
			t.Fatal(err)
		}
		got := beatOf(t, b, "collect")
		if got.Succeeded != time.Now().UTC() || got.Error != "fault" {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestWildClockHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		wild := New(table, &shifted{System: clock.NewSystem(), wall: 24 * time.Hour}, 1)
		record(t, wild, "collect", 0, 0, nil)
		b := New(table, clock.NewSystem(), 2)
		record(t, b, "collect", 0, 0, nil)
		if got := beatOf(t, b, "collect"); got.Succeeded != time.Now().UTC() {
			t.Fatalf("after a clock that was a day ahead: %+v", got)
		}
	})
}

func TestSimultaneousTicksAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		in := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		in.Add(faulty.Rule{Do: faulty.Delay(time.Millisecond, time.Millisecond)})
		table := in.Table()
		var all sync.WaitGroup
		for i := range 8 {
			b := New(table, clock.NewSystem(), uint64(i+1))
			all.Go(func() { record(t, b, "collect", 0, 0, nil) })
		}
		all.Wait()
		if got := beatOf(t, New(table, clock.NewSystem(), 9), "collect"); got.Succeeded.IsZero() {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestFailedWriteIsTriedAgainByTheNextTick(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Get, faulty.Apply} {
		m := memory.New(memory.Options{})
		in := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
		in.Add(faulty.Rule{When: faulty.Kinds(kind), Do: faulty.Fail(store.ErrUnavailable), Times: 1})
		b := New(in.Table(), clock.NewSystem(), 1)
		if err := b.Record(t.Context(), Run{Timer: "collect", Success: true}); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("the failure of %s gave %v", kind, err)
		}
		record(t, b, "collect", 0, 0, nil)
		if got := beatOf(t, b, "collect"); got.Succeeded.IsZero() {
			t.Fatalf("got %+v", got)
		}
	}
}

func TestDamagedRowIsRefusedAndLeft(t *testing.T) {
	for name, data := range map[string][]byte{
		"no envelope": []byte("x"), "no JSON": format.Seal([]byte("x")), "unknown field": format.Seal([]byte(`{"more":1}`)),
		"negative": format.Seal([]byte(`{"started":-1}`)),
	} {
		table := newTable()
		if _, err := table.Apply(t.Context(), partition, []store.Op{store.Insert(prefix+"collect", data)}); err != nil {
			t.Fatal(err)
		}
		b := New(table, clock.NewSystem(), 1)
		if _, err := b.Read(t.Context()); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "timer-collect") {
			t.Errorf("%s: read gave %v", name, err)
		}
		if err := b.Record(t.Context(), Run{Timer: "collect"}); !errors.Is(err, store.ErrCorrupt) || table.writes != 1 {
			t.Errorf("%s: record gave %v after %d writes", name, err, table.writes)
		}
	}
}

func TestErrorsAreKeptWithoutSecretsAndShort(t *testing.T) {
	for _, c := range []struct{ in, secret, keeps string }{
		{"GET https://a.table.core.windows.net/t?sv=1&sig=abcd%2F: 403", "abcd", "a.table.core.windows.net/t?"},
		{"AccountName=x;AccountKey=Zm9vYmFy==;TableEndpoint=y", "Zm9vYmFy", "TableEndpoint=y"},
		{"SharedAccessSignature=sv=2020&sig=topsecret failed", "topsecret", "failed"},
		{"Authorization: Bearer eyJhbGciOi.abc failed", "eyJhbGciOi", "failed"},
		{"sent bearer abcdefghijk and failed", "abcdefghijk", "and failed"},
		{"token=hunter2hunter2, then failed", "hunter2", "then failed"},
		{"tree \"a\" shard 3: storage is away", "\x00", "tree \"a\" shard 3: storage is away"},
	} {
		got := clean(errors.New(c.in))
		if strings.Contains(got, c.secret) || !strings.Contains(got, c.keeps) {
			t.Errorf("%q became %q", c.in, got)
		}
	}
	if got := clean(fmt.Errorf("a\nb\t\x00\x1b[31mc %s", strings.Repeat("ü", 5000))); len(got) > maxText+8 || strings.ContainsAny(got, "\n\x00\x1b") || !strings.HasPrefix(got, "a b") {
		t.Errorf("got %q", got)
	}
	if clean(nil) != "" {
		t.Error("no error has a text")
	}
}

func FuzzRowNeverPanics(f *testing.F) {
	f.Add(format.Seal([]byte(`{"started":1,"finished":2,"instance":"a"}`)))
	f.Add([]byte("LTHB"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decode(store.Row{Key: "timer-x", Data: data}); (r == nil) == (err == nil) || err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("got %v, %v", r, err)
		}
	})
}
