package redis

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/latticekv/lattice/migrate/source"
)

// What a person should know of the server is told before the start.
func TestNotes(t *testing.T) {
	for info, want := range map[string]string{
		"maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n": "evicts keys when memory is short (allkeys-lru)",
		"role:slave\r\nmaster_link_status:up\r\n":           "This is a replica; it may lag behind its master.",
		"role:slave\r\nmaster_link_status:down\r\n":         "no connection now",
		"redis_version:7.4.1\r\n":                           "Expiry of single fields",
		"valkey_version:10.0.0\r\n":                         "Expiry of single fields",
		"role:master\r\nmaxmemory_policy:volatile-lfu\r\n":  "evicts keys when memory is short (volatile-lfu)",
	} {
		if got := said(t, info); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %q", info, got, want)
		}
	}
	for _, info := range []string{"", "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", "maxmemory:100\r\nmaxmemory_policy:noeviction\r\n", "role:master\r\n"} {
		got := said(t, info)
		for _, not := range []string{"evicts", "replica", "single fields", "INFO", "MULTI", "TIME"} {
			if strings.Contains(got, not) {
				t.Errorf("%q: %s", info, got)
			}
		}
	}
}

func said(t *testing.T, lines string) string {
	t.Helper()
	f := startFake(t)
	f.info = lines
	info, err := f.open(t, Options{}).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(info.Notes, info.Lossy...), " ")
}

func TestSentinelIsRefused(t *testing.T) {
	f := startFake(t)
	f.info = "redis_mode:sentinel\r\n"
	if _, err := f.open(t, Options{}).Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "GET-MASTER-ADDR-BY-NAME") {
		t.Error(err)
	}
}

func TestInfo(t *testing.T) {
	f := startFake(t)
	_ = f.Set("a", "1")
	_ = f.Set("b", "1")
	s := f.open(t, Options{})
	info, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Kind != "redis" || info.Identity != "redis://"+f.Addr()+"/0" || info.Version != "7.0.15" || info.Estimate != 2 ||
		info.KeyTemplate != "{key}" || info.Cut != "" {
		t.Errorf("info %+v", info)
	}
}

// Without DBSIZE the number of keys is not known, which is no failure.
func TestKeysThatNobodyMayCount(t *testing.T) {
	f := startFake(t)
	_ = f.Set("a", "1")
	f.on(func(c *server.Peer, cmd string, _ []string) bool {
		if cmd == "DBSIZE" {
			c.WriteError("NOPERM this user has no permissions to run the 'dbsize' command")
		}
		return cmd == "DBSIZE"
	})
	s := f.open(t, Options{})
	info, err := s.Inspect(t.Context())
	if err != nil || info.Estimate != -1 {
		t.Fatalf("estimate %d, %v", info.Estimate, err)
	}
	if all, _ := collect(t, s, source.Position(nil)); len(all.Records) != 1 {
		t.Errorf("%d records", len(all.Records))
	}
}
