// Package otlp is a collector for tests: it takes traces and metrics by OTLP over
// HTTP, keeps them, and can be made to refuse or to hang.
package otlp

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span with the resource that it came from.
type Span struct {
	*traces.Span
	Resource map[string]string
}

// Metric is a metric as it was last received.
type Metric struct {
	*metrics.Metric
	Resource map[string]string
}

// Behaviour is what a Receiver does with what it gets.
type Behaviour uint8

// The behaviours.
const (
	// Accept keeps it.
	Accept Behaviour = iota
	// Refuse answers 503.
	Refuse
	// Hang does not answer until the receiver is closed.
	Hang
	// Redirect sends the caller elsewhere.
	Redirect
)

// Receiver is a collector on a free port.
type Receiver struct {
	// URL is its address, without a path.
	URL string
	// Elsewhere is where Redirect points.
	Elsewhere string

	server *httptest.Server
	closed chan struct{}

	mu       sync.Mutex
	does     Behaviour
	requests int
	headers  []http.Header
	faults   []string
	spans    []Span
	metrics  map[string]Metric
}

// Start returns a receiver that is closed when the test ends.
func Start(t testing.TB, does Behaviour) *Receiver {
	t.Helper()
	r := &Receiver{does: does, closed: make(chan struct{}), metrics: map[string]Metric{}}
	r.server = httptest.NewServer(r)
	r.URL = r.server.URL
	t.Cleanup(func() {
		close(r.closed)
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests++
	r.headers = append(r.headers, req.Header)
	does := r.does
	r.mu.Unlock()
	switch does {
	case Refuse:
		http.Error(w, "no: "+req.Header.Get("Authorization"), http.StatusServiceUnavailable)
	case Redirect:
		http.Redirect(w, req, r.Elsewhere+req.URL.Path, http.StatusTemporaryRedirect)
	case Hang:
		select {
		case <-r.closed:
		case <-req.Context().Done():
		}
	default:
		if err := r.take(req); err != nil {
			r.mu.Lock()
			r.faults = append(r.faults, err.Error())
			r.mu.Unlock()
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
}

func (r *Receiver) take(req *http.Request) error {
	if kind := req.Header.Get("Content-Type"); kind != "application/x-protobuf" {
		return fmt.Errorf("content type %q", kind)
	}
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.URL.Path {
	case "/v1/traces":
		return r.takeTraces(data)
	case "/v1/metrics":
		return r.takeMetrics(data)
	}
	return fmt.Errorf("path %q", req.URL.Path)
}

func (r *Receiver) takeTraces(data []byte) error {
	var sent collecttraces.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		return err
	}
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{s, named(of.Resource)})
			}
		}
	}
	return nil
}

func (r *Receiver) takeMetrics(data []byte) error {
	var sent collectmetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		return err
	}
	for _, of := range sent.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				r.metrics[m.Name] = Metric{m, named(of.Resource)}
			}
		}
	}
	return nil
}

func named(r *resource.Resource) map[string]string { return Attributes(r.GetAttributes()) }

// Attributes returns attributes as text.
func Attributes(all []*common.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, a := range all {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			texts[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			texts[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			texts[a.Key] = fmt.Sprint(v.BoolValue)
		default:
			texts[a.Key] = a.Value.String()
		}
	}
	return texts
}

// Spans returns the spans that came so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Metric returns a metric as it came last.
func (r *Receiver) Metric(name string) (Metric, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.metrics[name]
	return m, ok
}

// Requests returns how many requests came, and their headers.
func (r *Receiver) Requests() (int, []http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, append([]http.Header(nil), r.headers...)
}

// Do changes the behaviour.
func (r *Receiver) Do(does Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.does = does
}

// patience bounds the wait for something to arrive.
const patience = 30 * time.Second

// Await returns once ok says so, and fails the test if that takes too long or
// what came could not be understood.
func (r *Receiver) Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not arrive", what)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) > 0 {
		t.Fatalf("the receiver could not take what came: %v", r.faults)
	}
}

// Named returns the spans of a name.
func (r *Receiver) Named(name string) []Span {
	var found []Span
	for _, s := range r.Spans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}
