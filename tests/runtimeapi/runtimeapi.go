// Package runtimeapi plays the runtime interface of AWS Lambda to a function's
// program, and nothing of the emulator besides: a program that asks for its first
// event has started, and how long that took is its own time alone.
package runtimeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

// deadline is how long the function has for an event.
const deadline = time.Minute

// maxAnswer bounds what is read of an answer.
const maxAnswer = 32 << 20

// API is the interface to one process. Events are given one at a time.
type API struct {
	server *http.Server
	addr   string

	asked   chan struct{}
	events  chan []byte
	answers chan answer
}

type answer struct {
	body []byte
	err  error
}

// Open serves on a free port of the loopback address. Close ends it.
func Open() (*API, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the runtime interface: %w", err)
	}
	a := &API{addr: l.Addr().String(), asked: make(chan struct{}, 1), events: make(chan []byte), answers: make(chan answer, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", a.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", a.respond)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", a.fail)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", a.fail)
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: deadline, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = a.server.Serve(l) }() // until Close
	return a, nil
}

// Environment is what the function's program needs to find the interface.
func (a *API) Environment() []string {
	return []string{
		"AWS_LAMBDA_RUNTIME_API=" + a.addr, "AWS_LAMBDA_FUNCTION_NAME=function", "AWS_LAMBDA_FUNCTION_VERSION=1",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=1024", "AWS_REGION=local", "_HANDLER=bootstrap",
	}
}

// Asked delivers, once for each time, that the program asks for an event.
func (a *API) Asked() <-chan struct{} { return a.asked }

// Close ends the interface.
func (a *API) Close() error { return a.server.Close() }

// Invoke gives the program an event and returns what it answered. A streamed
// answer comes with what precedes it.
func (a *API) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	select {
	case a.events <- event:
	case <-ctx.Done():
		return nil, fmt.Errorf("the function does not ask for an event: %w", context.Cause(ctx))
	}
	select {
	case got := <-a.answers:
		return got.body, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the function does not answer: %w", context.Cause(ctx))
	}
}

func (a *API) next(w http.ResponseWriter, r *http.Request) {
	select {
	case a.asked <- struct{}{}:
	default:
	}
	select {
	case event := <-a.events:
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", "request")
		h.Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(deadline).UnixMilli()))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:local:0:function:function")
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(event) // a program that is gone is found out by Invoke
	case <-r.Context().Done():
	}
}

func (a *API) respond(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	w.WriteHeader(http.StatusAccepted)
	a.deliver(answer{body, err})
}

func (a *API) fail(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	w.WriteHeader(http.StatusAccepted)
	a.deliver(answer{err: errors.New("the function failed: " + strings.TrimSpace(string(body)))})
}

func (a *API) deliver(got answer) {
	select {
	case a.answers <- got:
	default: // nobody waits for a second answer
	}
}
