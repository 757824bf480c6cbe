// Package local runs cmd/local as a process: how it starts, what it says, what
// it keeps, and how it ends.
package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

func send(t *testing.T, s *running.Service, method, path, body string, header ...string) (int, string) {
	t.Helper()
	got := running.Ask(t, s.Client, method, s.URL+path, strings.NewReader(body), header...)
	return got.Status, got.Body
}

func put(t *testing.T, s *running.Service, key, value string) {
	t.Helper()
	if status, body := send(t, s, "PUT", "/v1/trees/t/keys/"+key, value); status != 200 && status != 201 {
		t.Fatalf("put %s: %d %s", key, status, body)
	}
}

func wantValue(t *testing.T, s *running.Service, key, value string) {
	t.Helper()
	if status, body := send(t, s, "GET", "/v1/trees/t/keys/"+key, ""); status != 200 || body != value {
		t.Fatalf("get %s: %d %q, want %q", key, status, body, value)
	}
}

// eventually tries until it works, a minute at most.
func eventually(t *testing.T, s *running.Service, try func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !try() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it does not happen:\n%s", s.Output())
		}
	}
}

func TestWhatWasAcknowledgedSurvivesAStopAndAKill(t *testing.T) {
	dir := "--data-dir=" + filepath.Join(t.TempDir(), "data")
	first := running.Start(t, nil, dir)
	for i := range 50 {
		put(t, first, fmt.Sprintf("k%02d", i), fmt.Sprint(i))
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := running.Start(t, nil, dir)
	wantValue(t, second, "k49", "49")
	put(t, second, "late", "last words")
	second.Kill()
	began := time.Now()
	third := running.Start(t, nil, dir)
	wantValue(t, third, "late", "last words")
	put(t, third, "late", "new")
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("serving took %s after a kill: the lease of the dead process was waited for", took)
	}
	if status, body := send(t, third, "GET", "/v1/trees/t/count", ""); status != 200 || !strings.Contains(body, `"count":51`) {
		t.Errorf("count: %d %s", status, body)
	}
}

func TestScheduleRunsByItself(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", tls), func(t *testing.T) {
			args := []string{
				"--store=memory", "--data-dir=" + t.TempDir(), "--log-level=debug", "--log-format=json",
				"--checkpoint-interval=100ms", "--collect-interval=100ms", "--checkpoint-tail-rows=1",
			}
			if tls {
				args = append(args, "--tls")
			}
			s := running.Start(t, nil, args...)
			if strings.HasPrefix(s.URL, "https://") != tls {
				t.Fatalf("it serves at %s", s.URL)
			}
			put(t, s, "k", "v")
			for _, timer := range []string{"checkpoint", "collect"} {
				eventually(t, s, func() bool { return ran(s.Output(), timer) })
			}
			wantValue(t, s, "k", "v")
			if strings.Contains(s.Output(), "timer failed") {
				t.Errorf("a timer failed:\n%s", s.Output())
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// ran looks for the log line of a timer that ran; every line must be JSON.
func ran(output, timer string) bool {
	for line := range strings.Lines(output) {
		var entry struct{ Msg, Timer string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "timer ran" && entry.Timer == timer {
			return true
		}
	}
	return false
}

func TestJSONLogIsJSONFromTheFirstLine(t *testing.T) {
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir(), "--log-format=json")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.TrimSpace(s.Output())) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

func TestInternalTokenOfTheEnvironmentOpensTheTimers(t *testing.T) {
	s := running.Start(t, []string{"LATTICE_INTERNAL_TOKEN=open-sesame"}, "--store=memory", "--data-dir="+t.TempDir())
	const path = "/internal/timers/checkpoint"
	if status, body := send(t, s, "POST", path, "", "Authorization", "Bearer open-sesame"); status != 200 {
		t.Errorf("with the token: %d %s", status, body)
	}
	if status, _ := send(t, s, "POST", path, "", "Authorization", "Bearer other"); status != 401 {
		t.Errorf("with another token: %d", status)
	}
	if strings.Contains(s.Output(), "open-sesame") {
		t.Error("the token is in the output")
	}
}

func TestStartSaysWhereItServesAndWhatToTry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := running.Start(t, nil, "--data-dir="+dir)
	for _, want := range []string{"listening on " + s.URL, "bolt in " + dir, "curl ", s.URL + "/v1/trees/"} {
		if !strings.Contains(s.Output(), want) {
			t.Errorf("%q is not in:\n%s", want, s.Output())
		}
	}
	if strings.Contains(s.Output(), "WARNING") {
		t.Errorf("a warning for a loopback address:\n%s", s.Output())
	}
}

func TestAddressReachableFromElsewhereIsWarnedOf(t *testing.T) {
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir(), "--listen=0.0.0.0:0", "--insecure-no-auth")
	if !strings.Contains(s.Output(), "WARNING") {
		t.Errorf("no warning:\n%s", s.Output())
	}
	put(t, s, "k", "v")
}

