package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

func TestStageAndBasePathAreNoPartOfThePath(t *testing.T) {
	for _, c := range []struct{ stage, base, raw, want string }{
		{"$default", "", "/v1/trees", "/v1/trees"},
		{"", "", "/v1/trees", "/v1/trees"},
		{"prod", "", "/prod/v1/trees/t/keys/a%2Fprod%2F%25", "/v1/trees/t/keys/a%2Fprod%2F%25"},
		{"prod", "", "/prod//v1", "//v1"},
		{"prod", "", "/prod", "/"},
		{"prod", "", "/prod/", "/"},
		{"prod", "", "/production/v1", "/production/v1"},
		{"prod", "", "/v1/trees/prod", "/v1/trees/prod"},
		{"v1", "", "/v1/v1/trees", "/v1/trees"},
		{"$default", "/store", "/store/v1/trees", "/v1/trees"},
		{"$default", "/store", "/stores/v1", "/stores/v1"},
		{"prod", "/store", "/prod/store/v1", "/v1"},
		{"prod", "/store", "/store/v1", "/v1"},
	} {
		var e events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(httpEvent("GET", c.raw, "", nil, false, nil), &e); err != nil {
			t.Fatal(err)
		}
		e.RequestContext.Stage = c.stage
		event, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		f := newFunction(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath() })
		f.settings.basePath = c.base
		if _, err := f.handle(t.Context(), event); err != nil || got != c.want {
			t.Errorf("stage %q, base %q: %s was seen as %s, want %s: %v", c.stage, c.base, c.raw, got, c.want, err)
		}
	}
}

func TestHeadersOfManyValuesAndCookies(t *testing.T) {
	var got *http.Request
	service := func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Add("Set-Cookie", "a=1; Path=/")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Add("Vary", "A")
		w.Header().Add("Vary", "B")
	}
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(httpEvent("GET", "/", "", nil, false, map[string]string{"accept": "application/json,application/x-ndjson;q=0.5"}), &e); err != nil {
		t.Fatal(err)
	}
	e.Cookies = []string{"x=1", "y=2"}
	event, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := answerTo(t, service, event)
	if got.Header.Get("Accept") != "application/json,application/x-ndjson;q=0.5" || got.Header.Get("Cookie") != "x=1; y=2" {
		t.Errorf("the service saw %v", got.Header)
	}
	if got.Header.Get("X-Request-Id") != "request-1" {
		t.Errorf("the request's id is %q, the platform's is request-1", got.Header.Get("X-Request-Id"))
	}
	if strings.Join(answer.Cookies, "|") != "a=1; Path=/|b=2" || answer.Headers["Vary"] != "A, B" || answer.Headers["Set-Cookie"] != "" {
		t.Errorf("answered %v with cookies %q", answer.Headers, answer.Cookies)
	}
	answerTo(t, service, httpEvent("GET", "/", "", nil, false, map[string]string{"x-request-id": "mine"}))
	if got.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("the caller's id became %q", got.Header.Get("X-Request-Id"))
	}
}

