package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/functions/api"
	"github.com/latticekv/lattice/functions/capture"
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

// request answers an HTTP event, in the form that the front takes: whole, or as
// a stream.
func (f *function) request(ctx context.Context, e *events.APIGatewayV2HTTPRequest) any {
	form, streams := whole, f.settings.stream && throughURL(e)
	if streams {
		form = streamed
	}
	id := e.RequestContext.RequestID
	r, err := f.toRequest(ctx, e)
	if err != nil {
		return form(refusal(id, &api.Failure{Code: api.CodeInvalidArgument, Detail: err.Error()}))
	}
	w, enough := newWindow(ctx)
	f.fits(w)
	if !enough {
		return form(refusal(id, &api.Failure{Code: api.CodeUnavailable, Detail: "the host leaves too little time to begin the request; nothing was done"}))
	}
	work, cancel := w.work(ctx)
	r = r.WithContext(work)
	flush := func() { f.flush(ctx, w) }
	if streams {
		return f.stream(r, id, &body{window: w, cancel: cancel, flush: flush})
	}
	defer flush()
	defer cancel()
	return whole(f.gather(w, api.BoundAnswer(r, maxAnswerBytes), id))
}

// flush sends what the invocation left for the telemetry, unless the time for
// the answer runs out over it.
func (f *function) flush(ctx context.Context, w window) {
	if !w.cut.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, w.cut)
		defer cancel()
	}
	f.telemetry.Flush(ctx)
}

// gather runs the handler and returns its answer, or that of a refusal. It
// returns before the host's time is over, also if the handler does not.
func (f *function) gather(w window, r *http.Request, id string) *capture.Response {
	answer, done := capture.New(maxAnswerBytes), make(chan error, 1)
	go func() { done <- f.serve(answer, r) }()
	cut, stop := w.untilCut()
	defer stop()
	select {
	case err := <-done:
		if err != nil {
			return refusal(id, failed)
		}
	case <-cut:
		f.logger.Error("handler does not end", "requestId", id)
		return refusal(id, late(r.Method))
	}
	if answer.Overflowed() {
		return refusal(answer.Sent().Get("X-Request-Id"), overflow(r.Method))
	}
	return answer
}

// failed answers a request whose handler panicked.
var failed = &api.Failure{Code: api.CodeInternal, Detail: "the request failed"}

// overflow answers a request whose answer is too large for the host, which the
// service was told to avoid. A read may be made smaller; what became of a write is
// lost with its answer.
func overflow(method string) error {
	if method == http.MethodGet || method == http.MethodHead {
		detail := fmt.Sprintf("the answer is over the %d bytes that this host can return; ask for a smaller page or range", maxAnswerBytes)
		return &api.Failure{Code: api.CodeValueTooLarge, Detail: detail, Limit: maxAnswerBytes}
	}
	return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, errTooLong)
}

var errTooLong = errors.New("the answer is over what the host can return")

// late answers a request whose handler does not come to an end. Nobody knows
// what became of a write then.
func late(method string) error {
	if method == http.MethodGet || method == http.MethodHead {
		return &api.Failure{Code: api.CodeUnavailable, Detail: "the host's time for the request ran out", Err: errTimeUp}
	}
	return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, errTimeUp)
}

// refusal is the answer to a request that the service did not get to answer
// itself, in the form of the service's own errors.
func refusal(requestID string, err error) *capture.Response {
	w := capture.New(maxAnswerBytes)
	if requestID == "" {
		requestID = api.RequestID(http.Header{}, clock.NewSystem())
	}
	w.Header().Set("X-Request-Id", requestID)
	api.WriteProblem(w, &http.Request{Method: http.MethodGet, Header: http.Header{}}, err)
	return w
}

// refuseForm answers a request that came in a form of event which this function
// does not read. Its sender reads the same form of answers.
func (f *function) refuseForm(version string) any {
	if version == "" {
		version = "1.0"
	}
	f.logger.Error("HTTP event of another form: let a function URL or an HTTP API with payload format version 2.0 call this function", "version", version)
	w := refusal("", &api.Failure{
		Code:   api.CodeInternal,
		Detail: fmt.Sprintf("this function reads HTTP events of payload version 2.0, from a function URL or an HTTP API; the event is of version %s, as REST APIs send it", version),
	})
	answer := events.APIGatewayProxyResponse{StatusCode: w.Status(), Body: string(w.Body())}
	answer.Headers, _ = headers(w.Sent())
	return answer
}

// headers returns an answer's header in Lambda's form, and its cookies.
func headers(sent http.Header) (joined map[string]string, cookies []string) {
	joined = map[string]string{}
	for name, values := range sent {
		if name == "Set-Cookie" {
			cookies = values
			continue
		}
		joined[name] = strings.Join(values, ", ")
	}
	return joined, cookies
}

// whole turns an answer into Lambda's form for such as are sent whole. What is no
// text, or long, travels as base64.
func whole(w *capture.Response) any {
	answer := events.APIGatewayV2HTTPResponse{StatusCode: w.Status()}
	answer.Headers, answer.Cookies = headers(w.Sent())
	body := w.Body()
	if len(body) <= maxPlainBytes && utf8.Valid(body) {
		answer.Body = string(body)
		return answer
	}
	answer.Body, answer.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	return answer
}

// streamed turns an answer that is there into the form of a stream.
func streamed(w *capture.Response) any {
	answer := &events.LambdaFunctionURLStreamingResponse{StatusCode: w.Status(), Body: bytes.NewReader(w.Body())}
	answer.Headers, answer.Cookies = headers(w.Sent())
	return answer
}
