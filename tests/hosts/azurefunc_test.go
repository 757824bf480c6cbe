package hosts

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

// freePort returns a port of the loopback address that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// waitFor tries until it works, or the process or the time is over.
func waitFor(t *testing.T, p *running.Process, try func() error) {
	t.Helper()
	deadline, tick := time.After(60*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.Exited():
			t.Fatalf("the program ended with %d:\n%s", p.ExitCode(), p.Output())
		case <-deadline:
			t.Fatalf("%v:\n%s", err, p.Output())
		}
	}
}

func startAzureFunc(t *testing.T, env ...string) (*running.Process, string) {
	t.Helper()
	port := freePort(t)
	env = append(env, "LATTICE_INSECURE_NO_AUTH=true", fmt.Sprintf("FUNCTIONS_CUSTOMHANDLER_PORT=%d", port))
	p, err := running.Run(t, env, running.Build(t, "functions/azurefunc"))
	if err != nil {
		t.Fatal(err)
	}
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	waitFor(t, p, func() error {
		resp, err := http.Get(base + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	return p, base
}

func TestCustomHandlerServesForwardedRequests(t *testing.T) {
	p, base := startAzureFunc(t, "LATTICE_STORE=memory")
	value := "\x00\xff\x80\n"
	if status, body := do(t, "PUT", base+"/v1/trees/t/keys/a%2Fb", value); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	if status, body := do(t, "GET", base+"/v1/trees/t/keys/a%2Fb", ""); status != 200 || body != value {
		t.Fatalf("get: %d %q", status, body)
	}
	// Forwarding may rewrite a path; the key in the query is for that.
	if status, body := do(t, "GET", base+"/v1/trees/t/key?b64=YS9i", ""); status != 200 || body != value {
		t.Fatalf("get by query: %d %q", status, body)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestCustomHandlerRunsTimers(t *testing.T) {
	_, base := startAzureFunc(t, "LATTICE_STORE=memory")
	if status, body := do(t, "PUT", base+"/v1/trees/t/keys/a", "v"); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	for _, timer := range []string{"checkpoint", "collect"} {
		status, body := do(t, "POST", base+"/"+timer, `{"Data":{"timer":{"IsPastDue":false}},"Metadata":{}}`)
		var answer struct {
			Outputs     map[string]any
			Logs        []string
			ReturnValue struct{ OK bool }
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
			t.Fatalf("%s: %d %s: %v", timer, status, body, err)
		}
		if !answer.ReturnValue.OK || len(answer.Logs) != 1 || answer.Outputs == nil {
			t.Errorf("%s: %s", timer, body)
		}
	}
	if status, _ := do(t, "POST", base+"/internal/timers/checkpoint", ""); status != 401 && status != 403 {
		t.Errorf("a timer without the internal credential answered %d", status)
	}
}

func TestCustomHandlerSaysWhatItLacks(t *testing.T) {
	for want, env := range map[string][]string{
		"FUNCTIONS_CUSTOMHANDLER_PORT":    {"LATTICE_STORE=memory"},
		"AZURE_STORAGE_CONNECTION_STRING": {"FUNCTIONS_CUSTOMHANDLER_PORT=0", "LATTICE_INSECURE_NO_AUTH=true"},
		"no credentials are configured":   {"FUNCTIONS_CUSTOMHANDLER_PORT=0", "LATTICE_STORE=memory"},
		"MaxKeyLength":                    {"FUNCTIONS_CUSTOMHANDLER_PORT=0", "LATTICE_STORE=memory", "LATTICE_MAX_KEY_LENGTH=0"},
	} {
		p, err := running.Run(t, env, running.Build(t, "functions/azurefunc"))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
		if p.ExitCode() != 1 || !strings.Contains(p.Output(), want) {
			t.Errorf("ended with %d, and does not name %s:\n%s", p.ExitCode(), want, p.Output())
		}
	}
}
