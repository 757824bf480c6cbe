package telemetry

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func variables(pairs ...string) func(string) (string, bool) {
	all := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		text, ok := all[name]
		return text, ok
	}
}

const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

func TestWhereTheSignalsGo(t *testing.T) {
	at := func(s *target) string {
		if s == nil {
			return "nowhere"
		}
		return s.url.String()
	}
	for _, c := range []struct {
		env             []string
		traces, metrics string
	}{
		{nil, "nowhere", "nowhere"},
		{[]string{endpoint, ""}, "nowhere", "nowhere"},
		{[]string{"OTEL_TRACES_EXPORTER", "otlp"}, "nowhere", "nowhere"},
		{[]string{endpoint, "http://c:4318"}, "http://c:4318/v1/traces", "http://c:4318/v1/metrics"},
		{[]string{endpoint, "https://c/otlp/"}, "https://c/otlp/v1/traces", "https://c/otlp/v1/metrics"},
		{[]string{endpoint, "http://c:4318", "OTEL_SDK_DISABLED", "true"}, "nowhere", "nowhere"},
		{[]string{endpoint, "grpc://c", "OTEL_SDK_DISABLED", "TRUE"}, "nowhere", "nowhere"},
		{[]string{endpoint, "http://c:4318", "OTEL_TRACES_EXPORTER", "none"}, "nowhere", "http://c:4318/v1/metrics"},
		{[]string{endpoint, "http://c:4318", "OTEL_METRICS_EXPORTER", "none"}, "http://c:4318/v1/traces", "nowhere"},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/in"}, "http://t/in", "nowhere"},
		{[]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m/in", endpoint, "http://c"}, "http://c/v1/traces", "http://m/in"},
	} {
		got, err := readEnv(variables(c.env...), "v1")
		if err != nil || at(got.traces) != c.traces || at(got.metrics) != c.metrics {
			t.Errorf("%v: traces go %s, metrics go %s, %v; want %s and %s", c.env, at(got.traces), at(got.metrics), err, c.traces, c.metrics)
		}
	}
}

func TestSettingsOfOneSignalGoBeforeThoseOfAll(t *testing.T) {
	c, err := readEnv(variables(endpoint, "http://c", "OTEL_EXPORTER_OTLP_HEADERS", "a=1, b = two%20words ", "OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=3",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "2000", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "500", "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf",
		"OTEL_METRIC_EXPORT_INTERVAL", "1500"), "v1")
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(c.traces.headers, map[string]string{"a": "1", "b": "two words"}) || !maps.Equal(c.metrics.headers, map[string]string{"a": "3"}) {
		t.Errorf("headers %v and %v", c.traces.headers, c.metrics.headers)
	}
	if c.traces.timeout != 500*time.Millisecond || c.metrics.timeout != 2*time.Second || c.traces.gzip || !c.metrics.gzip || c.interval != 1500*time.Millisecond {
		t.Errorf("traces %+v, metrics %+v, every %s", c.traces, c.metrics, c.interval)
	}
}

func TestTheResourceIsWhatTheEnvironmentSays(t *testing.T) {
	for want, env := range map[string][]string{
		"lattice": {}, "mine": {"OTEL_SERVICE_NAME", "mine", "OTEL_RESOURCE_ATTRIBUTES", "service.name=other"},
		"other": {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=a%2Cb"},
	} {
		c, err := readEnv(variables(append(env, endpoint, "http://c")...), "v7")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, a := range c.resource {
			got[string(a.Key)] = a.Value.AsString()
		}
		if got["service.name"] != want || got["service.version"] != "v7" || got["service.instance.id"] == "" || want == "other" && got["team"] != "a,b" {
			t.Errorf("%v: resource %v", env, got)
		}
	}
}

func TestAVariableThatMakesNoSenseIsRefused(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.pem")
	noCertificate := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(noCertificate, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, want string }{
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"},
		{endpoint, "c:4318", "URL"}, {endpoint, "grpc://c:4317", "URL"}, {endpoint, "http://", "URL"}, {endpoint, "http://%zz", "URL"},
		{endpoint, "http://u:hunter2@c", "password"}, {endpoint, "http://c/?token=hunter2", "query"},
		{"OTEL_SDK_DISABLED", "yes", "neither true nor false"},
		{"OTEL_TRACES_EXPORTER", "zipkin", "neither otlp nor none"}, {"OTEL_METRICS_EXPORTER", "prometheus", "neither otlp nor none"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "pair 1"}, {"OTEL_EXPORTER_OTLP_HEADERS", "a=1,b=%hunter2", "pair 2"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2", "pair 1"}, {"OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0d%0ab:c", "pair 1"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "milliseconds"}, {"OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds"},
		{"OTEL_METRIC_EXPORT_INTERVAL", "-1", "milliseconds"}, {"OTEL_METRIC_EXPORT_TIMEOUT", "99999999999", "milliseconds"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "neither gzip nor none"},
		{"OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on"}, {"OTEL_RESOURCE_ATTRIBUTES", "a", "pair 1"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", missing, "none.pem"}, {"OTEL_EXPORTER_OTLP_CERTIFICATE", noCertificate, "no certificate"},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY", missing, "OTEL_EXPORTER_OTLP_CLIENT_KEY"},
	} {
		env := []string{endpoint, "http://c"}
		if c.name == endpoint {
			env = nil
		}
		var log bytes.Buffer
		tel, err := Open(variables(append(env, c.name, c.value)...), slog.New(slog.NewTextHandler(&log, nil)), "v1")
		if err == nil || tel != nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s=%s: %v, want %q", c.name, c.value, err, c.want)
		}
		if text := log.String(); strings.Contains(text, "hunter2") || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the secret is told: %v\n%s", c.name, err, text)
		}
	}
	for _, share := range []string{"2", "-0.1", "NaN", "half"} {
		if _, err := readEnv(variables(endpoint, "http://c", "OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", share), "v1"); err == nil {
			t.Errorf("a share of %s is taken", share)
		}
	}
}

func TestFaultsAreToldTogether(t *testing.T) {
	_, err := readEnv(variables(endpoint, "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_TRACES_SAMPLER", "x", "OTEL_METRIC_EXPORT_INTERVAL", "x"), "v1")
	for _, name := range []string{"PROTOCOL", "SAMPLER", "INTERVAL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

// Off must be nothing: no goroutine, and methods that do nothing.
func TestOffIsNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	var log bytes.Buffer
	tel, err := Open(variables(), slog.New(slog.NewTextHandler(&log, nil)), "v1")
	if tel != nil || err != nil || log.Len() > 0 {
		t.Fatalf("got %v, %v, and the log %s", tel, err, log.String())
	}
	tel.Export(nil)
	tel.Flush(t.Context())
	tel.Shutdown(t.Context())
	if tel.Hook() != nil {
		t.Error("core is told to follow")
	}
	if n := testing.AllocsPerRun(100, func() {
		_, span := tel.StartStorage(t.Context(), "table_get")
		span.End(1, "ok", false)
	}); n > 0 {
		t.Errorf("a storage operation allocates %v times", n)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines more", after-before)
	}
}

func TestAnExporterWithoutAnEndpointIsToldInTheLog(t *testing.T) {
	var log bytes.Buffer
	tel, err := Open(variables("OTEL_TRACES_EXPORTER", "otlp"), slog.New(slog.NewTextHandler(&log, nil)), "v1")
	if tel != nil || err != nil || !strings.Contains(log.String(), endpoint) {
		t.Errorf("got %v, %v, and the log %q", tel, err, log.String())
	}
}

func TestPropagators(t *testing.T) {
	for text, want := range map[string]bool{"": true, "tracecontext,baggage": true, "baggage, tracecontext": true, "none": false, "b3": false} {
		c, err := readEnv(variables(endpoint, "http://c", "OTEL_PROPAGATORS", text), "v1")
		if err != nil || c.propagate != want {
			t.Errorf("%q: %v, %v", text, c.propagate, err)
		}
	}
}
