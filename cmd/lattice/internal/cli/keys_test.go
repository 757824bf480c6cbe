package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/latticekv/lattice/client/clienttest"
)

func TestSetAndGet(t *testing.T) {
	l, _ := fake(t)
	if out := l.ok("", "set", "t", "alice", "hello"); !strings.HasPrefix(out, "Created alice, version ") {
		t.Fatal(out)
	}
	if out := l.ok("", "set", "t", "alice", "hello"); !strings.HasPrefix(out, "Replaced alice, version ") {
		t.Fatal(out)
	}
	l.is(l.ok("", "get", "t", "alice"), "hello")
	l.ok("\x00\xff\n", "set", "t", "bin", "-")
	l.is(l.ok("", "get", "t", "bin"), "\x00\xff\n")
	l.is(l.ok("", "get", "t", "bin", "--b64"), "AP8K\n")
	l.ok("", "set", "t", "file", "--file", file(t, "v", "from a file"))
	l.is(l.ok("", "get", "t", "file"), "from a file")
	l.ok("", "set", "t", "b64", "AP8K", "--b64")
	l.is(l.ok("", "get", "t", "b64"), "\x00\xff\n")
	l.ok("", "set", "t", "--", "-dash", "-1")
	l.is(l.ok("", "get", "t", "--", "-dash"), "-1")
	l.ok("", "set", "t", "empty", "")
	l.is(l.ok("", "get", "t", "empty"), "")
	l.ok("", "set", "t", "--key-b64", "AAov", "v")
	l.is(l.ok("", "get", "t", "--key-b64", "AAov"), "v")
	l.is(l.ok("", "scan", "t", "--end", "-"), `"\x00\n/"`+"\tv\n")
	var e struct {
		Key, Value, Version, ContentType, ExpiresAt string
	}
	l.ok("", "set", "t", "alice", "x", "--ttl", "1h")
	if err := json.Unmarshal([]byte(l.ok("", "get", "--json", "t", "alice")), &e); err != nil {
		t.Fatal(err)
	}
	if e.Key != "alice" || e.Value != "eA==" || e.Version == "" || e.ContentType != "text/plain; charset=utf-8" || e.ExpiresAt == "" {
		t.Fatalf("%+v", e)
	}
}

func TestSeveralKeys(t *testing.T) {
	l, _ := fake(t)
	for _, k := range []string{"a", "b", "c\nd"} {
		l.ok("", "set", "t", k, "v "+k)
	}
	r := l.fails(ExitNo, "not found: x", "", "get", "t", "b", "x", "a")
	l.is(r.out, "b\tv b\na\tv a\n")
	l.is(l.ok("a\n\"c\\nd\"\n\nb\r\n", "get", "t", "-"), "a\tv a\n\"c\\nd\"\t\"v c\\nd\"\nb\tv b\n")
	if out := l.ok("", "get", "t", "a", "b", "--json"); !strings.Contains(out, `{"key":"a","text":"v a","version"`) {
		t.Fatal(out)
	}
	l.fails(ExitUsage, "not properly quoted", "\"a\n", "get", "t", "-")
}

func TestConditions(t *testing.T) {
	l, _ := fake(t)
	l.ok("", "set", "t", "k", "1", "--if-absent")
	l.fails(ExitNo, "version_mismatch", "", "set", "t", "k", "2", "--if-absent")
	var set struct{ Version string }
	if err := json.Unmarshal([]byte(l.ok("", "set", "--json", "t", "k", "2")), &set); err != nil {
		t.Fatal(err)
	}
	l.ok("", "set", "t", "k", "3", "--if-version", set.Version)
	r := l.fails(ExitNo, "currentVersion", "", "set", "--json", "t", "k", "4", "--if-version", set.Version)
	var e struct {
		Error struct{ ExitCode, Status int }
	}
	if err := json.Unmarshal([]byte(r.err), &e); err != nil || e.Error.ExitCode != ExitNo || e.Error.Status != 412 {
		t.Fatalf("%q, %v", r.err, err)
	}
	l.is(l.ok("", "set", "t", "k", "5", "--get-or-set"), "3")
	l.is(l.ok("", "set", "t", "new", "5", "--get-or-set"), "5")
	l.fails(ExitNo, "version_mismatch", "", "delete", "t", "k", "--if-version", set.Version)
}

