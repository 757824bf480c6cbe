package azhttp

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Sent observes how far a call got, to tell a write that cannot have reached the
// service from one that may have.
type Sent struct {
	reached, sought, wrote atomic.Bool
}

type sentKey struct{}

// Watch returns a context under which one call is to be made, through a transport
// that Observe wrapped, and what observes it.
func Watch(ctx context.Context) (context.Context, *Sent) {
	s := &Sent{}
	return context.WithValue(ctx, sentKey{}, s), s
}

// Possibly reports whether the service may have seen the request. It is false
// only on evidence: the request never reached the transport (a token could not
// be had, say), or the transport looked for a connection and never got to write
// all headers. A transport that reports nothing is believed capable of anything.
func (s *Sent) Possibly() bool {
	return s.wrote.Load() || s.reached.Load() && !s.sought.Load()
}

// Observe wraps a transport so that Watch sees what happens in it. The trace is
// laid here, not around the call, because the requests that fetch a token run
// under the same context.
func Observe(t policy.Transporter) policy.Transporter { return observer{t} }

type observer struct{ inner policy.Transporter }

// Do implements policy.Transporter.
func (o observer) Do(req *http.Request) (*http.Response, error) {
	s, ok := req.Context().Value(sentKey{}).(*Sent)
	if !ok {
		return o.inner.Do(req)
	}
	s.reached.Store(true)
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { s.sought.Store(true) },
		WroteHeaders: func() { s.wrote.Store(true) },
	}
	return o.inner.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
}
