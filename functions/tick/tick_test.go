package tick

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/timers"
)

// against runs a test against a handler.
func against(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, run func(timer string) (json.RawMessage, error))) {
	t.Helper()
	test(t, func(timer string) (json.RawMessage, error) {
		return InProcess(t.Context(), handler, "secret", timer)
	})
}

func TestTimerIsCalledWithTheInternalCredential(t *testing.T) {
	var got *http.Request
	handler := func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, `{"shards":3}`+"\n")
	}
	against(t, handler, func(t *testing.T, run func(string) (json.RawMessage, error)) {
		got = nil
		answer, err := run(timers.Checkpoint)
		if err != nil || string(answer) != `{"shards":3}` {
			t.Fatalf("got %s, %v", answer, err)
		}
		if got.Method != http.MethodPost || got.RequestURI != "/internal/timers/checkpoint" {
			t.Errorf("called %s %s", got.Method, got.RequestURI)
		}
		if h := got.Header.Get("Authorization"); h != "Bearer secret" {
			t.Errorf("Authorization %q", h)
		}
		if got.Body == nil {
			t.Error("a handler may read the body, but there is none")
		}
	})
}

// Whoever runs a timer finds it in the log of the service under one id.
func TestTimerIsCalledUnderTheIdOfItsContext(t *testing.T) {
	for want, ctx := range map[string]context.Context{"id-1": telemetry.WithRequestID(t.Context(), "id-1"), "": t.Context()} {
		req, err := Request(ctx, "http://timer.test", "secret", timers.Collect)
		if err != nil {
			t.Fatal(err)
		}
		if got := req.Header.Get("X-Request-Id"); got != want {
			t.Errorf("called under %q, want %q", got, want)
		}
	}
	if a, b := telemetry.WithRequestID(t.Context(), ""), telemetry.WithRequestID(t.Context(), ""); telemetry.Attr(a, telemetry.RequestID) == telemetry.Attr(b, telemetry.RequestID) {
		t.Error("two ticks have one id")
	}
}

func TestFailuresAreErrors(t *testing.T) {
	cases := []struct {
		name   string
		status int
		body   string
		want   Error
	}{
		{"problem document", 503, `{"title":"Unavailable","detail":"the storage is away"}`, Error{timers.Collect, 503, "the storage is away"}},
		{"problem without detail", 403, `{"title":"Forbidden"}`, Error{timers.Collect, 403, "Forbidden"}},
		{"no document", 500, "oops", Error{timers.Collect, 500, ""}},
		{"a redirect is no success", 304, "", Error{timers.Collect, 304, ""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}
			against(t, handler, func(t *testing.T, run func(string) (json.RawMessage, error)) {
				_, err := run(timers.Collect)
				var failed *Error
				if !errors.As(err, &failed) || *failed != c.want {
					t.Fatalf("got %v, want %v", err, &c.want)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Fatalf("the error tells the credential: %v", err)
				}
			})
		})
	}
}

func TestAnswerOfASuccessIsJSON(t *testing.T) {
	for _, c := range []struct{ body, want string }{{"", "{}"}, {" \n", "{}"}, {`{"a":1}`, `{"a":1}`}, {"<html>", ""}} {
		handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) }
		against(t, handler, func(t *testing.T, run func(string) (json.RawMessage, error)) {
			answer, err := run(timers.Collect)
			if string(answer) != c.want || (err != nil) != (c.want == "") {
				t.Fatalf("body %q gave %s, %v", c.body, answer, err)
			}
		})
	}
}

func TestPanicInProcessIsAnError(t *testing.T) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	_, err := InProcess(t.Context(), handler, "secret", timers.Checkpoint)
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Fatalf("got %v, want an error that tells the panic", err)
	}
}