func TestDelete(t *testing.T) {
	l, s := fake(t)
	for _, k := range []string{"a1", "a2", "b1", "b2", "c", "d"} {
		l.ok("", "set", "t", k, "v")
	}
	l.is(l.ok("", "delete", "t", "c", "none"), "Deleted 1 key; 1 key did not exist.\n")
	l.fails(ExitUsage, "--yes", "", "delete", "t", "--prefix", "a")
	l.is(l.ok("", "delete", "--json", "t", "--prefix", "a", "--yes"), `{"absent":0,"deleted":2}`+"\n")
	l.is(l.ok("b1\nb2\n", "delete", "t", "-"), "Deleted 2 keys.\n")
	l.tty = true
	r := l.fails(ExitNo, "nothing was done", "n\n", "delete", "t", "--all")
	if !strings.Contains(r.err, "Delete every key of tree t? They are 1. [y/N]") || s.Len("t") != 1 {
		t.Fatalf("%q, %d keys", r.err, s.Len("t"))
	}
	l.fails(ExitNo, "nothing was done", "", "delete", "t", "--all")
	l.is(l.ok("yes\n", "delete", "t", "--start", "d", "--end", "e"), "Deleted 1 key.\n")
	if s.Len("t") != 0 {
		t.Fatalf("%d keys are left", s.Len("t"))
	}
}

func TestScanAndCount(t *testing.T) {
	l, _ := fake(t)
	for _, k := range []string{"a", "b/1", "b/2", "c"} {
		l.ok("", "set", "t", k, "v"+k)
	}
	l.ok("\xff", "set", "t", "d", "-")
	l.is(l.ok("", "scan", "t"), "a\tva\nb/1\tvb/1\nb/2\tvb/2\nc\tvc\nd\tbase64:/w==\n")
	l.is(l.ok("", "scan", "t", "-k", "-r", "-n", "2"), "d\nc\n")
	l.is(l.ok("", "scan", "t", "--prefix", "b/", "--keys-only"), "b/1\nb/2\n")
	l.is(l.ok("", "scan", "t", "--start", "b", "--end", "c", "--reverse", "--keys-only"), "b/2\nb/1\n")
	if out := l.ok("", "scan", "t", "--json", "--as", "base64", "-n", "1"); !strings.HasPrefix(out, `{"key":"a","value":"dmE=","version":`) {
		t.Fatal(out)
	}
	l.is(l.ok("", "count", "t"), "5\n")
	l.is(l.ok("", "count", "t", "--prefix", "b", "--json"), `{"count":2,"mapVersion":0}`+"\n")
	l.is(l.ok("", "count", "t", "--per-shard"), "5\nshard 0\t5\n")
	l.tty = true
	l.ok("", "set", "t", "long", strings.Repeat("x", 1000))
	l.is(l.ok("", "scan", "t", "--prefix", "long"), "long\t"+strings.Repeat("x", 200)+"… (1000 bytes)\n")
}

func TestBrokenScanFails(t *testing.T) {
	l, s := fake(t)
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.Header.Get("Accept"), "ndjson") {
			return false
		}
		_, _ = w.Write([]byte(`{"key":"a","value":"","version":"1"}` + "\n"))
		return true
	}
	r := l.fails(ExitFailed, "incomplete stream after 1 entries", "", "scan", "t")
	l.is(r.out, "a\t\"\"\n")
}

