package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/tick"
)

// httpEvent is an event of payload version 2.0, as a function URL sends it.
func httpEvent(method, rawPath, rawQuery string, body []byte, asBase64 bool, headers map[string]string) json.RawMessage {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: rawPath, RawQueryString: rawQuery,
		Headers: headers, Body: string(body), IsBase64Encoded: asBase64,
	}
	if asBase64 {
		e.Body = base64.StdEncoding.EncodeToString(body)
	}
	e.RequestContext.RequestID = "request-1"
	e.RequestContext.DomainName = "example.lambda-url.eu-central-1.on.aws"
	e.RequestContext.HTTP.Method = method
	e.RequestContext.HTTP.Path = rawPath
	e.RequestContext.HTTP.SourceIP = "198.51.100.7"
	event, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return event
}

func newFunction(service http.HandlerFunc) *function {
	return &function{service: service, token: "secret", logger: slog.New(slog.DiscardHandler), fits: func(window) {}}
}

func answerTo(t *testing.T, service http.HandlerFunc, event json.RawMessage) (events.APIGatewayV2HTTPResponse, []byte) {
	t.Helper()
	value, err := newFunction(service).handle(t.Context(), event)
	if err != nil {
		t.Fatal(err)
	}
	answer, ok := value.(events.APIGatewayV2HTTPResponse)
	if !ok {
		t.Fatalf("answered a %T", value)
	}
	body := []byte(answer.Body)
	if answer.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(answer.Body); err != nil {
			t.Fatal(err)
		}
	}
	return answer, body
}

func TestBytesSurviveBothWays(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bodies := map[string][]byte{
		"no text": {0x00, 0xFF, 0x80, 0x0A}, "every byte": all, "text": []byte("grüße\n\x00"), "empty": {},
		"escapes": []byte("<>&\u2028\\\""),
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}
	for name, body := range bodies {
		for _, asBase64 := range []bool{true, false} {
			if name != "text" && name != "escapes" && name != "empty" && !asBase64 {
				continue // a JSON string cannot carry it, and Lambda does not try
			}
			_, got := answerTo(t, echo, httpEvent("PUT", "/", "", body, asBase64, nil))
			if !slices.Equal(got, body) {
				t.Errorf("%s (base64 %v) came back as %q", name, asBase64, got)
			}
		}
	}
}

func TestRequestIsWhatTheCallerSent(t *testing.T) {
	var got *http.Request
	service := func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("ETag", `"1"`)
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Vary", "Origin")
		w.WriteHeader(http.StatusCreated)
	}
	headers := map[string]string{"host": "lattice.example", "if-none-match": "*", "content-type": "text/plain"}
	answer, _ := answerTo(t, service, httpEvent("PUT", "/v1/trees/t/keys/a%2F%2Fb%25", "ttl=5s&x=%26", []byte("v"), false, headers))
	if got.Method != "PUT" || got.RequestURI != "/v1/trees/t/keys/a%2F%2Fb%25?ttl=5s&x=%26" {
		t.Errorf("request line %s %s", got.Method, got.RequestURI)
	}
	if p := got.URL.EscapedPath(); p != "/v1/trees/t/keys/a%2F%2Fb%25" {
		t.Errorf("path %s", p)
	}
	if got.Host != "lattice.example" || got.Header.Get("If-None-Match") != "*" || got.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("host %s, header %v", got.Host, got.Header)
	}
	if got.ContentLength != 1 || got.RemoteAddr != "198.51.100.7:0" {
		t.Errorf("length %d from %s", got.ContentLength, got.RemoteAddr)
	}
	if answer.StatusCode != 201 || answer.Headers["Etag"] != `"1"` || answer.Headers["Vary"] != "Accept, Origin" {
		t.Errorf("answer %d %v", answer.StatusCode, answer.Headers)
	}
}

func TestAwkwardPathsKeepTheirBytes(t *testing.T) {
	// escaped is what the router matches; decoded forms are what an HTTP API
	// hands on.
	for _, c := range []struct{ raw, escaped string }{
		{"/v1/trees/t/keys/..", "/v1/trees/t/keys/.."},
		{"/v1/trees/t/keys/a//b", "/v1/trees/t/keys/a//b"},
		{"/v1/trees/t/keys/%F0%9F%8C%8D", "/v1/trees/t/keys/%F0%9F%8C%8D"},
		{"/v1/trees/t/keys/100% sure", "/v1/trees/t/keys/100%25%20sure"},
		{"", "/"},
	} {
		var got string
		service := func(_ http.ResponseWriter, r *http.Request) { got = r.URL.EscapedPath() }
		answerTo(t, service, httpEvent("GET", c.raw, "", nil, false, nil))
		if got != c.escaped {
			t.Errorf("path %q was seen as %q, want %q", c.raw, got, c.escaped)
		}
	}
}

func TestBrokenRequestsAreRefused(t *testing.T) {
	event := httpEvent("PUT", "/", "", []byte("v"), false, nil)
	broken := map[string]json.RawMessage{
		"bad base64": []byte(strings.Replace(strings.Replace(string(event), `"body":"v"`, `"body":"*"`, 1), `"isBase64Encoded":false`, `"isBase64Encoded":true`, 1)),
		"bad method": httpEvent("A B", "/", "", nil, false, nil),
	}
	for name, event := range broken {
		t.Run(name, func(t *testing.T) {
			service := func(http.ResponseWriter, *http.Request) { t.Error("the service was called") }
			answer, body := answerTo(t, service, event)
			wantProblem(t, answer, body, 400, "invalid_argument")
		})
	}
}

