package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/latticekv/lattice/migrate/source"
)

var _ source.Source = (*Source)(nil)

func TestKeyGoneBetweenListingAndReadingCountsAsExpired(t *testing.T) {
	for _, at := range []string{"TYPE", "STRLEN", "MULTI"} {
		f := startFake(t)
		_ = f.Set("stays", "1")
		_ = f.Set("goes", "1")
		s := f.open(t, Options{})
		if _, err := s.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.once(at, func() { f.Del("goes") })
		all, _ := collect(t, s, nil)
		if len(all.Records) != 1 || len(all.Faults) != 0 || all.Expired != 1 {
			t.Errorf("gone before %s: %d records, faults %v, %d expired", at, len(all.Records), all.Faults, all.Expired)
		}
	}
}

func TestKeyWhoseTypeChangesIsReadAgain(t *testing.T) {
	for _, at := range []string{"STRLEN", "MULTI"} {
		f := startFake(t)
		_ = f.Set("k", "1")
		s := f.open(t, Options{})
		if _, err := s.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.once(at, func() {
			f.Del("k")
			_, _ = f.RPush("k", "x")
		})
		all, _ := collect(t, s, nil)
		if len(all.Records) != 1 || string(all.Records[0].Payload) != `["x"]` || len(all.Faults) != 0 {
			t.Errorf("changed before %s: %+v", at, all)
		}
	}
}

// Another client writes value and expiry between the commands that read them:
// the record has both of before, or both of after.
func TestValueAndExpiryBelongTogether(t *testing.T) {
	early, late := time.Now().Add(time.Hour).Truncate(time.Millisecond), time.Now().Add(50*time.Hour).Truncate(time.Millisecond)
	for _, lacks := range []string{"", "MULTI", "PEXPIRETIME"} {
		f := startFake(t)
		write := func(value string, at time.Time) {
			_ = f.Set("k", value)
			f.SetTTL("k", time.Until(at))
		}
		write("early", early)
		if lacks != "" {
			f.refuse(lacks)
		}
		s := f.open(t, Options{})
		if _, err := s.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		reads := 0
		f.on(func(c *server.Peer, cmd string, args []string) bool {
			switch cmd {
			case lacks:
				c.WriteError("ERR unknown command")
				return true
			case "GET":
				reads++
			case "PEXPIRETIME", "PTTL":
				if reads == 1 {
					write("late", late)
				}
			}
			return false
		})
		all, _ := collect(t, s, nil)
		if len(all.Records) != 1 {
			t.Fatalf("without %q: %+v", lacks, all)
		}
		r := all.Records[0]
		want := map[string]time.Time{"early": early, "late": late}[string(r.Payload)]
		if r.Expiry.Sub(want).Abs() > time.Minute {
			t.Errorf("without %q: the value %q has the expiry %v", lacks, r.Payload, r.Expiry)
		}
	}
}

func TestLargeCollectionIsNeverAMixture(t *testing.T) {
	const n = 2500
	fill := func(f *fake, with string) {
		f.Del("k")
		for range n {
			_, _ = f.RPush("k", with)
		}
	}
	f := startFake(t)
	fill(f, "old")
	s := f.open(t, Options{})
	pieces := 0
	f.on(func(_ *server.Peer, cmd string, _ []string) bool {
		if cmd == "LRANGE" {
			if pieces++; pieces == 2 {
				fill(f, "new")
			}
		}
		return false
	})
	all, _ := collect(t, s, nil)
	if len(all.Records) != 1 || strings.Count(string(all.Records[0].Payload), `"new"`) != n || strings.Contains(string(all.Records[0].Payload), "old") {
		t.Fatalf("%d records, faults %v; want 2,500 times new", len(all.Records), all.Faults)
	}

	f.on(func(_ *server.Peer, cmd string, _ []string) bool {
		if cmd == "LRANGE" {
			_, _ = f.RPush("k", "more")
		}
		return false
	})
	all, _ = collect(t, s, nil)
	if len(all.Records) != 0 || len(all.Faults) != 1 || !strings.Contains(all.Faults[0].Reason, "changes faster") {
		t.Fatalf("a list that always changes: %+v", all)
	}
}

func TestRepeatedKeysOfOneReplyAreReadOnce(t *testing.T) {
	f := startFake(t)
	_ = f.Set("a", "1")
	_ = f.Set("b", "2")
	f.on(scanReplies([]string{"a", "b", "a"}, []string{"b"}))
	all, pages := collect(t, f.open(t, Options{ScanCount: 2}), nil)
	if len(pages) != 2 || len(all.Records) != 3 || all.Records[1].Origin != all.Records[2].Origin {
		t.Errorf("%d pages, records %+v", len(pages), all.Records)
	}
}

// scanReplies answers SCAN with these lists of keys, one after the other; the
// cursor is the index of the next.
func scanReplies(lists ...[]string) func(c *server.Peer, cmd string, args []string) bool {
	return func(c *server.Peer, cmd string, args []string) bool {
		if cmd != "SCAN" {
			return false
		}
		i := 0
		_, _ = fmt.Sscan(args[0], &i)
		next := (i + 1) % len(lists)
		c.WriteLen(2)
		c.WriteBulk(fmt.Sprint(next))
		c.WriteLen(len(lists[i]))
		for _, k := range lists[i] {
			c.WriteBulk(k)
		}
		return true
	}
}