func TestUsage(t *testing.T) {
	l, s := fake(t)
	for _, args := range [][]string{
		{}, {"nonsense"}, {"get"}, {"get", "t"}, {"get", "t", "k", "--nonsense"}, {"set", "t", "k"}, {"set", "t", "k", "v", "--file", "f"},
		{"set", "t", "k", "!", "--b64"}, {"get", "t", "!", "--key-b64"}, {"set", "t", "k", "v", "--if-absent", "--if-version", "x"},
		{"set", "t", "", "v"}, {"get", "t", "\xff"}, {"set", "t", "k", "\xff"}, {"set", "t", "k", "v", "--ttl", "-1s"}, {"scan", "t", "--limit", "-1"},
		{"scan", "t", "--prefix", "a", "--end", "b"}, {"scan", "t", "--as", "x"}, {"count", "t", "--max-age", "x"}, {"delete", "t"},
		{"delete", "t", "k", "--all"}, {"delete", "t", "--all", "--prefix", "a"}, {"delete", "t", "a", "b", "--if-version", "x"},
		{"delete", "t", "-", "--if-version", "x"}, {"import", "t", "--batch-size", "0"}, {"import", "t", "--batch-size", "10001"}, {"import", "t", "--concurrency", "0"},
		{"import", "t", "--key-column", "a"}, {"import", "t", "--format", "csv", "--delimiter", "ab"}, {"export", "t", "--format", "csv", "--as", "json"},
		{"trees", "create", "t", "novalue"}, {"trees", "create", "t", "a=1", "a=2"}, {"trees", "set", "t"}, {"trees", "purge", "t"}, {"trees", "list", "--server", "nonsense"},
		{"trees", "show", ".."},
	} {
		if r := l.run("", args...); r.code != ExitUsage || !strings.HasPrefix(r.err, "lattice: ") {
			t.Errorf("lattice %q: exit %d, %q", args, r.code, r.err)
		}
	}
	if n := s.Requests("PUT key"); n != 0 {
		t.Errorf("%d writes were sent", n)
	}
}

func TestUsageErrorsSayWhereToLook(t *testing.T) {
	l, _ := fake(t)
	for says, args := range map[string][]string{
		`see "lattice --help"`:              {"nonsense"},
		`see "lattice get --help"`:          {"get"},
		`see "lattice trees create --help"`: {"trees", "create"},
		`--batch-size must be 1 to 10,000`:  {"import", "t", "--batch-size", "0"},
		`--skip-rows must be 0 or more`:     {"import", "t", "--skip-rows=-1"},
	} {
		l.fails(ExitUsage, says, "", args...)
	}
	out := &safeBuffer{}
	if code := Run(t.Context(), nil, Console{In: strings.NewReader(""), Out: out, Err: out}); code != ExitOK || !strings.Contains(out.String(), "Usage: lattice") {
		t.Errorf("without arguments: exit %d, %s", code, out)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		status int
		code   string
		exit   int
	}{
		{404, "key_not_found", ExitNo}, {404, "tree_not_found", ExitNo}, {409, "tree_deleted", ExitNo}, {412, "version_mismatch", ExitNo}, {410, "snapshot_expired", ExitNo},
		{400, "invalid_argument", ExitUsage}, {413, "value_too_large", ExitUsage}, {422, "schema_violation", ExitUsage},
		{401, "unauthenticated", ExitFailed}, {403, "authorization_denied", ExitFailed}, {500, "internal", ExitFailed},
	} {
		l, s := fake(t)
		s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			clienttest.Problem(w, tc.status, tc.code, "d", 0)
			return true
		}
		l.fails(tc.exit, tc.code, "", "get", "t", "k")
	}
}

func TestUnreachable(t *testing.T) {
	l, _ := fake(t)
	l.url = "http://127.0.0.1:1"
	r := l.fails(ExitFailed, "cannot reach http://127.0.0.1:1", "", "import", "t", "--retry-for", "1ms", file(t, "x.ndjson", `{"key":"a","text":""}`))
	if !strings.Contains(r.err, "Is the service running") {
		t.Fatal(r.err)
	}
}

func TestTokenAndServerFromEnvironment(t *testing.T) {
	l, s := fake(t)
	s.Token = "s3cret"
	r := l.fails(ExitFailed, "LATTICE_TOKEN", "", "get", "t", "k")
	t.Setenv("LATTICE_TOKEN", "s3cret")
	t.Setenv("LATTICE_SERVER", l.url)
	out := &safeBuffer{}
	if code := Run(t.Context(), []string{"set", "t", "k", "v"}, Console{In: strings.NewReader(""), Out: out, Err: out}); code != ExitOK {
		t.Fatalf("exit %d: %s", code, out)
	}
	help := l.run("", "get", "--help")
	if strings.Contains(r.err+r.out+help.out+help.err, "s3cret") {
		t.Fatal("the token is printed")
	}
}
