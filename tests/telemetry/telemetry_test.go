// Package telemetry proves, on processes of cmd/local, that traces and metrics
// arrive at a collector, and that a collector which is away harms nobody.
package telemetry

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/otlp"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

// secret stands in a header; no process may write it.
const secret = "hunter2hunter2"

// start runs cmd/local with telemetry that goes to an address, often.
func start(t *testing.T, address string, env ...string) *running.Service {
	t.Helper()
	running.Secret(t, secret)
	return running.Start(t, append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + address, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20" + secret,
		"OTEL_SERVICE_NAME=orders", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
		"OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_METRIC_EXPORT_INTERVAL=50",
	}, env...), "--store=memory", "--log-format=json")
}

// put writes a key and returns the status.
func put(t *testing.T, s *running.Service, key string, header ...string) int {
	t.Helper()
	return running.Ask(t, s.Client, http.MethodPut, s.URL+"/v1/trees/t/keys/"+key, strings.NewReader("value"), header...).Status
}

func TestTracesAndMetricsArrive(t *testing.T) {
	r := otlp.Start(t, otlp.Accept)
	s := start(t, r.URL)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if status := put(t, s, "key", "Traceparent", parent, "X-Request-Id", "id-1"); status != 201 {
		t.Fatal(status)
	}
	const route = "PUT /v1/trees/{tree}/keys/{key}"
	r.Await(t, "the span of the request", func() bool { return len(r.Named(route)) == 1 })
	span := r.Named(route)[0]
	if got := fmt.Sprintf("%x-%x", span.TraceId, span.ParentSpanId); got != parent[3:52] {
		t.Errorf("the span is below %s", got)
	}
	if a := otlp.Attributes(span.Attributes); a["lattice.tree"] != "t" || a["http.response.status_code"] != "201" || a["lattice.request_id"] != "id-1" {
		t.Errorf("attributes %v", a)
	}
	r.Await(t, "the spans below", func() bool { return len(r.Named("shard append")) > 0 && len(r.Named("storage table_apply")) > 0 })
	for _, of := range []map[string]string{span.Resource, metric(t, r, "lattice_http_requests_total").Resource} {
		if of["service.name"] != "orders" || of["deployment.environment.name"] != "test" || of["service.instance.id"] == "" || of["service.version"] == "" {
			t.Errorf("resource %v", of)
		}
	}
	r.Await(t, "the count of appends", func() bool { return landed(t, r) >= 1 })
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Output(), `"traceId":"`+parent[3:35]) {
		t.Errorf("no line names the trace:\n%s", s.Output())
	}
	_, headers := r.Requests()
	for _, h := range headers {
		if h.Get("Authorization") != "Bearer "+secret {
			t.Fatalf("header %v", h)
		}
	}
}

func metric(t *testing.T, r *otlp.Receiver, name string) otlp.Metric {
	t.Helper()
	r.Await(t, name, func() bool { _, ok := r.Metric(name); return ok })
	m, _ := r.Metric(name)
	return m
}

// landed is how many appends are said to have landed.
func landed(t *testing.T, r *otlp.Receiver) float64 {
	t.Helper()
	for _, p := range metric(t, r, "lattice_shard_appends_total").GetSum().GetDataPoints() {
		if otlp.Attributes(p.Attributes)["outcome"] == "landed" {
			return p.GetAsDouble()
		}
	}
	return 0
}

// The metrics that a collector gets are those of /metrics.
func TestEveryMetricIsExported(t *testing.T) {
	r := otlp.Start(t, otlp.Accept)
	s := start(t, r.URL)
	put(t, s, "key")
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (lattice_\S+)`).FindAllStringSubmatch(scrape(t, s), -1) {
		metric(t, r, family[1])
	}
}

func scrape(t *testing.T, s *running.Service) string {
	t.Helper()
	resp, err := s.Client.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// load is what a process bears while its collector is away, and maxHeap what it
// may need in memory then, in bytes. A queue without a bound would hold some
// ten thousand spans by its end, beside what serves the requests.
const (
	load     = 3000
	maxHeap  = 96 << 20
	stopTime = 5 * time.Second
)

func TestACollectorThatIsAwayHarmsNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	for name, address := range map[string]string{
		"nobody listens": nobody, "it refuses": otlp.Start(t, otlp.Refuse).URL, "it hangs": otlp.Start(t, otlp.Hang).URL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, address)
			var clients sync.WaitGroup
			for c := range 8 {
				clients.Go(func() {
					for i := range load / 8 {
						if status := put(t, s, fmt.Sprintf("key-%d-%d", c, i)); status != 201 {
							t.Errorf("status %d", status)
							return
						}
					}
				})
			}
			clients.Wait()
			if heap := figure(t, scrape(t, s), "go_memstats_heap_alloc_bytes"); heap > maxHeap {
				t.Errorf("%v bytes are in use", heap)
			}
			// The service waits a while for a connection that was made and not used.
			s.Client.CloseIdleConnections()
			began := time.Now()
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > stopTime {
				t.Errorf("the end took %s", took)
			}
			if !strings.Contains(s.Output(), "telemetry was not sent") {
				t.Errorf("the log does not tell of the collector:\n%.2000s", s.Output())
			}
		})
	}
}

func figure(t *testing.T, text, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no figure %s", name)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAProtocolThatIsNotSpokenIsRefused(t *testing.T) {
	_, err := running.Launch(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "--store=memory")
	if err == nil || !strings.Contains(err.Error(), `OTEL_EXPORTER_OTLP_PROTOCOL="grpc"`) || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("got %v", err)
	}
}
