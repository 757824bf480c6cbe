package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/functions/tick"
)

// newHost is a host in front of a service, with a limit that no test reaches.
func newHost(service http.Handler) *host {
	return &host{service, "secret", slog.New(slog.DiscardHandler), time.Minute}
}

func TestAddressIsTheHostsPortOnLoopback(t *testing.T) {
	cases := []struct{ port, want string }{
		{"7071", "127.0.0.1:7071"}, {"0", "127.0.0.1:0"}, {"", ""}, {"http", ""}, {"70000", ""}, {"-1", ""},
	}
	for _, c := range cases {
		got, err := address(func(name string) (string, bool) { return c.port, name == portVariable })
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("port %q gave %q, %v; want %q", c.port, got, err, c.want)
		}
	}
	if _, err := address(func(string) (string, bool) { return "", false }); err == nil || !strings.Contains(err.Error(), portVariable) {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

// invocations are bodies that the host has been seen to send, good and bad.
var invocations = map[string]string{
	"well formed": `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,"IsPastDue":false}},"Metadata":{"sys":{"MethodName":"checkpoint"}}}`,
	"as text":     `{"Data":{"timer":"{\"IsPastDue\":false}"},"Metadata":{}}`,
	"malformed":   `{"Data":{"timer":{"Last":"0001-01-01T00:00:00-99"`,
	"empty":       ``,
}

func post(t *testing.T, h http.Handler, path, body string) (*http.Response, []byte) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := server.Client().Post(server.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, answer
}

func TestTimerInvocationRunsTheTimer(t *testing.T) {
	for name, body := range invocations {
		t.Run(name, func(t *testing.T) {
			var called []string
			service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called = append(called, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
				_, _ = io.WriteString(w, `{"checkpoints":2}`)
			})
			resp, answer := post(t, newHost(service), "/checkpoint", body)
			if want := "POST /internal/timers/checkpoint Bearer secret"; len(called) != 1 || called[0] != want {
				t.Fatalf("called %q, want %q once", called, want)
			}
			want := `{"Outputs":{},"Logs":["timer checkpoint: {\"checkpoints\":2}"],"ReturnValue":{"ok":true,"result":{"checkpoints":2}}}`
			if resp.StatusCode != 200 || strings.TrimSpace(string(answer)) != want {
				t.Fatalf("answered %d %s", resp.StatusCode, answer)
			}
		})
	}
}

func TestTimerRunsUnderTheIdOfTheInvocation(t *testing.T) {
	id := ""
	service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id = r.Header.Get("X-Request-Id")
		_, _ = io.WriteString(w, `{}`)
	})
	r := httptest.NewRequest(http.MethodPost, "/checkpoint", strings.NewReader("{}"))
	r.Header.Set("X-Azure-Functions-InvocationId", "4f2c-1")
	newHost(service).invoke(httptest.NewRecorder(), r, "checkpoint")
	if id != "4f2c-1" {
		t.Errorf("the service got the id %q", id)
	}
}

func TestFailedTimerIsToldInsideA200(t *testing.T) {
	failures := map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			_, _ = io.WriteString(w, `{"detail":"storage is away"}`)
		},
		"panic": func(http.ResponseWriter, *http.Request) { panic("storage is away") },
	}
	for name, service := range failures {
		t.Run(name, func(t *testing.T) {
			resp, body := post(t, newHost(service), "/collect", "{}")
			var answer struct {
				Outputs     map[string]any
				Logs        []string
				ReturnValue tickOutcome
			}
			if err := json.Unmarshal(body, &answer); err != nil || resp.StatusCode != 200 {
				t.Fatalf("answered %d %s: %v", resp.StatusCode, body, err)
			}
			if answer.ReturnValue.OK || !strings.Contains(answer.ReturnValue.Error, "storage is away") {
				t.Errorf("value %+v does not tell the failure", answer.ReturnValue)
			}
			if len(answer.Logs) != 1 || !strings.Contains(answer.Logs[0], "storage is away") || answer.Outputs == nil {
				t.Errorf("logs %q, outputs %v", answer.Logs, answer.Outputs)
			}
		})
	}
}

func TestEverythingElseIsTheService(t *testing.T) {
	for _, c := range []struct{ method, path string }{
		{"GET", "/checkpoint"}, {"POST", "/"}, {"POST", "/v1/trees/t/batch"}, {"POST", "/internal/timers/collect"},
		{"PUT", "/v1/trees/t/keys/checkpoint"}, {"POST", "/collect/"}, {"POST", "//collect"},
	} {
		served := false
		service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served = r.Method == c.method && r.URL.Path == c.path && r.Header.Get("Authorization") == ""
		})
		h := newHost(service)
		r := httptest.NewRequest(c.method, "http://lattice.test"+c.path, http.NoBody)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if !served {
			t.Errorf("%s %s did not reach the service as it was", c.method, c.path)
		}
	}
}

// binding is what the tests look at in a function.json.
type binding struct {
	Type, Direction, Route, AuthLevel, Schedule string
}

func readBindings(t *testing.T) map[string][]binding {
	t.Helper()
	files, err := filepath.Glob("../../infra/azurefunc/*/function.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no functions found: %v", err)
	}
	functions := map[string][]binding{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f struct{ Bindings []binding }
		if err := json.Unmarshal(text, &f); err != nil || len(f.Bindings) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		functions[filepath.Base(filepath.Dir(file))] = f.Bindings
	}
	return functions
}

func TestEveryTimerIsAFunctionWithASchedule(t *testing.T) {
	functions := readBindings(t)
	for _, timer := range tick.Names() {
		bindings := functions[timer]
		if len(bindings) != 1 || bindings[0].Type != "timerTrigger" || len(strings.Fields(bindings[0].Schedule)) != 6 {
			t.Errorf("%s: bindings %+v", timer, bindings)
		}
	}
}

func TestNoRouteFromOutsideReachesATimer(t *testing.T) {
	for name, bindings := range readBindings(t) {
		for _, b := range bindings {
			if b.Type != "httpTrigger" {
				continue
			}
			first, _, _ := strings.Cut(b.Route, "/")
			if first == "" || strings.Contains(first, "{") || first == "internal" || slices.Contains(tick.Names(), first) {
				t.Errorf("function %s is reached by route %q", name, b.Route)
			}
		}
	}
}

func TestHostConfigurationForwardsRequests(t *testing.T) {
	text, err := os.ReadFile("../../infra/azurefunc/host.json")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Extensions    struct{ HTTP struct{ RoutePrefix *string } }
		CustomHandler struct {
			Description                 struct{ DefaultExecutablePath string }
			EnableForwardingHTTPRequest bool
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if p := config.Extensions.HTTP.RoutePrefix; p == nil || *p != "" {
		t.Error("the API is not at the root")
	}
	if h := config.CustomHandler; !h.EnableForwardingHTTPRequest || h.Description.DefaultExecutablePath != "handler" {
		t.Errorf("custom handler %+v", h)
	}
}
