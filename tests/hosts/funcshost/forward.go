package funcshost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// version is what the host calls itself.
	version = "4.1040.300.25317"
	// maxHeaderBytes and maxBodyBytes are what the host takes of a request.
	maxHeaderBytes = 32 << 10
	maxBodyBytes   = 100 << 20
	// keyHeader and keyParameter carry a key of the function app.
	keyHeader, keyParameter = "X-Functions-Key", "code"
)

// front is the host's side towards callers, and the platform's front end before
// it.
type front struct {
	app     *app
	options Options
	// address is where the custom handler listens.
	address string
	client  *http.Client
	calls   atomic.Int64
	// limit is Options.Limit, in nanoseconds.
	limit atomic.Int64
}

func newFront(a *app, address string, o Options) *front {
	if o.Limit == 0 {
		o.Limit = 230 * time.Second
	}
	f := &front{app: a, options: o, address: address, client: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	f.SetLimit(o.Limit)
	return f
}

// SetLimit changes when the platform's front end gives up.
func (f *front) SetLimit(limit time.Duration) { f.limit.Store(int64(limit)) }

// Address is where the handler listens: only the host itself calls there.
func (f *front) Address() string { return f.address }

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	path, err := serverPath(raw)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fn := f.app.match(r.Method, path)
	switch {
	case fn == nil:
		w.WriteHeader(http.StatusNotFound)
	case fn.level != "anonymous" && !f.hasKey(r):
		w.WriteHeader(http.StatusUnauthorized)
	case r.ContentLength > maxBodyBytes:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	default:
		f.exchange(w, r, path)
	}
}

func (f *front) hasKey(r *http.Request) bool {
	return f.options.Key != "" && (r.Header.Get(keyHeader) == f.options.Key || r.URL.Query().Get(keyParameter) == f.options.Key)
}

// answer is what the handler said, or why there is nothing.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// exchange forwards a request and answers with the whole of the answer. When the
// front end gives up, or the caller, the handler is not told.
func (f *front) exchange(w http.ResponseWriter, r *http.Request, path string) {
	req, err := f.build(r, path)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	done := make(chan answer, 1)
	go func() { done <- f.send(req) }()
	giveUp := time.NewTimer(time.Duration(f.limit.Load()))
	defer giveUp.Stop()
	select {
	case a := <-done:
		if a.err != nil || f.options.LoseReply != nil && f.options.LoseReply() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		for name, values := range a.header {
			if name != "Transfer-Encoding" && name != "Connection" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(a.status)
		// A caller that has gone misses the answer.
		_, _ = w.Write(a.body)
	case <-giveUp.C:
		w.WriteHeader(http.StatusBadGateway)
	}
}

func (f *front) send(req *http.Request) answer {
	resp, err := f.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body, err}
}

// errChunked is why the host cannot hand on a chunked request, in those versions
// that copy the header but not the body.
var errChunked = errors.New("Transfer-Encoding: chunked without content")

// build makes the request for the handler.
func (f *front) build(r *http.Request, path string) (*http.Request, error) {
	if f.options.RefuseChunked && len(r.TransferEncoding) > 0 {
		return nil, errChunked
	}
	query := forwardedQuery(r.URL.RawQuery)
	target := "http://" + f.address + forwardedPath(path, r.URL.RawQuery != "")
	if query != "" {
		target += "?" + query
	}
	// The caller's connection may end before the handler has the body.
	body := io.Reader(http.NoBody)
	if r.ContentLength > 0 {
		held, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(held)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, target, body)
	if err != nil {
		return nil, err
	}
	req.Host = r.Host
	if err := copyHeader(req.Header, r); err != nil {
		return nil, err
	}
	if !f.options.Bare {
		f.platformHeader(req.Header, r)
	}
	f.hostHeader(req.Header)
	return req, nil
}

// ofBodies are the headers that describe a body. They are not among those of a
// request, for the host's client, and get lost; the type of a body that is
// copied is set again.
var ofBodies = []string{
	"Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location",
	"Content-Md5", "Content-Range", "Content-Type", "Expires", "Last-Modified",
}

// copyHeader copies what the host's client takes. Repeated ones become one line;
// other characters than those of ASCII make it fail.
func copyHeader(to http.Header, r *http.Request) error {
	for name, values := range r.Header {
		joined := strings.Join(values, ", ")
		if name == "Cookie" {
			joined = strings.Join(values, "; ")
		}
		for i := range len(joined) {
			if joined[i] >= 0x80 {
				return fmt.Errorf("header %s is not ASCII", name)
			}
		}
		to.Set(name, joined)
	}
	for _, name := range ofBodies {
		to.Del(name)
	}
	// The host has taken the body when it forwards.
	to.Del("Expect")
	if kind := r.Header.Get("Content-Type"); r.ContentLength > 0 && kind != "" {
		to.Set("Content-Type", kind)
	}
	return nil
}

// platformHeader adds what the front end knows of a caller. What the caller gave
// under the same names is gone.
func (f *front) platformHeader(h http.Header, r *http.Request) {
	address := url.URL{Scheme: "https", Host: r.Host}
	for name, value := range map[string]string{
		"Client-Ip": r.RemoteAddr, "X-Client-Ip": "127.0.0.1", "X-Client-Port": "443",
		"X-Forwarded-For": r.RemoteAddr, "X-Forwarded-Proto": "https", "X-Forwarded-Host": r.Host,
		"X-Appservice-Proto": "https", "X-Forwarded-Tlsversion": "1.3", "X-Original-Url": r.RequestURI, "X-Waws-Unencoded-Url": r.RequestURI,
		"X-Arr-Log-Id": fmt.Sprintf("00000000-0000-4000-8000-%012d", f.calls.Add(1)), "X-Arr-Ssl": "2048|256|CN=issuer|CN=" + address.Hostname(),
		"Disguised-Host": r.Host, "Was-Default-Hostname": r.Host, "X-Site-Deployment-Id": "lattice", "Max-Forwards": "9",
		"X-Ms-Client-Principal-Id": "", "X-Ms-Request-Id": "",
	} {
		h.Del(name)
		if value != "" {
			h.Set(name, value)
		}
	}
}

// hostHeader adds what the host puts on every call of the handler.
func (f *front) hostHeader(h http.Header) {
	n := f.calls.Add(1)
	h.Set("X-Azure-Functions-Hostversion", version)
	h.Set("X-Azure-Functions-Invocationid", fmt.Sprintf("10000000-0000-4000-8000-%012d", n))
	h.Set("Traceparent", fmt.Sprintf("00-%032x-%016x-00", n, n))
	h.Set("User-Agent", strings.TrimSpace(h.Get("User-Agent")+" Azure-Functions-Host/"+version))
}
