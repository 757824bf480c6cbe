package hosts

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/functions/service"
	"github.com/latticekv/lattice/providers/backend"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

const emulator = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie"

// lambda is a function under the runtime interface emulator, which takes one
// event at a time.
type lambda struct {
	address string
	process *running.Process
	// headers are sent with every request.
	headers map[string]string
}

// startLambda starts a function. Its time-out is a minute unless env says
// otherwise, and it demands no credentials unless env names some.
func startLambda(t *testing.T, env ...string) *lambda {
	t.Helper()
	return startProgram(t, running.Build(t, "functions/awslambda"), env...)
}

// startProgram is startLambda for a program that was built otherwise.
func startProgram(t *testing.T, program string, env ...string) *lambda {
	t.Helper()
	address, runtime := fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	given := strings.Join(env, "\n")
	if !strings.Contains(given, "LATTICE_AUTH_KEYS=") {
		env = append(env, "LATTICE_INSECURE_NO_AUTH=true")
	}
	if !strings.Contains(given, "AWS_LAMBDA_FUNCTION_TIMEOUT=") {
		env = append(env, "AWS_LAMBDA_FUNCTION_TIMEOUT=60")
	}
	p, err := running.Run(t, env, running.Build(t, emulator),
		"--runtime-interface-emulator-address", address, "--runtime-api-address", runtime, program)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, p, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return &lambda{address: address, process: p}
}

// answer is an HTTP answer, whatever form it travelled in.
type answer struct {
	status int
	header http.Header
	body   string
}

// field returns a field of the body, empty if it has none of this name.
func (a answer) field(name string) string {
	var fields map[string]any
	if err := json.Unmarshal([]byte(a.body), &fields); err != nil || fields[name] == nil {
		return ""
	}
	return fmt.Sprint(fields[name])
}

// String keeps long bodies out of failures.
func (a answer) String() string { return fmt.Sprintf("%d %.500q", a.status, a.body) }

// send sends an event and returns what came of the invocation.
func (l *lambda) send(event any) (string, error) {
	text, err := json.Marshal(event)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+l.address+"/2015-03-31/functions/function/invocations", bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("the emulator answered %d %s", resp.StatusCode, got)
	}
	return string(got), err
}

// invoke sends an event and returns what the function returned.
func (l *lambda) invoke(t *testing.T, event any) string {
	t.Helper()
	got, err := l.send(event)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// try sends an HTTP event of payload version 2.0 as a function URL does, the
// body as base64. Headers are name, value, name, value.
func (l *lambda) try(method, path, query, body string, headers ...string) (answer, error) {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: query,
		Headers: map[string]string{"host": "lattice.example"},
		Body:    base64.StdEncoding.EncodeToString([]byte(body)), IsBase64Encoded: true,
	}
	for name, value := range l.headers {
		e.Headers[name] = value
	}
	for i := 0; i < len(headers); i += 2 {
		e.Headers[headers[i]] = headers[i+1]
	}
	e.RequestContext.Stage, e.RequestContext.DomainName = "$default", "abcdef.lambda-url.eu-central-1.on.aws"
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.SourceIP = method, path, "198.51.100.7"
	text, err := l.send(e)
	if err != nil {
		return answer{}, err
	}
	a, err := decodeAnswer(text)
	if err != nil {
		err = fmt.Errorf("%s %s returned %.500q: %w", method, path, text, err)
	}
	return a, err
}

// decodeAnswer reads an answer of either form: one JSON document, or one with
// status and header, eight zero bytes, and the body as it is.
func decodeAnswer(text string) (answer, error) {
	prelude, streamed, isStream := strings.Cut(text, "\x00\x00\x00\x00\x00\x00\x00\x00")
	var form events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal([]byte(prelude), &form); err != nil {
		return answer{}, err
	}
	if form.StatusCode == 0 {
		return answer{}, fmt.Errorf("there is no status")
	}
	a := answer{status: form.StatusCode, header: http.Header{}, body: form.Body}
	for name, value := range form.Headers {
		a.header.Set(name, value)
	}
	if isStream {
		a.body = streamed
	} else if form.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(form.Body)
		if err != nil {
			return answer{}, err
		}
		a.body = string(decoded)
	}
	return a, nil
}

