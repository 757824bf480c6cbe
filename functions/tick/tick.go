// Package tick runs scheduled functions through the service's own timer
// endpoints, in process, so that every host goes the same way and none needs a
// connection for it.
package tick

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/latticekv/lattice/functions/capture"
	"github.com/latticekv/lattice/functions/schedule"
	"github.com/latticekv/lattice/functions/telemetry"
)

// Names returns the scheduled functions in the order in which a host that
// knows only one schedule runs them.
func Names() []string { return schedule.Names() }

// maxAnswerBytes bounds the answer that is read of a tick.
const maxAnswerBytes = 1 << 20

// Error is a tick that did not succeed.
type Error struct {
	// Timer is the scheduled function.
	Timer string
	// Status is the HTTP status it answered.
	Status int
	// Detail is the answer's own explanation, empty if it had none.
	Detail string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("timer %s answered %d", e.Timer, e.Status)
	}
	return fmt.Sprintf("timer %s answered %d: %s", e.Timer, e.Status, e.Detail)
}

// Request returns the call of a timer endpoint of the service at base, an
// address without a trailing slash. The token is the internal credential. The call
// has the request id of ctx, if that has one.
func Request(ctx context.Context, base, token, timer string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/internal/timers/"+timer, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("build the call of timer %s: %w", timer, err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	if id := telemetry.Attr(ctx, telemetry.RequestID); id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	return req, nil
}

// InProcess runs a timer by calling the service's handler, and returns the
// JSON that says what it did. A *Error says that the service answered, but not
// with success. A panic of the handler becomes an error.
func InProcess(ctx context.Context, service http.Handler, token, timer string) (answer json.RawMessage, err error) {
	req, err := Request(ctx, "http://timer.invalid", token, timer)
	if err != nil {
		return nil, err
	}
	req.RequestURI = req.URL.RequestURI()
	req.RemoteAddr = "127.0.0.1:0"
	defer func() {
		if p := recover(); p != nil {
			answer, err = nil, fmt.Errorf("timer %s panicked: %v\n%s", timer, p, debug.Stack())
		}
	}()
	resp := capture.New(maxAnswerBytes)
	service.ServeHTTP(resp, req)
	return interpret(timer, resp.Status(), resp.Body())
}

// interpret turns an answer into the JSON of a success or an error.
func interpret(timer string, status int, body []byte) (json.RawMessage, error) {
	body = bytes.TrimSpace(body)
	if status < 200 || status > 299 {
		var problem struct{ Title, Detail string }
		// An answer that is no problem document has no detail to tell.
		_ = json.Unmarshal(body, &problem)
		detail := problem.Detail
		if detail == "" {
			detail = problem.Title
		}
		return nil, &Error{Timer: timer, Status: status, Detail: detail}
	}
	if len(body) == 0 {
		return json.RawMessage("{}"), nil
	}
	if !json.Valid(body) {
		return nil, fmt.Errorf("timer %s answered %d with something else than JSON", timer, status)
	}
	return body, nil
}
