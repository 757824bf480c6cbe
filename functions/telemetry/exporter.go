package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/net/http/httpguts"
)

var sdkVersion = sdk.Version()

// target is where one signal goes.
type target struct {
	url     *url.URL
	headers map[string]string
	// timeout bounds one attempt.
	timeout time.Duration
	gzip    bool
	// tls is nil for the system's own ways.
	tls *tls.Config
}

// maxAnswerBytes bounds what is read of a collector's answer.
const maxAnswerBytes = 64 << 10

// client returns what talks to the collector. A redirection is refused: the
// headers, which are secrets, are for the endpoint that was configured.
func (t *target) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = t.tls
	transport.MaxConnsPerHost = 2
	return &http.Client{
		Transport: transport, Timeout: t.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// spanExporter returns what sends spans. It connects to nobody yet.
func (t *target) spanExporter() (sdktrace.SpanExporter, error) {
	compression := otlptracehttp.NoCompression
	if t.gzip {
		compression = otlptracehttp.GzipCompression
	}
	return otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(t.url.String()), otlptracehttp.WithURLPath(t.path()), otlptracehttp.WithHeaders(t.headers),
		otlptracehttp.WithTimeout(t.timeout), otlptracehttp.WithCompression(compression),
		otlptracehttp.WithMaxResponseSize(maxAnswerBytes), otlptracehttp.WithHTTPClient(t.client()))
}

// metricExporter returns what sends metrics, likewise.
func (t *target) metricExporter() (sdkmetric.Exporter, error) {
	compression := otlpmetrichttp.NoCompression
	if t.gzip {
		compression = otlpmetrichttp.GzipCompression
	}
	return otlpmetrichttp.New(context.Background(),
		otlpmetrichttp.WithEndpointURL(t.url.String()), otlpmetrichttp.WithURLPath(t.path()), otlpmetrichttp.WithHeaders(t.headers),
		otlpmetrichttp.WithTimeout(t.timeout), otlpmetrichttp.WithCompression(compression),
		otlpmetrichttp.WithMaxResponseSize(maxAnswerBytes), otlpmetrichttp.WithHTTPClient(t.client()))
}

// path is where the collector listens; a URL without a path means its root.
func (t *target) path() string {
	if t.url.Path == "" {
		return "/"
	}
	return t.url.Path
}

// validHeader reports whether HTTP can carry a header.
func validHeader(name, value string) bool {
	return httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value)
}

// tls reads certificates: of whom to trust, and of this client.
func (r *reader) tls(signal string) *tls.Config {
	trust, authorities := r.signal(signal, "CERTIFICATE")
	_, cert := r.signal(signal, "CLIENT_CERTIFICATE")
	own, key := r.signal(signal, "CLIENT_KEY")
	if authorities == "" && cert == "" && key == "" {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		pem, err := os.ReadFile(authorities)
		c.RootCAs = x509.NewCertPool()
		if err != nil {
			r.fault("%s: %w", trust, err)
		} else if !c.RootCAs.AppendCertsFromPEM(pem) {
			r.fault("%s: no certificate in %s", trust, authorities)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			r.fault("%s and its certificate: %w", own, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}
