package local

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

// apiKey is what the tool prints of a new key.
type apiKey struct{ Key, Line string }

func lattice(t *testing.T, env []string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), running.Build(t, "cmd/lattice"), args...)
	cmd.Env = env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String() + stderr.String(), err
}

func newAPIKey(t *testing.T, name, role, trees string) apiKey {
	t.Helper()
	args := []string{"keys", "new", "--json", "--name", name, "--role", role}
	if trees != "" {
		args = append(args, "--trees", trees)
	}
	out, err := lattice(t, nil, args...)
	var k apiKey
	if err != nil || json.Unmarshal([]byte(out), &k) != nil || k.Key == "" {
		t.Fatalf("%v: %s", err, out)
	}
	return k
}

func replaceKeys(t *testing.T, file string, keys ...apiKey) {
	t.Helper()
	text := ""
	for _, k := range keys {
		text += k.Line + "\n"
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TestKeysOfTheToolOpenTheServiceAndAreRotated is the way of an operator: keys
// by the tool, a service that others can reach, a rotation without a restart.
func TestKeysOfTheToolOpenTheServiceAndAreRotated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	first, second := newAPIKey(t, "first", "writer", "orders*"), newAPIKey(t, "second", "writer", "orders*")
	cron, admin := newAPIKey(t, "cron", "internal", ""), newAPIKey(t, "root", "admin", "*")
	replaceKeys(t, file, first, cron, admin)
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir(), "--listen=0.0.0.0:0", "--tls", "--auth-keys-file="+file, "--log-level=debug")
	if strings.Contains(s.Output(), "WARNING") || !strings.Contains(s.Output(), "Authorization: Bearer $LATTICE_TOKEN") {
		t.Errorf("it does not say how to call it:\n%s", s.Output())
	}
	as := func(k apiKey, method, path string) int {
		t.Helper()
		status, body := send(t, s, method, path, "v", "Authorization", "Bearer "+k.Key)
		if strings.Contains(body, k.Key) {
			t.Error("the key is in an answer")
		}
		return status
	}
	const key, tick = "/v1/trees/orders-1/keys/a", "/internal/timers/collect"
	for _, c := range []struct {
		k            apiKey
		method, path string
		want         int
	}{
		{first, "PUT", key, 201}, {second, "PUT", key, 401}, {first, "PUT", "/v1/trees/people/keys/a", 403}, {cron, "GET", key, 403},
		{admin, "GET", key, 200}, {admin, "POST", tick, 403}, {cron, "POST", tick, 200}, {first, "GET", "/metrics", 403}, {cron, "GET", "/metrics", 200},
		{apiKey{Key: "nobody"}, "GET", "/healthz", 200},
	} {
		if got := as(c.k, c.method, c.path); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.want)
		}
	}
	replaceKeys(t, file, second, cron)
	deadline, again := time.After(time.Minute), time.NewTicker(200*time.Millisecond)
	defer again.Stop()
	for as(second, "GET", key) != 200 {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the new key is not taken over:\n%s", s.Output())
		}
	}
	if status := as(first, "GET", key); status != 401 {
		t.Errorf("the old key: %d", status)
	}
	if !strings.Contains(s.Output(), "credential=key:second") {
		t.Error("the log does not name the credential")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, k := range []apiKey{first, second, cron, admin} {
		if strings.Contains(s.Output(), k.Key) {
			t.Error("a key is in the output of the service")
		}
	}
}

func TestToolSaysWhatIsWrongWithItsToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	k := newAPIKey(t, "first", "reader", "orders*")
	replaceKeys(t, file, k)
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir(), "--auth-keys-file="+file)
	for want, c := range map[string][]string{
		"Give a token":              {"", "get", "orders-1", "k"},
		"does not accept the token": {k.Key + "x", "get", "orders-1", "k"},
		"The role of the token":     {k.Key, "set", "orders-1", "k", "v"},
		"tree":                      {k.Key, "get", "orders-1", "k"},
	} {
		env := []string{"LATTICE_SERVER=" + s.URL}
		if c[0] != "" {
			env = append(env, "LATTICE_TOKEN="+c[0])
		}
		out, err := lattice(t, env, c[1:]...)
		if err == nil || !strings.Contains(out, want) || strings.Contains(out, k.Key) {
			t.Errorf("%v: %s, want %q", c[1:], out, want)
		}
	}
}
