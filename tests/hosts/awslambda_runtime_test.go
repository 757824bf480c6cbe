package hosts

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/tests/running"
)

// runtimeAPI is the side of the host that a function talks to. Unlike the
// emulator it takes an answer while it is made.
type runtimeAPI struct {
	function *running.Process
	asked    chan struct{}
	events   chan hostEvent
	answers  chan *hostAnswer
}

type hostEvent struct {
	payload  string
	deadline time.Time
}

// hostAnswer is an answer on its way from the function.
type hostAnswer struct {
	path string
	body *bufio.Reader
	// request has the trailers, once the body was read.
	request *http.Request
	done    chan struct{}
}

// finish ends the exchange, whether the body was read or not.
func (a *hostAnswer) finish() { close(a.done) }

func startOnRuntimeAPI(t *testing.T, env ...string) *runtimeAPI {
	t.Helper()
	api := &runtimeAPI{asked: make(chan struct{}, 1), events: make(chan hostEvent), answers: make(chan *hostAnswer)}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	env = append(env, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "LATTICE_INSECURE_NO_AUTH=true", "LATTICE_STORE=memory")
	var err error
	if api.function, err = running.Run(t, env, running.Build(t, "functions/awslambda")); err != nil {
		t.Fatal(err)
	}
	// Its connections end before the server that waits for them.
	t.Cleanup(api.function.Kill)
	return api
}

// ServeHTTP implements http.Handler.
func (api *runtimeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/invocation/next") {
		select {
		case api.asked <- struct{}{}:
		default:
		}
		select {
		case e := <-api.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "invocation")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(e.deadline.UnixMilli()))
			_, _ = io.WriteString(w, e.payload)
		case <-r.Context().Done():
		}
		return
	}
	a := &hostAnswer{r.URL.Path, bufio.NewReader(r.Body), r, make(chan struct{})}
	select {
	case api.answers <- a:
		<-a.done
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusAccepted)
}

// ready waits until the function asks for an event: what it did before is over.
func (api *runtimeAPI) ready(t *testing.T) {
	t.Helper()
	select {
	case <-api.asked:
	case <-api.function.Exited():
		t.Fatalf("the function ended:\n%s", api.function.Output())
	case <-time.After(time.Minute):
		t.Fatalf("the function asks for no event:\n%s", api.function.Output())
	}
}

// invoke sends an HTTP event and returns the answer when its header is there.
func (api *runtimeAPI) invoke(t *testing.T, left time.Duration, method, path, body string, headers ...string) (*hostAnswer, answer) {
	t.Helper()
	api.ready(t)
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RawPath: path, Headers: map[string]string{}, Body: base64.StdEncoding.EncodeToString([]byte(body)), IsBase64Encoded: true,
	}
	for i := 0; i < len(headers); i += 2 {
		e.Headers[headers[i]] = headers[i+1]
	}
	e.RequestContext.DomainName, e.RequestContext.HTTP.Method = "abcdef.lambda-url.eu-central-1.on.aws", method
	payload, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	api.events <- hostEvent{string(payload), time.Now().Add(left)}
	select {
	case a := <-api.answers:
		if !strings.HasSuffix(a.path, "/invocation/invocation/response") {
			t.Fatalf("the function called %s", a.path)
		}
		prelude, err := a.body.ReadString(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.body.Discard(7); err != nil {
			t.Fatal(err)
		}
		head, err := decodeAnswer(strings.TrimSuffix(prelude, "\x00"))
		if err != nil {
			t.Fatal(err)
		}
		return a, head
	case <-time.After(time.Minute):
		t.Fatalf("no answer:\n%s", api.function.Output())
		return nil, answer{}
	}
}

const (
	streamedEntries = 64
	streamedSize    = 512 << 10
)

// fill writes entries of 32 MiB together: far more than what the sockets between
// a function and its host hold.
func (api *runtimeAPI) fill(t *testing.T) {
	t.Helper()
	value := strings.Repeat("\x00\xff\x80\n", streamedSize/4)
	for n := range streamedEntries {
		a, head := api.invoke(t, time.Minute, "PUT", fmt.Sprintf("/v1/trees/t/keys/%03d", n), value)
		if _, err := io.Copy(io.Discard, a.body); err != nil || head.status != 201 {
			t.Fatalf("put: %s, %v", head, err)
		}
		a.finish()
	}
}