func TestRefusalsToStartAreExplained(t *testing.T) {
	busy := running.Start(t, nil, "--data-dir="+filepath.Join(t.TempDir(), "data"))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	busyDir := strings.TrimSpace(between(busy.Output(), "bolt in ", "\n"))
	cases := map[string]struct {
		env, args, want []string
		code            int
	}{
		"port in use":      {nil, []string{"--store=memory", "--data-dir=" + t.TempDir(), "--listen=" + strings.TrimPrefix(busy.URL, "http://")}, []string{"in use", "--listen"}, 1},
		"folder in use":    {nil, []string{"--data-dir=" + busyDir}, []string{"in use by another process", "--data-dir", busyDir}, 1},
		"folder in a file": {nil, []string{"--data-dir=" + filepath.Join(file, "data")}, []string{file}, 1},
		"bad values":       {[]string{"LATTICE_LEASE_DURATION=soon"}, []string{"--store=redis", "--max-key-length=0"}, []string{"redis", "LeaseDuration", "MaxKeyLength"}, 2},
		"unknown flag":     {nil, []string{"--nonsense"}, []string{"--nonsense"}, 2},
		"bad connection":   {[]string{"AZURE_STORAGE_CONNECTION_STRING=AccountName=a;AccountKey=*c2VjcmV0*"}, []string{"--store=azure"}, []string{"connection string"}, 1},
		"open to others":   {nil, []string{"--store=memory", "--data-dir=" + t.TempDir(), "--listen=0.0.0.0:0"}, []string{"no credentials", "--auth-keys-file", "--insecure-no-auth"}, 1},
		"two wishes":       {[]string{"LATTICE_AUTH_KEYS=x"}, []string{"--insecure-no-auth"}, []string{"which one is meant"}, 2},
		"keys of no form":  {[]string{"LATTICE_AUTH_KEYS=hunter2"}, []string{"--store=memory", "--data-dir=" + t.TempDir()}, []string{"LATTICE_AUTH_KEYS: line 1"}, 1},
		"no certificate":   {nil, []string{"--store=memory", "--tls-cert=" + file, "--tls-key=" + file}, []string{"certificate"}, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := running.Run(t, c.env, running.Build(t, "cmd/local"), append([]string{"--listen=127.0.0.1:0"}, c.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Exited():
			case <-time.After(time.Minute):
				t.Fatalf("it started:\n%s", p.Output())
			}
			if p.ExitCode() != c.code {
				t.Errorf("it ended with %d, want %d", p.ExitCode(), c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(p.Output(), want) {
					t.Errorf("%q is not in:\n%s", want, p.Output())
				}
			}
			if strings.Contains(p.Output(), "c2VjcmV0") {
				t.Errorf("the key is in:\n%s", p.Output())
			}
		})
	}
	put(t, busy, "still", "here")
}

func between(s, from, to string) string {
	_, rest, _ := strings.Cut(s, from)
	part, _, _ := strings.Cut(rest, to)
	return part
}

// patient sends a body when the service asks for it: then it has taken the
// request up.
var patient = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}

func TestRunningRequestsFinishBeforeTheEnd(t *testing.T) {
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir())
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL+"/v1/trees/t/keys/slow", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	type result struct {
		status int
		err    error
	}
	done := make(chan result, 1)
	go func() {
		resp, err := patient.Do(req)
		if err != nil {
			done <- result{0, err}
			return
		}
		resp.Body.Close()
		done <- result{resp.StatusCode, nil}
	}()
	if _, err := more.Write([]byte("half of ")); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, func() bool { return strings.Contains(s.Output(), "shutting down") })
	if _, err := more.Write([]byte("a value")); err != nil {
		t.Fatal(err)
	}
	if err := more.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || r.status != 201 {
		t.Errorf("the running request got %d, %v", r.status, r.err)
	}
	<-s.Exited()
	if s.ExitCode() != 0 {
		t.Errorf("it ended with %d:\n%s", s.ExitCode(), s.Output())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := running.Start(t, nil, "--store=memory", "--data-dir="+t.TempDir(), "--shutdown-grace-period=1h")
	body, more := io.Pipe()
	defer more.Close()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL+"/v1/trees/t/keys/stuck", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	go func() {
		if resp, err := patient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := more.Write([]byte("never the end")); err != nil {
		t.Fatal(err)
	}
	for _, sign := range []string{"shutting down", ""} {
		if err := s.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		eventually(t, s, func() bool { return sign == "" || strings.Contains(s.Output(), sign) })
	}
	select {
	case <-s.Exited():
	case <-time.After(10 * time.Second):
		t.Fatalf("it goes on after the second signal:\n%s", s.Output())
	}
}

func TestProcessesShareOneAzurite(t *testing.T) {
	server := azurite.Start(t)
	env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()}
	one := running.Start(t, env, "--store=azurite", "--data-dir="+t.TempDir())
	two := running.Start(t, env, "--store=azurite", "--data-dir="+t.TempDir(), "--leases=false")
	put(t, one, "k", "of one")
	wantValue(t, two, "k", "of one")
	put(t, two, "k", "of two")
	wantValue(t, one, "k", "of two")
	if strings.Contains(one.Output(), azuriteKeyStart) {
		t.Error("the key is in the output")
	}
}

func TestLeasesAreGivenBackAtTheEnd(t *testing.T) {
	server := azurite.Start(t)
	env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()}
	args := []string{"--store=azurite", "--lease-duration=5m", "--data-dir=" + t.TempDir()}
	one := running.Start(t, env, args...)
	put(t, one, "k", "of one")
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	// Within the time for one request, and long before the lease would expire.
	two := running.Start(t, env, args...)
	put(t, two, "k", "of two")
	wantValue(t, two, "k", "of two")
}

// azuriteKeyStart begins the published key of the emulator.
const azuriteKeyStart = "Eby8vdM02xN"

func TestLargeBodiesGoBothWays(t *testing.T) {
	s := running.Start(t, nil, "--data-dir="+filepath.Join(t.TempDir(), "data"))
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	put(t, s, "large", string(value))
	wantValue(t, s, "large", string(value))
}