// Few keys match: replies without any are joined, and the cursor goes on.
func TestEmptyRepliesAreJoined(t *testing.T) {
	f := startFake(t)
	_ = f.Set("last", "1")
	lists := make([][]string, maxReplies+10)
	lists[len(lists)-1] = []string{"last"}
	f.on(scanReplies(lists...))
	all, pages := collect(t, f.open(t, Options{}), nil)
	if len(pages) != 2 || len(all.Records) != 1 {
		t.Errorf("%d pages, %d records", len(pages), len(all.Records))
	}
}

func TestCursorOfAnotherProcessIsRefused(t *testing.T) {
	f := startFake(t)
	_ = f.Set("a", "1")
	_ = f.Set("b", "2")
	f.on(scanReplies([]string{"a"}, []string{"b"}))
	_, pages := collect(t, f.open(t, Options{ScanCount: 1}), nil)
	at := pages[0].Next
	if all, _ := collect(t, f.open(t, Options{ScanCount: 1}), at); len(all.Records) != 1 || all.Records[0].Origin != `key "b" of db 0` {
		t.Fatalf("resumed on the same process: %+v", all)
	}

	f.mu.Lock()
	f.run = "run-2"
	f.mu.Unlock()
	if err := failure(t, f.open(t, Options{ScanCount: 1}), at); !errors.Is(err, source.ErrRestart) || !strings.Contains(err.Error(), "restarted") {
		t.Errorf("resumed on another process: %v", err)
	}
	if all, _ := collect(t, f.open(t, Options{ScanCount: 1}), nil); len(all.Records) != 2 {
		t.Errorf("begun anew: %+v", all)
	}
	for _, bad := range []string{`{`, `{"cursor":"x"}`, `{"cursor":"1","topology":"y"}`, `{"cursor":"1","node":7}`} {
		if err := failure(t, f.open(t, Options{}), source.Position(bad)); err == nil {
			t.Errorf("position %s was accepted", bad)
		}
	}
}

// The server goes away between two pages and another process answers at its
// address: its cursors mean nothing, so the enumeration must not go on. The same
// if nobody can tell which process it is.
func TestAnotherProcessInTheMiddleIsNoticed(t *testing.T) {
	for _, c := range []struct {
		before, after string
		restarts      bool
	}{{"run-1", "run-1", false}, {"run-1", "run-2", true}, {"", "", true}, {"run-1", "", true}} {
		f := startFake(t)
		f.run = c.before
		_ = f.Set("a", "1")
		_ = f.Set("b", "2")
		f.on(scanReplies([]string{"a"}, []string{"b"}))
		s := f.open(t, Options{ScanCount: 1})
		var last error
		read := 0
		for p, err := range s.Read(t.Context(), nil) {
			if last = err; err != nil {
				break
			}
			if read += len(p.Records); read == 1 {
				f.Close()
				if err := f.Restart(); err != nil {
					t.Fatal(err)
				}
				f.mu.Lock()
				f.run = c.after
				f.mu.Unlock()
				f.hook()
			}
		}
		if errors.Is(last, source.ErrRestart) != c.restarts || !c.restarts && read != 2 {
			t.Errorf("%q, then %q: read %d, %v", c.before, c.after, read, last)
		}
		if all, _ := collect(t, s, nil); len(all.Records) != 2 {
			t.Errorf("%q, then %q: begun anew, it yields %d records", c.before, c.after, len(all.Records))
		}
	}
}

// failure is the error that an enumeration ends with.
func failure(t *testing.T, s *Source, from source.Position) (last error) {
	t.Helper()
	for _, err := range s.Read(t.Context(), from) {
		last = err
	}
	return last
}

func TestUnknownTypesAreTold(t *testing.T) {
	f := startFake(t)
	_ = f.Set("doc", "1")
	_ = f.Set("bloom", "1")
	f.on(func(c *server.Peer, cmd string, args []string) bool {
		switch {
		case cmd == "TYPE" && args[0] == "doc":
			c.WriteInline("ReJSON-RL")
		case cmd == "TYPE":
			c.WriteInline("MBbloom--")
		case cmd == "MULTI": // the fake could not queue a command it does not know
			c.WriteError("ERR unknown command 'MULTI'")
		case cmd == "JSON.GET":
			c.WriteBulk(`{"a":1}`)
		default:
			return false
		}
		return true
	})
	all, _ := collect(t, f.open(t, Options{}), nil)
	if len(all.Faults) != 1 || !strings.Contains(all.Faults[0].Reason, "MBbloom--") || all.Faults[0].Key != "bloom" {
		t.Errorf("faults %+v", all.Faults)
	}
	if len(all.Records) != 1 || string(all.Records[0].Payload) != `{"a":1}` || all.Records[0].Type != "application/json" {
		t.Errorf("records %+v", all.Records)
	}
}

func TestConsumerMayStop(t *testing.T) {
	f := startFake(t)
	for i := range 10 {
		_ = f.Set(fmt.Sprint(i), "1")
	}
	f.on(scanReplies([]string{"1"}, []string{"2"}, []string{"3"}))
	pages := 0
	for _, err := range f.open(t, Options{ScanCount: 1}).Read(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if pages++; pages == 2 {
			break
		}
	}
	if pages != 2 {
		t.Fatalf("%d pages", pages)
	}
}