func TestOtherFormsOfHTTPEventsAreRefusedClearly(t *testing.T) {
	forms := map[string]string{
		"a REST API":                   `{"resource":"/{proxy+}","path":"/v1/trees","httpMethod":"GET","headers":{},"requestContext":{"stage":"prod"},"body":null}`,
		"an HTTP API with payload 1.0": `{"version":"1.0","resource":"/","path":"/v1/trees","httpMethod":"GET","requestContext":{}}`,
		"a load balancer":              `{"requestContext":{"elb":{}},"httpMethod":"GET","path":"/"}`,
		"a version to come":            `{"version":"3.0","requestContext":{"http":{"method":"GET"}}}`,
	}
	f := newFunction(func(http.ResponseWriter, *http.Request) { t.Error("the service was called") })
	for name, event := range forms {
		value, err := f.handle(t.Context(), json.RawMessage(event))
		answer, ok := value.(events.APIGatewayProxyResponse)
		if err != nil || !ok || answer.StatusCode != 500 || !strings.Contains(answer.Body, "payload version 2.0") ||
			answer.Headers["Content-Type"] != "application/problem+json" {
			t.Errorf("%s: %+v, %v", name, value, err)
		}
		// REST APIs take an answer with any other field for malformed.
		text, err := json.Marshal(answer)
		if err != nil || strings.Contains(string(text), "ookies") {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

// TestPathsThatAGatewayMayHaveDecodedAreNotDecodedAgain: the key %41 arrives as
// %41 from a gateway that decodes, and as %2541 from one that does not.
func TestPathsThatAGatewayMayHaveDecodedAreNotDecodedAgain(t *testing.T) {
	for _, raw := range []string{"/v1/trees/t/keys/%41", "/v1/trees/t/keys/%2541", "/v1/trees/t/keys/100%", "/prod/v1/trees/t/keys/a%2Fb", "/%76%31/trees"} {
		f := newFunction(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was served as %s", raw, r.URL) })
		value, err := f.handle(t.Context(), gatewayEvent(t, "PUT", raw, "prod"))
		answer, ok := value.(events.APIGatewayV2HTTPResponse)
		if err != nil || !ok || answer.StatusCode != 400 || !strings.Contains(answer.Body, "key?b64=") {
			t.Errorf("%s: %+v, %v", raw, value, err)
		}
	}
	var got string
	f := newFunction(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.Path })
	if _, err := f.handle(t.Context(), gatewayEvent(t, "PUT", "/prod/v1/trees/t/keys/a b#é", "prod")); err != nil || got != "/v1/trees/t/keys/a b#é" {
		t.Errorf("seen as %q, %v", got, err)
	}
}

// gatewayEvent is an event as an HTTP API sends it.
func gatewayEvent(t *testing.T, method, rawPath, stage string) json.RawMessage {
	t.Helper()
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(httpEvent(method, rawPath, "", nil, false, nil), &e); err != nil {
		t.Fatal(err)
	}
	e.RequestContext.Stage, e.RequestContext.DomainName = stage, "abc123.execute-api.eu-central-1.amazonaws.com"
	event, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func FuzzPathsAndBodiesArriveAsSent(f *testing.F) {
	for _, path := range []string{"/v1/trees/t/keys/a%2Fb", "/v1/trees/t/keys/%25", "//", "/..", "/%F0%9F%98%80", "/%zz", "", "prod/x"} {
		f.Add(path, "q=%26", []byte{0x00, 0xFF, 0x80, 0x0A}, "prod")
	}
	f.Fuzz(func(t *testing.T, path, query string, body []byte, stage string) {
		var e events.APIGatewayV2HTTPRequest
		e.RawPath, e.RawQueryString, e.RequestContext.Stage, e.RequestContext.HTTP.Method = path, query, stage, "PUT"
		e.RequestContext.DomainName = "example.lambda-url.eu-central-1.on.aws"
		e.Body = string(body)
		r, err := newFunction(nil).toRequest(t.Context(), &e)
		if err != nil {
			t.Fatal(err)
		}
		if r.ContentLength != int64(len(body)) || r.URL.RawQuery != query {
			t.Fatalf("%d bytes and query %q of %d and %q", r.ContentLength, r.URL.RawQuery, len(body), query)
		}
		if !strings.HasPrefix(r.URL.EscapedPath(), "/") {
			t.Fatalf("path %q became %q", path, r.URL.EscapedPath())
		}
		// A path that is well encoded and has no prefix to lose stays, byte for byte.
		if _, err := url.PathUnescape(path); err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/"+stage) {
			return
		}
		if r.URL.Path != must(url.PathUnescape(path)) {
			t.Fatalf("path %q became %q", path, r.URL.Path)
		}
	})
}

func must(text string, err error) string {
	if err != nil {
		panic(err)
	}
	return text
}