func wantProblem(t *testing.T, answer events.APIGatewayV2HTTPResponse, body []byte, status int, code string) {
	t.Helper()
	var problem struct{ Code, RequestID string }
	if err := json.Unmarshal(body, &problem); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if answer.StatusCode != status || problem.Code != code || problem.RequestID != "request-1" ||
		answer.Headers["Content-Type"] != "application/problem+json" {
		t.Fatalf("answered %d %v %s", answer.StatusCode, answer.Headers, body)
	}
}

func TestPanicIsA500AndNotTheEnd(t *testing.T) {
	service := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an ans")
		panic("boom")
	}
	answer, body := answerTo(t, service, httpEvent("GET", "/", "", nil, false, nil))
	wantProblem(t, answer, body, 500, "internal")
}

func TestAnswerOverTheLimitIsA413(t *testing.T) {
	write := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "request-1")
			_, _ = w.Write(make([]byte, n))
		}
	}
	event := httpEvent("GET", "/", "", nil, false, nil)
	if answer, body := answerTo(t, write(maxAnswerBytes), event); answer.StatusCode != 200 || len(body) != maxAnswerBytes {
		t.Fatalf("an answer of the limit gave %d with %d bytes", answer.StatusCode, len(body))
	}
	answer, body := answerTo(t, write(maxAnswerBytes+1), event)
	wantProblem(t, answer, body, 413, "value_too_large")
}

func TestLargestAnswersFitLambda(t *testing.T) {
	noText := make([]byte, maxAnswerBytes)
	for i := range noText {
		noText[i] = byte(i*7) | 0x80
	}
	bodies := map[string][]byte{
		"no text": noText, "quotes": bytes.Repeat([]byte{'"'}, maxAnswerBytes), "controls": make([]byte, maxAnswerBytes),
		"short controls": make([]byte, maxPlainBytes),
	}
	for name, body := range bodies {
		answer, _ := answerTo(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) },
			httpEvent("GET", "/", "", nil, false, nil))
		encoded, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		if limit := 6 << 20; len(encoded) > limit {
			t.Errorf("%s: %d bytes of JSON, Lambda takes %d", name, len(encoded), limit)
		}
	}
}

func TestSchedulesRunTimers(t *testing.T) {
	cases := []struct {
		name, event string
		want        []string
	}{
		{"constant input", `{"timer":"collect"}`, []string{"collect"}},
		{"a rule without input", `{"version":"0","detail-type":"Scheduled Event","source":"aws.events","detail":{}}`, []string{"monitor", "migrations", "transactions", "checkpoint", "collect"}},
		{"a scheduler without input", `{"version":"0","detail-type":"Scheduled Event","source":"aws.scheduler","detail":"{}"}`, []string{"monitor", "migrations", "transactions", "checkpoint", "collect"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var called []string
			f := newFunction(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret" {
					t.Error("timer called without the internal credential")
				}
				called = append(called, strings.TrimPrefix(r.URL.Path, "/internal/timers/"))
				_, _ = io.WriteString(w, `{"done":1}`)
			})
			result, err := f.handle(t.Context(), json.RawMessage(c.event))
			if err != nil || !slices.Equal(called, c.want) {
				t.Fatalf("ran %q, want %q: %v", called, c.want, err)
			}
			if done := result.(map[string]json.RawMessage); len(done) != len(c.want) || string(done["collect"]) != `{"done":1}` {
				t.Fatalf("returned %s", done)
			}
		})
	}
}

func TestOneFailedTimerStopsNoOther(t *testing.T) {
	calls := 0
	f := newFunction(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			panic("boom")
		}
	})
	_, err := f.handle(t.Context(), json.RawMessage(`{"source":"aws.events"}`))
	if calls != len(tick.Names()) || err == nil || !strings.Contains(err.Error(), "boom") {
		t.Fatalf("%d timers ran, error %v", calls, err)
	}
}

func TestUnknownEventsAreErrors(t *testing.T) {
	f := newFunction(func(http.ResponseWriter, *http.Request) { t.Error("the service was called") })
	for _, event := range []string{`{}`, `null`, `{"source":"aws.s3"}`, `{"version":"2.0"}`, `{"Records":[]}`, `{"requestContext":{"connectionId":"x","eventType":"MESSAGE"}}`} {
		if _, err := f.handle(t.Context(), json.RawMessage(event)); !errors.Is(err, errUnknownEvent) {
			t.Errorf("%s gave %v", event, err)
		}
	}
	for _, event := range []string{`{"timer":"reboot"}`, `[`, `"x"`, ``, `{"timer":1}`, `{"version":"2.0","requestContext":{"http":{}},"headers":[]}`} {
		if _, err := f.handle(t.Context(), json.RawMessage(event)); err == nil {
			t.Errorf("%s gave no error", event)
		}
	}
}

func FuzzEventNeverPanics(f *testing.F) {
	f.Add([]byte(httpEvent("PUT", "/v1/trees/t/keys/k", "a=b", []byte{0, 255}, true, map[string]string{"a": "b"})))
	f.Add([]byte(`{"timer":"collect"}`))
	f.Add([]byte(`{"version":"2.0","requestContext":{"http":{"method":"GET"}},"rawPath":"%zz"}`))
	fn := newFunction(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	f.Fuzz(func(t *testing.T, event []byte) {
		value, err := fn.handle(t.Context(), event)
		if (value == nil) == (err == nil) && err == nil {
			t.Fatalf("neither an answer nor an error for %q", event)
		}
	})
}