// call is try for a test that cannot go on without an answer.
func (l *lambda) call(t *testing.T, method, path, query, body string, headers ...string) answer {
	t.Helper()
	a, err := l.try(method, path, query, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request is call for those who look at status and body alone.
func (l *lambda) request(t *testing.T, method, path, query, body string) (int, string) {
	t.Helper()
	a := l.call(t, method, path, query, body)
	return a.status, a.body
}

// bootstrap returns the process id of the function itself, which the emulator
// started for the first event.
func (l *lambda) bootstrap(t *testing.T) int {
	t.Helper()
	processes, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if _, parent := processState(pid); parent == l.process.PID() {
			return pid
		}
	}
	t.Fatalf("the emulator has no child:\n%s", l.process.Output())
	return 0
}

// processState returns the state of a process and its parent, zero if there is
// no such process.
func processState(pid int) (state string, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	// The name, in parentheses, may have anything in it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, err = strconv.Atoi(fields[1])
	if err != nil {
		return "", 0
	}
	return fields[0], parent
}

// freeze stops the function, as the host does, and returns what lets it go on.
func (l *lambda) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	pid := l.bootstrap(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(thaw)
	waitFor(t, l.process, func() error {
		if state, _ := processState(pid); state != "T" {
			return fmt.Errorf("the function is in state %q", state)
		}
		return nil
	})
	return thaw
}

// cloud is a store on the emulator of the account, with any number of instances.
type cloud struct {
	server *azurite.Emulator
	env    []string
}

// newCloud returns a store of its own. Every instance gets the settings.
func newCloud(t *testing.T, env ...string) *cloud {
	t.Helper()
	server := azurite.Shared(t)
	return &cloud{server, append(env, "LATTICE_STORE=azure", "AZURE_STORAGE_CONNECTION_STRING="+server.ConnectionString(),
		"LATTICE_TABLE_NAME="+server.TableName(t), "LATTICE_CONTAINER_NAME="+server.ContainerName(t))}
}

// through returns the environment of an instance whose calls of the table pass a
// gate.
func (c *cloud) through(g *tableGate) []string {
	var env []string
	for _, pair := range c.env {
		env = append(env, strings.ReplaceAll(pair, c.server.TableURL(), g.tableURL))
	}
	return env
}

const peerToken = "token-of-the-peer"

// peer is an instance of the service in this process.
type peer struct{ service *service.Service }

func (c *cloud) peer(t *testing.T) *peer {
	t.Helper()
	lookup := func(name string) (string, bool) {
		for _, pair := range c.env {
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
	o := options.Default()
	if err := o.SetFromEnv(lookup); err != nil {
		t.Fatal(err)
	}
	stores, err := backend.Open(t.Context(), backend.FromEnv(lookup, backend.Azure))
	if err != nil {
		t.Fatal(err)
	}
	svc, err := service.New(service.Config{Table: stores.Table, Blobs: stores.Blobs, Options: o, InternalToken: peerToken})
	if err != nil {
		t.Fatal(err)
	}
	return &peer{svc}
}

func (p *peer) call(t *testing.T, method, path, query, body string, headers ...string) answer {
	t.Helper()
	if query != "" {
		path += "?" + query
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.service.Handler().ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// insist repeats a request until it is not told to come again.
func (p *peer) insist(t *testing.T, method, path, query, body string, headers ...string) answer {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		a := p.call(t, method, path, query, body, headers...)
		if a.status != 503 {
			return a
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %s is refused without end: %s", method, path, a)
		}
	}
}

// tick runs a timer.
func (p *peer) tick(t *testing.T, name string) answer {
	t.Helper()
	return p.call(t, "POST", "/internal/timers/"+name, "", "", "Authorization", "Bearer "+peerToken)
}