var asStream = []string{"accept", "application/x-ndjson"}

func TestLambdaStreamsWhileItReads(t *testing.T) {
	api := startOnRuntimeAPI(t, "LATTICE_LAMBDA_RESPONSE_STREAM=true")
	api.fill(t)
	t.Run("whole", func(t *testing.T) {
		a, head := api.invoke(t, time.Minute, "GET", "/v1/trees/t/entries", "", asStream...)
		defer a.finish()
		lines := 0
		var last entryLine
		for {
			line, err := a.body.ReadString('\n')
			if errors.Is(err, io.EOF) {
				break
			}
			last = entryLine{}
			if err := json.Unmarshal([]byte(line), &last); err != nil || !last.End && len(last.Value) != streamedSize {
				t.Fatalf("line %d: %v", lines, err)
			}
			lines++
		}
		if head.status != 200 || lines != streamedEntries+1 || !last.End || last.Count != streamedEntries {
			t.Errorf("%s: %d lines, the last is %+v", head, lines, last)
		}
		if kind := a.request.Trailer.Get("Lambda-Runtime-Function-Error-Type"); kind != "" {
			t.Errorf("a whole stream is told to have failed: %s", kind)
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		// Until shortly before the deadline the function waits for its reader. Then
		// it must give up by itself, and the stream must show it.
		a, _ := api.invoke(t, 3*time.Second, "GET", "/v1/trees/t/entries", "", asStream...)
		if _, err := a.body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		<-time.After(2900 * time.Millisecond)
		rest, err := io.ReadAll(a.body)
		if err != nil {
			t.Fatal(err)
		}
		a.finish()
		if len(rest) > streamedEntries*streamedSize/2 {
			t.Errorf("%d bytes were under way without a reader", len(rest))
		}
		if strings.Contains(string(rest), `"end":true`) {
			t.Error("a stream that broke off looks complete")
		}
		failure, err := base64.StdEncoding.DecodeString(a.request.Trailer.Get("Lambda-Runtime-Function-Error-Body"))
		if err != nil || !strings.Contains(string(failure), "time for the invocation ran out") {
			t.Errorf("the trailers tell of %q, %v", failure, err)
		}
	})
	t.Run("the reader goes away", func(t *testing.T) {
		a, _ := api.invoke(t, time.Minute, "GET", "/v1/trees/t/entries", "", asStream...)
		if _, err := a.body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		a.finish()
		api.ready(t)
		// The request is over, its line in the log, when the next event is asked for;
		// the line comes here by a pipe of its own.
		api.asked <- struct{}{}
		waitFor(t, api.function, func() error {
			if n := strings.Count(api.function.Output(), "/v1/trees/{tree}/entries"); n != 3 {
				return fmt.Errorf("%d of 3 streams have ended", n)
			}
			return nil
		})
	})
	t.Run("and it serves on", func(t *testing.T) {
		a, head := api.invoke(t, time.Minute, "GET", "/v1/trees/t/count", "")
		body, err := io.ReadAll(a.body)
		a.finish()
		if err != nil || head.status != 200 || !strings.Contains(string(body), fmt.Sprintf(`"count":%d`, streamedEntries)) {
			t.Errorf("%s %s, %v", head, body, err)
		}
	})
}

func TestLambdaRefusesWhatThereIsNoTimeFor(t *testing.T) {
	api := startOnRuntimeAPI(t, "LATTICE_LAMBDA_RESPONSE_STREAM=true")
	start := time.Now()
	a, head := api.invoke(t, 100*time.Millisecond, "PUT", "/v1/trees/t/keys/k", "v")
	body, err := io.ReadAll(a.body)
	a.finish()
	if err != nil || head.status != 503 || head.header.Get("Retry-After") == "" || !strings.Contains(string(body), "nothing was done") || time.Since(start) > 50*time.Second {
		t.Errorf("%s %s, %v", head, body, err)
	}
	a, head = api.invoke(t, time.Minute, "GET", "/v1/trees/t/keys/k", "")
	if a.finish(); head.status != 404 {
		t.Errorf("the key of the refused write: %s", head)
	}
}
