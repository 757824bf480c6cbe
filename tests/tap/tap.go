// Package tap stands between a process and its storage account and writes down
// every exchange: what a process really asks of the storage, its start included.
package tap

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Exchange is one request to the storage and the status of its answer.
type Exchange struct {
	// At is when the request arrived.
	At time.Time
	// Service is "table" or "blob".
	Service string
	Method  string
	// Target is what the request is about: a path without the account, or the
	// condition of a query.
	Target string
	// Status is 0 if no answer came.
	Status int
}

// String describes the exchange in one line.
func (e Exchange) String() string {
	return fmt.Sprintf("%-5s %-6s %s → %d", e.Service, e.Method, e.Target, e.Status)
}

// Tap relays to both services of an account. Safe for concurrent use.
type Tap struct {
	servers []*http.Server
	rename  *strings.Replacer

	mu   sync.Mutex
	seen []Exchange
}

// maxKept bounds what is written down between two calls of Take.
const maxKept = 100_000

// Open relays, on free ports of the loopback address, to the services at the
// addresses. Close ends it.
func Open(tableURL, blobURL string) (*Tap, error) {
	t := &Tap{}
	table, err := t.relay("table", tableURL)
	if err != nil {
		return nil, err
	}
	blob, err := t.relay("blob", blobURL)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.rename = strings.NewReplacer(tableURL, table, blobURL, blob)
	return t, nil
}

// Through returns a connection string with the tap in place of the services.
func (t *Tap) Through(connection string) string { return t.rename.Replace(connection) }

// Take returns the exchanges since the last call, in the order of their arrival.
// Those whose answer has not come yet are left for the next call.
func (t *Tap) Take() []Exchange {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.seen
	t.seen = nil
	return seen
}

// Close ends the relays. What is under way breaks off.
func (t *Tap) Close() error {
	var errs []error
	for _, s := range t.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// relay starts the relay of one service and returns its address.
func (t *Tap) relay(service, target string) (string, error) {
	to, err := url.Parse(target)
	if err != nil || to.Host == "" {
		return "", fmt.Errorf("address of the %s service: %q is no URL", service, target)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("relay to the %s service: %w", service, err)
	}
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		ErrorLog:  quiet,
	}
	s := &http.Server{Handler: t.record(service, to.Path, proxy), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	t.servers = append(t.servers, s)
	go func() { _ = s.Serve(l) }() // until Close
	return "http://" + l.Addr().String() + to.Path, nil
}

// record writes an exchange down when it is over.
func (t *Tap) record(service, account string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := Exchange{At: time.Now(), Service: service, Method: r.Method, Target: target(account, r)}
		answer := &watched{ResponseWriter: w}
		defer func() {
			e.Status = answer.status
			t.mu.Lock()
			defer t.mu.Unlock()
			if len(t.seen) < maxKept {
				t.seen = append(t.seen, e)
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

type watched struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the body be flushed.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// versions are what makes the names of shards and blobs long.
var versions = regexp.MustCompile(`[0-9a-v]{20,}`)

// target says what a request is about, without what differs each time.
func target(account string, r *http.Request) string {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, account), "/")
	q := r.URL.Query()
	for _, name := range []string{"$filter", "restype", "comp"} {
		if v := q.Get(name); v != "" {
			path += " " + v
		}
	}
	return versions.ReplaceAllString(path, "…")
}
