package telemetry

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latticekv/lattice/tests/otlp"
)

// toward opens a telemetry that goes to a receiver, with the variables given
// besides. Shutdown is left to the test.
func toward(t *testing.T, r *otlp.Receiver, log *bytes.Buffer, pairs ...string) *Telemetry {
	t.Helper()
	tel, err := Open(variables(append(pairs, endpoint, r.URL, "OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20hunter2")...),
		slog.New(slog.NewTextHandler(log, nil)), "v1")
	if err != nil || tel == nil {
		t.Fatal(tel, err)
	}
	tel.slow = time.Hour // a busy machine makes any collector slow
	return tel
}

// ask makes one span, as a request does.
func ask(t *testing.T, tel *Telemetry) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://lattice.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.StartRequest(r, r.Method, "id")
	span.End(Answer{Method: r.Method, Route: "/r", Status: 200})
}

func figures() *prometheus.Registry {
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "figure_total", Help: "A figure."})
	c.Add(7)
	r.MustRegister(c)
	return r
}

func TestFlushSendsWhatWaits(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Accept)
	tel := toward(t, r, &log, "OTEL_METRIC_EXPORT_INTERVAL", "1", "OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	defer tel.Shutdown(t.Context())
	tel.Export(figures())
	ask(t, tel)
	tel.Flush(t.Context())
	spans := r.Named("GET /r")
	if len(spans) != 1 || spans[0].Resource["service.name"] != "lattice" || spans[0].Resource["service.version"] != "v1" {
		t.Fatalf("spans %v", spans)
	}
	r.Await(t, "the figure", func() bool {
		tel.Flush(t.Context())
		_, ok := r.Metric("figure_total")
		return ok
	})
	m, ok := r.Metric("figure_total")
	if !ok || m.GetSum() == nil || !m.GetSum().IsMonotonic || m.GetSum().DataPoints[0].GetAsDouble() != 7 || m.Resource["service.name"] != "lattice" {
		t.Errorf("metric %v, %v", m, ok)
	}
	_, headers := r.Requests()
	for _, h := range headers {
		if h.Get("Authorization") != "Bearer hunter2" || h.Get("Content-Encoding") != "gzip" {
			t.Errorf("header %v", h)
		}
	}
}

func TestFlushLeavesMetricsToTheirInterval(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Accept)
	tel := toward(t, r, &log)
	defer tel.Shutdown(t.Context())
	tel.Export(figures())
	for range 3 {
		ask(t, tel)
		tel.Flush(t.Context())
	}
	if _, ok := r.Metric("figure_total"); ok || len(r.Named("GET /r")) != 3 {
		t.Errorf("%d spans came; metrics came: %v", len(r.Named("GET /r")), ok)
	}
}

// A collector that is away must cost an invocation little, and the next ones
// nothing.
func TestFlushGivesUpSoon(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Hang)
	tel := toward(t, r, &log)
	ask(t, tel)
	began := time.Now()
	tel.Flush(t.Context())
	first := time.Since(began)
	began = time.Now()
	for range 100 {
		ask(t, tel)
		tel.Flush(t.Context())
	}
	if later := time.Since(began); first < flushTimeout/2 || first > 10*flushTimeout || later > 10*flushTimeout {
		t.Errorf("the first took %s, a hundred later ones %s", first, later)
	}
	if text := log.String(); strings.Count(text, "telemetry was not sent") != 1 || strings.Contains(text, "hunter2") {
		t.Errorf("the log is %s", text)
	}
	began = time.Now()
	tel.Shutdown(t.Context())
	if took := time.Since(began); took > 3*shutdownTimeout {
		t.Errorf("the end took %s", took)
	}
}

// A collector that answers, but slowly, must not delay every answer.
func TestASlowFlushIsNotRepeatedAtOnce(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Accept)
	tel := toward(t, r, &log)
	defer tel.Shutdown(t.Context())
	tel.slow = 0 // whatever it takes is slow
	for range 3 {
		ask(t, tel)
		tel.Flush(t.Context())
	}
	if n := len(r.Named("GET /r")); n != 1 {
		t.Errorf("%d spans were waited for, want the first alone", n)
	}
	if pause := time.Until(tel.resume); pause <= 0 || pause > flushPause {
		t.Errorf("the pause is %s", pause)
	}
	tel.resume = time.Time{}
	tel.Flush(t.Context())
	if n := len(r.Named("GET /r")); n != 3 {
		t.Errorf("%d spans came after the pause, want 3", n)
	}
}

// Metrics that a collector did not take are due at once when it is back.
func TestMetricsThatWereNotTakenAreStillDue(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Redirect) // which is refused, and not tried again
	tel := toward(t, r, &log)
	defer tel.Shutdown(t.Context())
	tel.Export(figures())
	due := time.Now().Add(-tel.interval).Round(0)
	tel.sent = due
	tel.Flush(t.Context())
	if !tel.sent.Equal(due) {
		t.Fatal("they count as sent")
	}
	r.Do(otlp.Accept)
	r.Await(t, "the figure", func() bool {
		tel.mu.Lock()
		tel.resume = time.Time{}
		tel.mu.Unlock()
		tel.Flush(t.Context())
		_, ok := r.Metric("figure_total")
		return ok
	})
	if tel.sent.Equal(due) {
		t.Error("what was sent is due again")
	}
}

func TestHeadersDoNotFollowARedirection(t *testing.T) {
	var log bytes.Buffer
	other, r := otlp.Start(t, otlp.Accept), otlp.Start(t, otlp.Redirect)
	r.Elsewhere = other.URL
	tel := toward(t, r, &log)
	ask(t, tel)
	tel.Shutdown(t.Context())
	asked, _ := r.Requests()
	if redirected, headers := other.Requests(); asked == 0 || redirected != 0 {
		t.Errorf("%d requests came, %d were sent on with %v", asked, redirected, headers)
	}
}

func TestShutdownSendsTheLast(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Accept)
	tel := toward(t, r, &log)
	tel.Export(figures())
	for range 10 {
		ask(t, tel)
	}
	tel.Shutdown(t.Context())
	if _, ok := r.Metric("figure_total"); !ok || len(r.Named("GET /r")) != 10 {
		t.Errorf("%d spans came; metrics came: %v", len(r.Named("GET /r")), ok)
	}
	tel.Shutdown(t.Context()) // once more does nothing
	tel.Flush(t.Context())
}

// A scan of a large tree makes a storage operation for every leaf; its trace must
// not grow with the tree.
func TestTheSpansBelowARequestAreBounded(t *testing.T) {
	var log bytes.Buffer
	r := otlp.Start(t, otlp.Accept)
	tel := toward(t, r, &log)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://lattice.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req, span := tel.StartRequest(req, req.Method, "id")
	for range maxChildren + 50 {
		_, s := tel.StartStorage(req.Context(), "blob_get")
		s.End(1, "ok", false)
	}
	span.End(Answer{Method: req.Method, Route: "/r", Status: 200})
	tel.Flush(t.Context())
	r.Await(t, "the request", func() bool { return len(r.Named("GET /r")) == 1 })
	if got := otlp.Attributes(r.Named("GET /r")[0].Attributes)["lattice.spans_dropped"]; got != "50" {
		t.Errorf("%s spans are said to be missing", got)
	}
	if n := len(r.Named("storage blob_get")); n != maxChildren {
		t.Errorf("%d spans came", n)
	}
	tel.Shutdown(t.Context())
}
