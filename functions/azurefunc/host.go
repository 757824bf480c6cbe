package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/tick"
)

// portVariable is where the Functions host says on which port it will call.
const portVariable = "FUNCTIONS_CUSTOMHANDLER_PORT"

// invocationHeader names the invocation, in the log of the host as well.
const invocationHeader = "X-Azure-Functions-Invocationid"

// maxInvocationBytes bounds what is read of an invocation. The host sends a few
// hundred bytes; it gets its answer whatever it sends, up to here.
const maxInvocationBytes = 16 << 20

// requestLimit bounds a request from outside. The front end of the platform
// gives up after 230 s, and the caller would get nothing of an answer that takes
// longer; so a scan that does ends here with the line that says so.
const requestLimit = 220 * time.Second

// errTooLong ends a request at its limit.
var errTooLong = fmt.Errorf("the host bounds a request to 230 s: %w", context.DeadlineExceeded)

// address returns where the host expects this handler. The loopback address is
// the only one it calls.
func address(lookup func(string) (string, bool)) (string, error) {
	port, ok := lookup(portVariable)
	if !ok || port == "" {
		return "", fmt.Errorf("%s is not set: this program is started by the Azure Functions host", portVariable)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("%s=%q is not a port", portVariable, port)
	}
	return net.JoinHostPort("127.0.0.1", strconv.FormatUint(n, 10)), nil
}

// invocationAnswer is what the host expects of a function that is not an HTTP
// one: outputs by binding, lines for its log, and a value.
type invocationAnswer struct {
	Outputs     map[string]any `json:"Outputs"`
	Logs        []string       `json:"Logs"`
	ReturnValue any            `json:"ReturnValue"`
}

// tickOutcome is the value a timer returns. Nothing is bound to it; it is for
// those who look at an invocation.
type tickOutcome struct {
	OK     bool            `json:"ok"`
	Error  string          `json:"error,omitempty"`
	Status int             `json:"status,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// host adds to the service what the Functions host calls on its own: timers
// arrive as POST /{FunctionName}.
type host struct {
	service http.Handler
	token   string
	logger  *slog.Logger
	// limit is requestLimit.
	limit time.Duration
}

// ServeHTTP implements http.Handler.
func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if timer := invoked(r); timer != "" {
		h.invoke(w, r, timer)
		return
	}
	if damaged(r) {
		refuseDamaged(w, r)
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), h.limit, errTooLong)
	defer cancel()
	h.service.ServeHTTP(w, withoutKey(r).WithContext(ctx))
}

// invoke runs a timer. What the host says about the schedule is sometimes
// malformed and never needed, so it is read and dropped. The answer is always
// 200: the host throws the log lines of any other away, and the next tick comes
// anyway.
func (h *host) invoke(w http.ResponseWriter, r *http.Request, timer string) {
	// A body that breaks off is as good as one that does not.
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxInvocationBytes))
	ctx := telemetry.WithRequestID(r.Context(), r.Header.Get(invocationHeader))
	answer := invocationAnswer{Outputs: map[string]any{}}
	result, err := tick.InProcess(ctx, h.service, h.token, timer)
	if err != nil {
		h.logger.ErrorContext(ctx, "timer failed", "timer", timer, "error", err)
		outcome := tickOutcome{Error: err.Error()}
		var failed *tick.Error
		if errors.As(err, &failed) {
			outcome.Status = failed.Status
		}
		answer.Logs, answer.ReturnValue = []string{err.Error()}, outcome
	} else {
		answer.Logs = []string{fmt.Sprintf("timer %s: %s", timer, result)}
		answer.ReturnValue = tickOutcome{OK: true, Result: result}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.logger.WarnContext(ctx, "answer to the host was not written", "timer", timer, "error", err)
	}
}
