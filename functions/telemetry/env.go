package telemetry

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// defaultService is the name of the service unless the environment has another.
const defaultService = "lattice"

// config is what the environment says.
type config struct {
	// traces and metrics are where they go; nil is nowhere.
	traces, metrics *target
	// idle says why nothing is sent although something asks for it.
	idle string

	resource  []attribute.KeyValue
	sampler   sdktrace.Sampler
	propagate bool
	// interval is the time between two exports of metrics, exportTimeout bounds
	// one.
	interval, exportTimeout time.Duration
}

// secrets are the values of headers.
func (c *config) secrets() []string {
	var all []string
	for _, t := range []*target{c.traces, c.metrics} {
		if t == nil {
			continue
		}
		for _, v := range t.headers {
			all = append(all, v)
		}
	}
	return all
}

// reader reads variables and collects their faults. A variable that is empty is
// as good as one that is not set.
type reader struct {
	lookup func(string) (string, bool)
	faults []error
}

func (r *reader) text(name string) string {
	text, _ := r.lookup(name)
	return strings.TrimSpace(text)
}

func (r *reader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

// signal returns the variable of one signal, or the one for all.
func (r *reader) signal(signal, name string) (variable, text string) {
	variable = "OTEL_EXPORTER_OTLP_" + signal + "_" + name
	if text = r.text(variable); text != "" {
		return variable, text
	}
	variable = "OTEL_EXPORTER_OTLP_" + name
	return variable, r.text(variable)
}

// millis reads a number of milliseconds.
func (r *reader) millis(variable, text string, otherwise time.Duration) time.Duration {
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxMillis {
		r.fault("%s=%q is not a number of milliseconds from 1 to %d", variable, text, int64(maxMillis))
		return otherwise
	}
	return time.Duration(n) * time.Millisecond
}

// maxMillis is a day.
const maxMillis = 24 * 60 * 60 * 1000

// readEnv reads the standard variables. Nothing but the switch is looked at
// where no endpoint is set.
func readEnv(lookup func(string) (string, bool), version string) (*config, error) {
	r := &reader{lookup: lookup}
	c := &config{}
	switch off := strings.ToLower(r.text("OTEL_SDK_DISABLED")); off {
	case "true":
		return c, nil
	case "", "false":
	default:
		r.fault("OTEL_SDK_DISABLED=%q is neither true nor false", off)
	}
	c.traces = r.target("TRACES", "v1/traces")
	c.metrics = r.target("METRICS", "v1/metrics")
	if c.traces == nil && c.metrics == nil {
		if len(r.faults) == 0 && (r.text("OTEL_TRACES_EXPORTER") == "otlp" || r.text("OTEL_METRICS_EXPORTER") == "otlp") && !r.endpoint() {
			c.idle = "OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER is otlp, but OTEL_EXPORTER_OTLP_ENDPOINT is not set: nothing is exported"
		}
		return c, errors.Join(r.faults...)
	}
	c.interval = r.millis("OTEL_METRIC_EXPORT_INTERVAL", r.text("OTEL_METRIC_EXPORT_INTERVAL"), time.Minute)
	c.exportTimeout = r.millis("OTEL_METRIC_EXPORT_TIMEOUT", r.text("OTEL_METRIC_EXPORT_TIMEOUT"), 30*time.Second)
	c.sampler = r.sampler()
	c.resource = r.resource(version)
	c.propagate = r.propagates()
	return c, errors.Join(r.faults...)
}

// endpoint reports whether any endpoint is set.
func (r *reader) endpoint() bool {
	_, traces := r.signal("TRACES", "ENDPOINT")
	_, metrics := r.signal("METRICS", "ENDPOINT")
	return traces != "" || metrics != ""
}

// exporting reports whether a signal is to leave at all.
func (r *reader) exporting(signal string) bool {
	variable := "OTEL_" + signal + "_EXPORTER"
	switch text := r.text(variable); text {
	case "", "otlp":
		return true
	case "none":
		return false
	default:
		r.fault("%s=%q is neither otlp nor none", variable, text)
		return false
	}
}

// target reads where a signal goes, nil if nowhere.
func (r *reader) target(signal, path string) *target {
	variable, text := r.signal(signal, "ENDPOINT")
	if text == "" || !r.exporting(signal) {
		return nil
	}
	t := &target{url: r.address(variable, text)}
	if t.url != nil && variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		t.url = t.url.JoinPath(path)
	}
	if name, protocol := r.signal(signal, "PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		r.fault("%s=%q is not supported: the only protocol is http/protobuf, for which collectors mostly listen on port 4318", name, protocol)
	}
	name, text := r.signal(signal, "HEADERS")
	t.headers = r.headers(name, text)
	name, text = r.signal(signal, "TIMEOUT")
	t.timeout = r.millis(name, text, 10*time.Second)
	switch name, text := r.signal(signal, "COMPRESSION"); text {
	case "", "none":
	case "gzip":
		t.gzip = true
	default:
		r.fault("%s=%q is neither gzip nor none", name, text)
	}
	t.tls = r.tls(signal)
	return t
}

// address reads the URL of an endpoint.
func (r *reader) address(variable, text string) *url.URL {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		r.fault("%s is not a URL such as http://127.0.0.1:4318", variable)
	case u.User != nil:
		r.fault("%s holds a user name or password: give them with OTEL_EXPORTER_OTLP_HEADERS", variable)
	case u.RawQuery != "" || u.Fragment != "":
		r.fault("%s holds a query or a fragment, which no collector reads", variable)
	default:
		return u
	}
	return nil
}

// headers reads key=value pairs. Their values are secrets, so no error shows
// one.
func (r *reader) headers(variable, text string) map[string]string {
	all := map[string]string{}
	for _, p := range r.pairs(variable, text) {
		if !validHeader(p.key, p.value) {
			r.fault("%s: pair %d cannot be a header", variable, p.at)
			continue
		}
		all[p.key] = p.value
	}
	return all
}

// pair is one key=value, the at-th of its variable from 1.
type pair struct {
	at         int
	key, value string
}

// pairs reads a list of key=value, percent-encoded, as headers and the resource
// are given.
func (r *reader) pairs(variable, text string) []pair {
	var all []pair
	for i, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || err != nil {
			r.fault("%s: pair %d is not key=value, percent-encoded", variable, i+1)
			continue
		}
		all = append(all, pair{i + 1, key, value})
	}
	return all
}

// resource describes this process. What the environment says goes first.
func (r *reader) resource(version string) []attribute.KeyValue {
	all := map[string]string{
		"service.name": defaultService, "service.version": version, "service.instance.id": rand.Text(),
		"telemetry.sdk.language": "go", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": sdkVersion,
	}
	const variable = "OTEL_RESOURCE_ATTRIBUTES"
	for _, p := range r.pairs(variable, r.text(variable)) {
		all[p.key] = p.value
	}
	if name := r.text("OTEL_SERVICE_NAME"); name != "" {
		all["service.name"] = name
	}
	var attributes []attribute.KeyValue
	for key, value := range all {
		attributes = append(attributes, attribute.String(key, value))
	}
	return attributes
}

// propagates reports whether a caller's trace is carried on.
func (r *reader) propagates() bool {
	text := r.text("OTEL_PROPAGATORS")
	if text == "" {
		return true
	}
	names := strings.Split(text, ",")
	return slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "tracecontext" })
}
