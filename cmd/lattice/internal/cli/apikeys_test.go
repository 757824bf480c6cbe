package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/functions/auth"
)

// admitted returns whom a service with this keys file sees behind a key.
func admitted(t *testing.T, line, key string) *auth.Principal {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := auth.New(auth.Config{KeysFile: file}, clock.NewSystem(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + key}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewKeyIsAdmittedByTheService(t *testing.T) {
	l, _ := fake(t)
	lines := strings.Split(l.ok("", "keys", "new", "--name=orders-1", "--role=writer", "--trees=orders*,x", "--rate=5", "--burst=9", "--concurrent=3", "--lifetime=1h"), "\n")
	if len(lines) != 6 || !strings.Contains(lines[4], " expires=") || strings.Contains(lines[4], lines[1]) {
		t.Fatalf("printed %q", lines)
	}
	p := admitted(t, lines[4], lines[1])
	if p.ID != "key:orders-1" || p.Role != auth.RoleWriter || p.Trees.String() != "orders*,x" || p.Limits != (auth.Limits{Rate: 5, Burst: 9, Concurrent: 3}) {
		t.Errorf("%+v", p)
	}
	var out newAPIKey
	if err := json.Unmarshal([]byte(l.ok("", "--json", "keys", "new", "--name=cron", "--role=internal")), &out); err != nil {
		t.Fatal(err)
	}
	if p := admitted(t, out.Line, out.Key); p.Role != auth.RoleInternal || out.Key == lines[1] {
		t.Errorf("%+v", p)
	}
}

func TestRefusedTokensAreExplained(t *testing.T) {
	l, _ := fake(t)
	refusal := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := map[string]int{"unauthenticated": 401, "authorization_denied": 403}[refusal]
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": refusal, "status": status})
	}))
	t.Cleanup(srv.Close)
	l.url = srv.URL
	refusal = "unauthenticated"
	l.fails(ExitFailed, "Give a token with --token or LATTICE_TOKEN", "", "get", "t", "k")
	refused := l.fails(ExitFailed, "does not accept the token", "", "--token=s3cret", "get", "t", "k")
	refusal = "authorization_denied"
	denied := l.fails(ExitFailed, "The role of the token", "", "--token=s3cret", "get", "t", "k")
	if strings.Contains(refused.err+denied.err, "s3cret") {
		t.Error("the token is in the message")
	}
}

func TestInternalKeyWithTreesIsToldToLeaveThemOut(t *testing.T) {
	l, _ := fake(t)
	l.fails(ExitUsage, "leave them out", "", "keys", "new", "--name=cron", "--role=internal", "--trees=*")
}

func TestGivenKeyIsHashedAndNotRepeated(t *testing.T) {
	l, _ := fake(t)
	const key = "from-the-vault-0123456789abcdefghij"
	out := l.ok(key+"\n", "keys", "new", "--name=a", "--role=reader", "--trees=*", "--key-file=-")
	if strings.Contains(out, key) {
		t.Error("the key is printed")
	}
	if p := admitted(t, out[strings.Index(out, "a reader"):], key); p.Role != auth.RoleReader {
		t.Errorf("%+v", p)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	l.ok("", "keys", "new", "--name=a", "--role=reader", "--trees=*", "--key-file="+file)
}

func TestKeysWithoutSenseAreWrongUsage(t *testing.T) {
	l, _ := fake(t)
	for name, args := range map[string][]string{
		"short key": {"--name=a", "--role=reader", "--trees=*", "--key-file=-"}, "no trees": {"--name=a", "--role=reader"}, "no role": {"--name=a", "--trees=*"},
		"unknown role": {"--name=a", "--role=owner", "--trees=*"}, "internal with trees": {"--name=a", "--role=internal", "--trees=*"},
		"name": {"--name=a b", "--role=reader", "--trees=*"}, "pattern": {"--name=a", "--role=reader", "--trees=a/b"}, "burst": {"--name=a", "--role=reader", "--trees=*", "--burst=3"},
		"lifetime": {"--name=a", "--role=reader", "--trees=*", "--lifetime=-1h"},
	} {
		got := l.run("hunter2", append([]string{"keys", "new"}, args...)...)
		if got.code != ExitUsage || got.out != "" || strings.Contains(got.err, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := l.run("", "keys", "new", "--name=a", "--role=reader", "--trees=*", "--key-file="+filepath.Join(t.TempDir(), "none")); got.code != ExitFailed || got.out != "" {
		t.Errorf("no file: %+v", got)
	}
}
