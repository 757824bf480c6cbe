package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func TestMigrateRedis(t *testing.T) {
	l, s := fake(t)
	r := miniredis.RunT(t)
	r.RequireAuth("redis-secret")
	for i := range 30 {
		_ = r.Set(fmt.Sprintf("user:%d", i), fmt.Sprintf("\x00value %d", i))
	}
	r.HSet("profile", "b", "2", "a", "1")
	_ = r.Set("\xffbinary%", "v")
	r.SetTTL("user:7", 50*time.Hour)
	t.Setenv("REDIS_URL", "redis://:redis-secret@"+r.Addr())
	args := []string{"migrate", "redis", "users", "--source-env", "REDIS_URL"}

	res := l.fails(ExitNo, "1 rejected", "", append(args, "--state", t.TempDir(), "--dry-run")...)
	if !strings.Contains(res.out+res.err, "--binary-keys") || strings.Contains(res.out+res.err, "redis-secret") {
		t.Errorf("%s%s", res.out, res.err)
	}
	out := l.ok("", append(args, "--state", t.TempDir(), "--binary-keys", "percent")...)
	for _, want := range []string{"32 records read: 32 loaded", "Migration completed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	for key, want := range map[string]string{"user:3": "\x00value 3", "profile": `{"a":"1","b":"2"}`, "%FFbinary%25": "v"} {
		if v, ok := s.Value("users", key); !ok || string(v) != want {
			t.Errorf("%s holds %q, want %q", key, v, want)
		}
	}
	if out := l.ok("", "get", "users", "user:7", "--json"); !strings.Contains(out, "xpires") {
		t.Errorf("the expiry of user:7 is lost: %s", out)
	}
	if out := l.ok("", "--json", "migrate", "redis", "some", "--source-env", "REDIS_URL", "--match", "user:1*", "--state", t.TempDir()); !strings.Contains(out, `"loaded":11`) {
		t.Errorf("with a pattern: %s", out)
	}
}

func TestMigrateRedisUsage(t *testing.T) {
	l, _ := fake(t)
	t.Setenv("REDIS_URL", "redis://:redis-secret@host:port")
	for want, args := range map[string][]string{
		"give the address of the source":                   nil,
		"is not of the form redis://":                      {"--source-env", "REDIS_URL"},
		"the count of SCAN":                                {"--source", "redis://host", "--scan-count", "1000000"},
		"--scan-count must be":                             {"--source", "redis://host", "--scan-count", "0"},
		"--db must not be negative":                        {"--source", "redis://host", "--db=-1"},
		"string, hash, list, set, zset, stream, ReJSON-RL": {"--source", "redis://host", "--type", "foo"},
		"--binary-keys must be one of":                     {"--source", "redis://host", "--binary-keys", "rot13"},
	} {
		r := l.fails(ExitUsage, want, "", append([]string{"migrate", "redis", "t", "--state", t.TempDir()}, args...)...)
		if strings.Contains(r.out+r.err, "redis-secret") {
			t.Errorf("a password is shown: %s", r.err)
		}
	}
	r := miniredis.RunT(t)
	r.RequireAuth("redis-secret")
	l.fails(ExitFailed, "wants a password", "", "migrate", "redis", "t", "--source", "redis://"+r.Addr(), "--state", t.TempDir())
	addr := r.Addr()
	r.Close()
	res := l.fails(ExitFailed, "is the server running, and is the address right?", "", "migrate", "redis", "t", "--source", "redis://"+addr, "--state", t.TempDir())
	if strings.Contains(res.err, "--server") {
		t.Errorf("the service is blamed: %s", res.err)
	}
}
