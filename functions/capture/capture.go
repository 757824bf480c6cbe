// Package capture keeps the answer of an HTTP handler in memory, up to a
// bound: for hosts that hand on a whole answer instead of a connection.
package capture

import (
	"bytes"
	"errors"
	"net/http"
)

// ErrTooLarge is what a handler gets when it writes beyond the bound.
var ErrTooLarge = errors.New("answer is too large for this host")

// Response is an http.ResponseWriter over memory. It belongs to one request
// and is not safe for concurrent use, as others are not.
type Response struct {
	limit    int
	header   http.Header
	sent     http.Header
	status   int
	body     bytes.Buffer
	overflow bool
}

// New returns a Response that takes at most limit bytes of body.
func New(limit int) *Response {
	return &Response{limit: limit, header: http.Header{}}
}

// Header implements http.ResponseWriter.
func (r *Response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter: the first final status counts,
// with the header as it is then; informational ones are dropped.
func (r *Response) WriteHeader(status int) {
	if r.status != 0 || status < 200 {
		return
	}
	r.status, r.sent = status, r.header.Clone()
}

// Write implements http.ResponseWriter. Beyond the bound it keeps nothing and
// returns ErrTooLarge.
func (r *Response) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.overflow || len(p) > r.limit-r.body.Len() {
		r.overflow = true
		return 0, ErrTooLarge
	}
	return r.body.Write(p)
}

// Flush implements http.Flusher; there is nobody to flush to.
func (r *Response) Flush() { r.WriteHeader(http.StatusOK) }

// Started reports whether a status or body was written.
func (r *Response) Started() bool { return r.status != 0 }

// Overflowed reports whether the handler wrote beyond the bound: the body is
// not whole then.
func (r *Response) Overflowed() bool { return r.overflow }

// Status returns the status, 200 if the handler wrote none.
func (r *Response) Status() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// Sent returns the header as of the moment it was written.
func (r *Response) Sent() http.Header {
	if r.sent == nil {
		return r.header
	}
	return r.sent
}

// Body returns what was written.
func (r *Response) Body() []byte { return r.body.Bytes() }
