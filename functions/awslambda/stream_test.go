package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/capture"
)

func newStreaming(service http.HandlerFunc) *function {
	f := newFunction(service)
	f.settings.stream = true
	return f
}

func streamOf(t *testing.T, f *function, ctx context.Context, event json.RawMessage) *events.LambdaFunctionURLStreamingResponse {
	t.Helper()
	value, err := f.handle(ctx, event)
	if err != nil {
		t.Fatal(err)
	}
	answer, ok := value.(*events.LambdaFunctionURLStreamingResponse)
	if !ok {
		t.Fatalf("answered a %T", value)
	}
	return answer
}

func TestStreamLeavesWhileItIsMade(t *testing.T) {
	next := make(chan struct{})
	f := newStreaming(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Add("Set-Cookie", "a=b")
		_, _ = w.Write([]byte{0x00, 0xFF, 0x80, 0x0A})
		<-next
		_, _ = io.WriteString(w, "end")
	})
	answer := streamOf(t, f, t.Context(), httpEvent("GET", "/", "", nil, false, nil))
	if answer.StatusCode != 200 || answer.Headers["Content-Type"] != "application/x-ndjson" || len(answer.Cookies) != 1 {
		t.Fatalf("answer %d %v %v", answer.StatusCode, answer.Headers, answer.Cookies)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(answer.Body, first); err != nil || string(first) != "\x00\xff\x80\n" {
		t.Fatalf("read %q, %v", first, err)
	}
	close(next)
	rest, err := io.ReadAll(answer.Body)
	if err != nil || string(rest) != "end" {
		t.Fatalf("read %q, %v", rest, err)
	}
	if err := answer.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReaderThatClosesEndsTheHandler(t *testing.T) {
	ended := make(chan error, 1)
	f := newStreaming(func(w http.ResponseWriter, r *http.Request) {
		var err error
		for err == nil {
			_, err = io.WriteString(w, "line\n")
		}
		<-r.Context().Done()
		ended <- err
	})
	answer := streamOf(t, f, t.Context(), httpEvent("GET", "/", "", nil, false, nil))
	if _, err := io.ReadFull(answer.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := answer.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, capture.ErrReaderGone) {
			t.Errorf("the handler's write failed with %v", err)
		}
	default:
		t.Error("closed before the handler had ended")
	}
}

func TestBrokenStreamsAreErrorsForTheReader(t *testing.T) {
	panics := newStreaming(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("boom")
	})
	answer := streamOf(t, panics, t.Context(), httpEvent("GET", "/", "", nil, false, nil))
	body, err := io.ReadAll(answer.Body)
	if string(body) != "half" || err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("read %q, %v", body, err)
	}
	if err := answer.Close(); err != nil {
		t.Error(err)
	}
}

func TestStreamedRefusals(t *testing.T) {
	early := newStreaming(func(http.ResponseWriter, *http.Request) { panic("boom") })
	for name, c := range map[string]struct {
		event json.RawMessage
		want  int
	}{
		"panic before the header": {httpEvent("GET", "/", "", nil, false, nil), 500},
		"bad method":              {httpEvent("A B", "/", "", nil, false, nil), 400},
	} {
		answer := streamOf(t, early, t.Context(), c.event)
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != c.want || !strings.Contains(string(body), `"requestId":"request-1"`) {
			t.Errorf("%s: %d %s, %v", name, answer.StatusCode, body, err)
		}
	}
	within(t, time.Millisecond, func(t *testing.T, ctx context.Context) {
		if answer := streamOf(t, early, ctx, httpEvent("GET", "/", "", nil, false, nil)); answer.StatusCode != 503 {
			t.Errorf("too little time: %d", answer.StatusCode)
		}
	})
}

func TestStreamedHandlerThatDoesNotBeginIsAnsweredFor(t *testing.T) {
	within(t, 10*time.Second, func(t *testing.T, ctx context.Context) {
		release := make(chan struct{})
		defer close(release)
		f := newStreaming(func(http.ResponseWriter, *http.Request) { <-release })
		start := time.Now()
		answer := streamOf(t, f, ctx, httpEvent("PUT", "/", "", nil, false, nil))
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != 503 || !strings.Contains(string(body), `"outcomeUnknown":true`) || time.Since(start) >= 10*time.Second {
			t.Errorf("%d %s after %s: %v", answer.StatusCode, body, time.Since(start), err)
		}
	})
}

func TestStreamThatNobodyReadsIsBrokenInTime(t *testing.T) {
	within(t, 10*time.Second, func(t *testing.T, ctx context.Context) {
		var failed error
		f := newStreaming(func(w http.ResponseWriter, _ *http.Request) {
			_, failed = io.WriteString(w, "line\n")
		})
		answer := streamOf(t, f, ctx, httpEvent("GET", "/", "", nil, false, nil))
		time.Sleep(9*time.Second + 800*time.Millisecond)
		synctest.Wait()
		if failed == nil {
			t.Error("the handler still waits for a reader when the host's time is over")
		}
		if _, err := io.ReadAll(answer.Body); !errors.Is(err, errTimeUp) {
			t.Errorf("a late reader got %v", err)
		}
		if err := answer.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestStuckStreamIsClosedInTime(t *testing.T) {
	within(t, 10*time.Second, func(t *testing.T, ctx context.Context) {
		release := make(chan struct{})
		defer close(release)
		f := newStreaming(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "line\n")
			<-release
		})
		start := time.Now()
		answer := streamOf(t, f, ctx, httpEvent("GET", "/", "", nil, false, nil))
		if _, err := io.ReadAll(answer.Body); !errors.Is(err, errTimeUp) {
			t.Errorf("the reader got %v", err)
		}
		if err := answer.Close(); err == nil || time.Since(start) >= 10*time.Second {
			t.Errorf("closed after %s: %v", time.Since(start), err)
		}
	})
}

func TestHTTPAPIsAreAnsweredWhole(t *testing.T) {
	f := newStreaming(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(httpEvent("GET", "/", "", nil, false, nil), &e); err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]bool{
		"abc.lambda-url.eu-central-1.on.aws": true, "abc.execute-api.eu-central-1.amazonaws.com": false, "kv.example.com": false,
	} {
		e.RequestContext.DomainName = domain
		event, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		value, err := f.handle(t.Context(), event)
		if _, streamed := value.(*events.LambdaFunctionURLStreamingResponse); err != nil || streamed != want {
			t.Errorf("%s was answered with a %T: %v", domain, value, err)
		}
	}
}
