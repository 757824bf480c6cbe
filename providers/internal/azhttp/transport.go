package azhttp

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// idlePerHost is far above the two of net/http, with which a busy process
	// opens and closes a connection a request until it runs out of ports.
	idlePerHost     = 256
	idleTimeout     = 90 * time.Second
	dialTimeout     = 10 * time.Second
	dialKeepAlive   = 30 * time.Second
	handshakeLimit  = 10 * time.Second
	continueTimeout = time.Second
	ioBufferBytes   = 16 << 10
	pingAfter       = 10 * time.Second
	pingTimeout     = 5 * time.Second
	// frozenFor is how far the two clocks may drift apart between two requests
	// before the process counts as having been frozen.
	frozenFor = 5 * time.Second
)

// Transport sends single HTTP requests over pooled connections. Unlike an
// http.Client it follows no redirect and puts no URL, which may carry a
// signature, into its errors. Safe for concurrent use.
type Transport struct {
	base *http.Transport
	now  func() reading

	mu   sync.Mutex
	last reading
}

// reading is one look at both clocks: the wall clock, and the monotonic clock
// since some moment. The zero one is before the first look.
type reading struct {
	wall time.Time
	mono time.Duration
}

// clocks returns a function that reads both clocks of the machine.
func clocks() func() reading {
	start := time.Now()
	return func() reading {
		now := time.Now()
		// Round strips the monotonic reading.
		return reading{wall: now.Round(0), mono: now.Sub(start)}
	}
}

// NewTransport returns a transport with its own pool of connections.
func NewTransport() *Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialKeepAlive}
	return &Transport{
		base: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           dialer.DialContext,
			TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   handshakeLimit,
			MaxIdleConnsPerHost:   idlePerHost,
			IdleConnTimeout:       idleTimeout,
			ExpectContinueTimeout: continueTimeout,
			// Payloads are compressed already; gzip would only cost time.
			DisableCompression: true,
			ReadBufferSize:     ioBufferBytes,
			WriteBufferSize:    ioBufferBytes,
			ForceAttemptHTTP2:  true,
			// A dead HTTP/2 socket hangs every call on it until it is found out.
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
		now: clocks(),
	}
}

// Do implements policy.Transporter. The caller closes the body of the response.
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	if t.thawed() {
		t.base.CloseIdleConnections()
	}
	return t.base.RoundTrip(req)
}

// CloseIdleConnections drops the pooled connections that no request uses.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// thawed reports whether the process was frozen since the last request, as hosts
// of functions do between invocations: the wall clock went on and the monotonic
// clock did not. The peer has closed the pooled sockets by then, and their idle
// timers stood still.
func (t *Transport) thawed() bool {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.last
	t.last = now
	if last.wall.IsZero() {
		return false
	}
	drift := now.wall.Sub(last.wall) - (now.mono - last.mono)
	return drift.Abs() > frozenFor
}
