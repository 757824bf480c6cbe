package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

func TestPasswordsAreInNoError(t *testing.T) {
	for _, url := range []string{
		"redis://:se/cret@host", "redis://:secret@host:port", "http://:secret@host", "secret", "redis://:secret%zz@host",
		"redis://:secret@host/x", "redis://:secret@host?what=secret", "unix://",
	} {
		_, err := New(Options{URL: url, DB: -1})
		if err == nil || strings.Contains(err.Error(), "cret@") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	s, err := New(Options{URL: "rediss://user:secret@host:7000/3?read_timeout=1s", DB: -1, Match: "a*", Types: []string{"SET", "hash"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.identity(), `rediss://host:7000/3 match "a*" types hash,set`; got != want {
		t.Errorf("identity %q, want %q", got, want)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{ScanCount: -1}, {ScanCount: 100_001}, {MaxValueBytes: -1}, {RetryFor: -1}, {BinaryKeys: "rot13"}, {Types: []string{"set", "foo"}},
	} {
		o.URL, o.DB = "redis://host", -1
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// Each reply by which a server refuses is explained, at the first command that
// meets it.
func TestReplies(t *testing.T) {
	for said, want := range map[string]string{
		"NOAUTH Authentication required.":                                            "wants a password",
		"WRONGPASS invalid username-password pair or user is disabled.":              "refuses the user name or the password",
		"DENIED Redis is running in protected mode because protected mode":           "protected mode",
		"LOADING Redis is loading the dataset in memory":                             "still loading",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to": "lost its master",
		"CLUSTERDOWN The cluster is down":                                            "cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot":                    "moving slots",
		"CROSSSLOT Keys in request don't hash to the same slot":                      "address of each server",
		"OOM command not allowed when used memory > 'maxmemory'.":                    "out of memory",
		"BUSY Redis is busy running a script.":                                       "SCRIPT KILL",
		"MISCONF Redis is configured to save RDB snapshots":                          "cannot save",
		"ERR max number of clients reached":                                          "maxclients",
		"ERR unknown command 'SCAN'":                                                 "too old",
		"NOPERM this user has no permissions to run the 'scan' command":              "ACL SETUSER",
		"ERR something new": "the server says: ERR something new",
	} {
		f := startFake(t)
		_ = f.Set("k", "1")
		f.on(func(c *server.Peer, cmd string, _ []string) bool {
			if cmd == "SCAN" {
				c.WriteError(said)
			}
			return cmd == "SCAN"
		})
		err := failure(t, f.open(t, Options{RetryFor: time.Nanosecond}), nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", said, err, want)
		}
	}
}

func TestWhatPassesIsWaitedFor(t *testing.T) {
	f := startFake(t)
	_ = f.Set("k", "1")
	for _, cmd := range []string{"SCAN", "TYPE", "STRLEN"} {
		refusals := 0
		f.on(func(c *server.Peer, got string, _ []string) bool {
			if got != cmd || refusals == 2 {
				return false
			}
			refusals++
			c.WriteError("LOADING Redis is loading the dataset in memory")
			return true
		})
		waits := 0
		all, _ := collect(t, f.open(t, Options{OnWait: func(_ time.Duration, cause error) {
			if waits++; !strings.Contains(cause.Error(), "loading") {
				t.Errorf("told %v", cause)
			}
		}}), nil)
		if len(all.Records) != 1 || waits != 2 {
			t.Errorf("%s: %d records after %d waits", cmd, len(all.Records), waits)
		}
	}
}

// A slot that moves under a key is a reason to begin anew.
func TestMovedKeyRestarts(t *testing.T) {
	f := startFake(t)
	_ = f.Set("k", "1")
	f.on(func(c *server.Peer, cmd string, _ []string) bool {
		if cmd == "STRLEN" {
			c.WriteError("MOVED 7 127.0.0.1:1")
		}
		return cmd == "STRLEN"
	})
	if err := failure(t, f.open(t, Options{}), nil); !isRestart(err) {
		t.Error(err)
	}
}

func TestRetryIsBounded(t *testing.T) {
	gone := &net.OpError{Op: "read", Err: io.EOF}
	for name, c := range map[string]struct {
		answered bool
		err      error
		least    time.Duration
		most     time.Duration
	}{
		"a server that is known":   {true, gone, 55 * time.Second, time.Minute},
		"a server never heard of":  {false, gone, 2 * time.Second, strangerWait},
		"what waiting cannot cure": {true, errors.New("strange"), 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Source{opts: Options{RetryFor: time.Minute}, answered: c.answered}
			start := time.Now()
			err := s.retry(t.Context(), func() error { return c.err })
			if took := time.Since(start); !errors.Is(err, c.err) || took < c.least || took > c.most {
				t.Errorf("%s: gave up after %s with %v", name, took, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := &Source{opts: Options{RetryFor: time.Hour}, answered: true}
		start := time.Now()
		if err := s.retry(ctx, func() error { return gone }); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("a context that ended: %v after %s", err, time.Since(start))
		}
	})
}

// The caller's reason to stop comes back as it is.
func TestCallerMayEndTheContext(t *testing.T) {
	f := startFake(t)
	_ = f.Set("k", "1")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	f.on(func(_ *server.Peer, cmd string, _ []string) bool {
		if cmd == "STRLEN" {
			cancel(why)
		}
		return false
	})
	var last error
	for _, err := range f.open(t, Options{}).Read(ctx, nil) {
		last = err
	}
	if !errors.Is(last, why) {
		t.Error(last)
	}
}
