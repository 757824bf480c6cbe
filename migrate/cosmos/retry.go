package cosmos

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/latticekv/lattice/migrate/source"
)

const (
	// Waits of the source's own double from the first to the longest.
	firstWait   = 200 * time.Millisecond
	longestWait = 10 * time.Second
	// strangerWait is how long an account that never answered is tried: more
	// likely its name is wrong.
	strangerWait = 10 * time.Second
	// smallestPage is what a throttled reader asks for at least.
	smallestPage = 10
)

// retry repeats a request that is throttled, as long as the service asks to
// wait, or fails for a reason that passes. It ends after Options.RetryFor, or
// when the service asks for a wait that would go beyond, with the last error.
func (s *Source) retry(ctx context.Context, op func() error) error {
	start := time.Now()
	for own := firstWait; ; own = min(2*own, longestWait) {
		err := op()
		if ctx.Err() != nil {
			return source.Ended(ctx)
		}
		status := statusOf(err)
		if err == nil || status != 0 {
			s.answered = true
		}
		if err == nil || !transient(err, status) {
			return err
		}
		limit := s.opts.RetryFor
		if !s.answered {
			limit = min(limit, strangerWait)
		}
		wait := own
		if status == http.StatusTooManyRequests {
			s.pageSize = max(s.pageSize/2, min(smallestPage, s.opts.PageSize))
		}
		if asked, ok := retryAfter(err); ok {
			wait = asked
		}
		if time.Since(start)+wait > limit {
			return err
		}
		if s.opts.OnWait != nil {
			s.opts.OnWait(wait, s.explain(err))
		}
		if err := source.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// statusOf is the HTTP status of an answer, 0 if there was none.
func statusOf(err error) int {
	var r *azcore.ResponseError
	if errors.As(err, &r) {
		return r.StatusCode
	}
	return 0
}

// transient: it may work in a while.
func transient(err error, status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestTimeout,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout,
		http.StatusGone, statusRetryWith:
		return true
	case 0:
		return connection(err)
	}
	return false
}

// statusRetryWith is the service's own: a conflict inside it that passes.
const statusRetryWith = 449

// connection reports whether err is a failure of the network that may pass.
func connection(err error) bool {
	var dns *net.DNSError
	var network net.Error
	switch {
	case untrusted(err), errors.As(err, &dns) && dns.IsNotFound, errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return errors.As(err, &network)
}

// retryAfter is the wait that the service asks for.
func retryAfter(err error) (time.Duration, bool) {
	var r *azcore.ResponseError
	if !errors.As(err, &r) || r.RawResponse == nil {
		return 0, false
	}
	for name, unit := range map[string]time.Duration{"x-ms-retry-after-ms": time.Millisecond, "Retry-After": time.Second} {
		n, err := strconv.ParseFloat(r.RawResponse.Header.Get(name), 64)
		const most = 24 * time.Hour
		if err == nil && n >= 0 && n < float64(most/unit) {
			return max(time.Duration(n*float64(unit)), time.Millisecond), true
		}
	}
	return 0, false
}
