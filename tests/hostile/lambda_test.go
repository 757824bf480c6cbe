package hostile

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/tests/running"
)

// leastEvents is how many attacks reach the function at least: an event can say
// most of what a connection can.
const leastEvents = 300

// hostileEvents sends the attacks that are requests at all as events of a function
// URL, as Lambda would hand them on.
func (w *world) hostileEvents(t *testing.T, groups map[string][]attack) {
	function, sent := w.startFunction(), 0
	for name, group := range groups {
		if name == "framing" {
			continue
		}
		for i := range group {
			a := &group[i]
			event, ok := eventOf(t, a)
			if !ok {
				continue
			}
			sent++
			t.Run(a.name, func(t *testing.T) {
				answer, err := function.invoke(t.Context(), event)
				if err != nil {
					t.Fatal(err)
				}
				a.judge(t, replyOf(t, answer))
			})
		}
	}
	if sent < leastEvents {
		t.Errorf("%d events", sent)
	}
	t.Logf("%d events", sent)
	for name, event := range map[string]string{
		"a timer that there is not": `{"timer":"../collect"}`, "no event": `{}`, "text": `"x"`, "another version": `{"version":"1.0","requestContext":{"http":{}}}`, "a body that is no base64": `{"version":"2.0","rawPath":"/v1/trees","body":"***","isBase64Encoded":true,"requestContext":{"http":{"method":"POST"}}}`,
		"a method that is none": `{"version":"2.0","rawPath":"/v1/trees","requestContext":{"http":{"method":"GET /internal HTTP/1.1\r\nX: y"}}}`,
	} {
		answer, err := function.invoke(t.Context(), event)
		if err != nil || strings.Contains(answer, `"statusCode":200`) || inner.MatchString(answer) {
			t.Errorf("%s: %v %s", name, err, answer)
		}
	}
}

// startFunction runs the Lambda program over the storage of the world.
func (w *world) startFunction() *runtimeAPI {
	w.t.Helper()
	api := &runtimeAPI{events: make(chan string), answers: make(chan string)}
	server := httptest.NewServer(api)
	w.t.Cleanup(server.Close)
	env := append(w.env, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "AWS_LAMBDA_FUNCTION_TIMEOUT=60")
	p, err := running.Run(w.t, env, running.Build(w.t, "functions/awslambda"))
	if err != nil {
		w.t.Fatal(err)
	}
	// It ends before the server that it asks for events.
	w.t.Cleanup(p.Kill)
	return api
}

// eventOf returns the event that Lambda makes of a request; what is refused before
// it is one, and what the front end of Lambda settles by itself, is none.
func eventOf(t *testing.T, a *attack) (event string, ok bool) {
	t.Helper()
	head, _, _ := strings.Cut(a.raw, "\r\n\r\n")
	lower := strings.ToLower(head)
	if a.code == "" || strings.Contains(lower, "transfer-encoding:") || strings.Contains(lower, "expect:") || strings.Contains(lower, " http://") {
		return "", false
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(a.raw)))
	if err != nil {
		t.Fatalf("%s: %v", a.name, err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s: %v", a.name, err)
	}
	e := events.LambdaFunctionURLRequest{Version: "2.0", Headers: map[string]string{"host": r.Host}, Body: base64.StdEncoding.EncodeToString(body), IsBase64Encoded: true}
	e.RawPath, e.RawQueryString, _ = strings.Cut(r.RequestURI, "?")
	for name, values := range r.Header {
		if name == textproto.CanonicalMIMEHeaderKey("Cookie") {
			e.Cookies = strings.Split(strings.Join(values, "; "), "; ")
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	e.RequestContext.DomainName = "example.lambda-url.eu-central-1.on.aws"
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path, e.RequestContext.HTTP.SourceIP = r.Method, e.RawPath, "198.51.100.7"
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), true
}

// replyOf reads an answer: as one document, or a prelude and the body.
func replyOf(t *testing.T, answer string) reply {
	t.Helper()
	first, rest, _ := strings.Cut(answer, "\n")
	var a events.LambdaFunctionURLResponse
	if err := json.Unmarshal([]byte(first), &a); err != nil || a.StatusCode == 0 {
		t.Fatalf("no answer: %v: %.300s", err, answer)
	}
	r := reply{status: a.StatusCode, header: http.Header{}, body: a.Body + rest}
	if a.IsBase64Encoded {
		body, err := base64.StdEncoding.DecodeString(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		r.body = string(body)
	}
	for name, value := range a.Headers {
		r.header.Set(name, value)
	}
	return r
}
