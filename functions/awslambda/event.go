package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/telemetry"
	"github.com/latticekv/lattice/functions/tick"
)

// errUnknownEvent is an event that is neither a request nor a schedule.
var errUnknownEvent = errors.New("neither an HTTP event of payload version 2.0 nor a scheduled event")

// function answers Lambda events from the service. Nothing goes on after it
// returned: the machine may freeze at that moment. It is safe for concurrent
// use.
type function struct {
	service  http.Handler
	token    string
	logger   *slog.Logger
	settings settings
	// telemetry is sent before the machine may freeze; nil if there is none.
	telemetry *telemetry.Telemetry
	// fits tells, once, whether the options fit the time of an invocation.
	fits func(window)
}

// kind are the fields by which events are told apart.
type kind struct {
	// Version and RequestContext mark a request.
	Version        string
	RequestContext struct{ HTTP *struct{} }
	// HTTPMethod marks a request in the form of REST APIs and load balancers.
	HTTPMethod string
	// Source marks an event of a schedule.
	Source string
	// Timer is the constant input of a schedule that means one timer.
	Timer string
}

// handle answers one event: a request through a function URL or an HTTP API
// (payload version 2.0), or a schedule's. A schedule with the constant input
// {"timer":"checkpoint"} runs that timer; one without runs all. A request always
// gets an answer; an event that cannot be understood is an error.
func (f *function) handle(ctx context.Context, event json.RawMessage) (any, error) {
	var k kind
	if err := json.Unmarshal(event, &k); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	switch {
	case k.RequestContext.HTTP != nil && k.Version == "2.0":
		var e events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(event, &e); err != nil {
			return nil, fmt.Errorf("read HTTP event: %w", err)
		}
		return f.request(ctx, &e), nil
	case k.HTTPMethod != "", k.RequestContext.HTTP != nil:
		return f.refuseForm(k.Version), nil
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
