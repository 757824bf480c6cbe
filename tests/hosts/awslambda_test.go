package hosts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

const emulator = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie"

// lambda is a function under the runtime interface emulator, which takes one
// event at a time.
type lambda struct{ address string }

func startLambda(t *testing.T, env ...string) *lambda {
	t.Helper()
	address, runtime := fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	env = append(env, "LATTICE_INSECURE_NO_AUTH=true", "AWS_LAMBDA_FUNCTION_TIMEOUT=60")
	p, err := running.Run(t, env, running.Build(t, emulator),
		"--runtime-interface-emulator-address", address, "--runtime-api-address", runtime,
		running.Build(t, "functions/awslambda"))
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
	return &lambda{address}
}

// invoke sends an event and returns what the function returned.
func (l *lambda) invoke(t *testing.T, event any) string {
	t.Helper()
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := do(t, "POST", "http://"+l.address+"/2015-03-31/functions/function/invocations", string(text))
	if status != 200 {
		t.Fatalf("the emulator answered %d %s", status, answer)
	}
	return answer
}

// request sends an HTTP event of payload version 2.0, the body as base64.
func (l *lambda) request(t *testing.T, method, path, query, body string) (int, string) {
	t.Helper()
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: query,
		Headers: map[string]string{"host": "lattice.example"},
		Body:    base64.StdEncoding.EncodeToString([]byte(body)), IsBase64Encoded: true,
	}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.SourceIP = method, path, "198.51.100.7"
	var answer events.APIGatewayV2HTTPResponse
	text := l.invoke(t, e)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.StatusCode == 0 {
		t.Fatalf("%s %s returned %s: %v", method, path, text, err)
	}
	if !answer.IsBase64Encoded {
		return answer.StatusCode, answer.Body
	}
	decoded, err := base64.StdEncoding.DecodeString(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(decoded)
}

func TestLambdaServesRequests(t *testing.T) {
	l := startLambda(t, "LATTICE_STORE=memory")
	value := "\x00\xff\x80\n"
	if status, body := l.request(t, "PUT", "/v1/trees/t/keys/a%2Fb", "", value); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/keys/a%2Fb", "", ""); status != 200 || body != value {
		t.Fatalf("get: %d %q", status, body)
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/count", "prefix=a", ""); status != 200 || !strings.Contains(body, `"count":1`) {
		t.Fatalf("count: %d %s", status, body)
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/keys/none", "", ""); status != 404 || !strings.Contains(body, "key_not_found") {
		t.Fatalf("get of nothing: %d %s", status, body)
	}
}

func TestLambdaAnswersWhatIsTooLargeForIt(t *testing.T) {
	l := startLambda(t, "LATTICE_STORE=memory")
	part := strings.Repeat("x", 3<<20)
	for _, key := range []string{"a", "b"} {
		if status, body := l.request(t, "PUT", "/v1/trees/t/keys/"+key, "", part); status != 201 {
			t.Fatalf("put: %d %s", status, body)
		}
	}
	if status, body := l.request(t, "GET", "/v1/trees/t/keys/a", "", ""); status != 200 || body != part {
		t.Fatalf("get: %d with %d bytes", status, len(body))
	}
	if status, body := l.request(t, "POST", "/v1/trees/t/batch-get", "", `{"keys":["a","b"]}`); status != 413 || !strings.Contains(body, "this host") {
		t.Fatalf("batch-get of two: %d with %d bytes", status, len(body))
	}
}

func TestLambdaRunsTimersOnAzurite(t *testing.T) {
	server := azurite.Start(t)
	env := []string{"LATTICE_STORE=azure", "AZURE_STORAGE_CONNECTION_STRING=" + server.ConnectionString()}
	l := startLambda(t, env...)
	if status, body := l.request(t, "PUT", "/v1/trees/t/keys/k", "", "v"); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	for _, event := range []string{`{"timer":"checkpoint"}`, `{"source":"aws.events","detail-type":"Scheduled Event"}`} {
		answer := l.invoke(t, json.RawMessage(event))
		var done map[string]json.RawMessage
		if err := json.Unmarshal([]byte(answer), &done); err != nil || done["checkpoint"] == nil {
			t.Fatalf("%s returned %s", event, answer)
		}
	}
	// Another instance, cold, sees it.
	if status, body := startLambda(t, env...).request(t, "GET", "/v1/trees/t/keys/k", "", ""); status != 200 || body != "v" {
		t.Fatalf("get by another instance: %d %q", status, body)
	}
	if answer := l.invoke(t, json.RawMessage(`{"source":"aws.s3"}`)); !strings.Contains(answer, "neither an HTTP event") {
		t.Fatalf("an unknown event returned %s", answer)
	}
}
