package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/api"
	"github.com/latticekv/lattice/functions/capture"
	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/tick"
)

// maxAnswerBytes bounds the body of an answer: Lambda takes 6 MB of JSON, and
// base64 makes four bytes of three.
const maxAnswerBytes = 4_400_000

// maxPageBytes is the size of a page of entries that fits into an answer, with
// the values as base64 and what surrounds ten thousand of them.
const maxPageBytes = 2 << 20

// maxPlainBytes bounds what travels as plain text: JSON escapes may lengthen it
// sixfold.
const maxPlainBytes = 64 << 10

// errUnknownEvent is an event that is neither a request nor a schedule.
var errUnknownEvent = errors.New("neither an HTTP event of payload version 2.0 nor a scheduled event")

// function answers Lambda events from the service. Nothing goes on after it
// returned: the machine may freeze at that moment.
type function struct {
	service http.Handler
	token   string
	logger  *slog.Logger
	// telemetry is sent before the machine may freeze.
	telemetry *telemetry.Telemetry
}

// kind are the fields by which events are told apart.
type kind struct {
	// Version and RequestContext mark a request.
	Version        string
	RequestContext struct{ HTTP *struct{} }
	// Source marks an event of a schedule.
	Source string
	// Timer is the constant input of a schedule that means one timer.
	Timer string
}

// handle answers one event: a request through a function URL or an HTTP API
// (payload version 2.0), or a schedule's. A schedule with the constant input
// {"timer":"checkpoint"} runs that timer; one without runs all.
func (f *function) handle(ctx context.Context, event json.RawMessage) (any, error) {
	defer f.telemetry.Flush(ctx)
	var k kind
	if err := json.Unmarshal(event, &k); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	switch {
	case k.RequestContext.HTTP != nil && k.Version == "2.0":
		return f.request(ctx, event)
	case k.Timer != "":
		if !slices.Contains(tick.Names(), k.Timer) {
			return nil, fmt.Errorf("no timer is called %q", k.Timer)
		}
		return f.schedule(ctx, k.Timer)
	case k.Source == "aws.events", k.Source == "aws.scheduler":
		return f.schedule(ctx, tick.Names()...)
	}
	return nil, errUnknownEvent
}

// schedule runs timers one after the other and returns what each did. All are
// tried; a failure fails the invocation, which is how Lambda counts and retries.
func (f *function) schedule(ctx context.Context, timers ...string) (map[string]json.RawMessage, error) {
	done := map[string]json.RawMessage{}
	var failures []error
	for _, timer := range timers {
		result, err := tick.InProcess(ctx, f.service, f.token, timer)
		if err != nil {
			f.logger.Error("timer failed", "timer", timer, "error", err)
			failures = append(failures, err)
			continue
		}
		done[timer] = result
	}
	return done, errors.Join(failures...)
}

func (f *function) request(ctx context.Context, event json.RawMessage) (any, error) {
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, fmt.Errorf("read HTTP event: %w", err)
	}
	r, err := toRequest(ctx, &e)
	if err != nil {
		return refuse(e.RequestContext.RequestID, api.CodeInvalidArgument, err.Error()), nil
	}
	w := capture.New(maxAnswerBytes)
	if !f.serve(w, r) {
		return refuse(e.RequestContext.RequestID, api.CodeInternal, "the request failed"), nil
	}
	if w.Overflowed() {
		detail := fmt.Sprintf("the answer is over the %d bytes that this host can return; ask for a smaller page or range", maxAnswerBytes)
		return refuse(w.Sent().Get("X-Request-Id"), api.CodeValueTooLarge, detail), nil
	}
	return toAnswer(w), nil
}

// serve runs the handler and reports whether it returned: a panic must not end
// the process.
func (f *function) serve(w *capture.Response, r *http.Request) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			f.logger.Error("handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f.service.ServeHTTP(w, r)
	return true
}

// toRequest rebuilds the request that an event tells of.
func toRequest(ctx context.Context, e *events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return nil, errors.New("the body is not the base64 that the event says it is")
		}
	}
	r, err := http.NewRequestWithContext(ctx, e.RequestContext.HTTP.Method, "http://lattice.invalid/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("method %q is not one", e.RequestContext.HTTP.Method)
	}
	r.URL = requestURL(e.RawPath, e.RawQueryString)
	r.RequestURI = r.URL.RequestURI()
	for name, value := range e.Headers {
		r.Header.Set(name, value)
	}
	if len(e.Cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	r.Host = r.Header.Get("Host")
	if r.Host == "" {
		r.Host = e.RequestContext.DomainName
	}
	r.Header.Del("Host")
	r.RemoteAddr = net.JoinHostPort(e.RequestContext.HTTP.SourceIP, "0")
	return r, nil
}

// requestURL keeps the path as the caller encoded it. An HTTP API may have
// decoded it already; what is then no valid encoding is taken literally.
func requestURL(rawPath, rawQuery string) *url.URL {
	if !strings.HasPrefix(rawPath, "/") {
		rawPath = "/" + rawPath
	}
	u := &url.URL{Path: rawPath, RawQuery: rawQuery}
	if decoded, err := url.PathUnescape(rawPath); err == nil {
		u.Path, u.RawPath = decoded, rawPath
	}
	return u
}

// toAnswer turns a captured answer into Lambda's form. What is no text, or
// long, travels as base64.
func toAnswer(w *capture.Response) events.APIGatewayV2HTTPResponse {
	answer := events.APIGatewayV2HTTPResponse{StatusCode: w.Status(), Headers: map[string]string{}}
	for name, values := range w.Sent() {
		if name == "Set-Cookie" {
			answer.Cookies = values
			continue
		}
		answer.Headers[name] = strings.Join(values, ", ")
	}
	body := w.Body()
	if len(body) <= maxPlainBytes && utf8.Valid(body) {
		answer.Body = string(body)
		return answer
	}
	answer.Body, answer.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	return answer
}

// refuse answers a request that the service did not get to answer itself, in
// the form of the service's own errors.
func refuse(requestID string, code api.Code, detail string) events.APIGatewayV2HTTPResponse {
	w := capture.New(maxAnswerBytes)
	w.Header().Set("X-Request-Id", requestID)
	api.WriteProblem(w, &http.Request{Method: http.MethodGet, Header: http.Header{}}, &api.Failure{Code: code, Detail: detail})
	return toAnswer(w)
}
