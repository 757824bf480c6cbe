package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// RetryPolicy says how calls are repeated. The zero value is usable.
//
// What may be repeated depends on the call. A read, an unconditional write or
// delete, and a batch without conditions are repeated after any answer of 429,
// 502, 503 or 504 and after any failure of the connection: doing them twice
// leaves the same state. (If a reply was lost, a repeated Delete reports that
// the key did not exist, and DeleteRange counts only what was left.) A
// conditional write, a get-or-set, and a call that changes a tree's state are
// repeated only when the service says that it has not carried them out, or
// the connection was never made: a repetition after a lost reply would meet
// its own success and report a conflict. In between stands a batch with
// conditions, which may have been carried out in part: it is repeated only if
// it never reached the service. An atomic batch with an OperationID and a page of
// a Cursor are repeated always, since the service knows them again; so is the
// opening of a cursor, whose lost one expires.
type RetryPolicy struct {
	// Max is how often a call is repeated; 0 is 6, negative is never. An operation
	// under way that the service asks to wait for (ErrOperationInProgress with a
	// RetryAfter) is waited for as often as Budget allows.
	Max int
	// Base is the first pause, which doubles each time and is jittered; 0 is
	// 100 ms. A Retry-After longer than the pause is honoured.
	Base time.Duration
	// Cap bounds the doubling; 0 is 10 s. It does not shorten a Retry-After.
	Cap time.Duration
	// Budget is the longest total of pauses of one call; 0 is 2 minutes. A
	// Retry-After that does not fit ends the call with the service's error.
	Budget time.Duration
	// OnRetry, if set, is told before each pause. It must not block.
	OnRetry func(Retry)
}

// Retry is one repetition about to happen.
type Retry struct {
	// Attempt counts from 1.
	Attempt int
	// Wait is the pause before it.
	Wait time.Duration
	// Err is why.
	Err error
}

func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.Base < 0 || p.Cap < 0 || p.Budget < 0 {
		return p, fmt.Errorf("%w: a duration of the retry policy is negative", ErrInvalidRequest)
	}
	if p.Max == 0 {
		p.Max = 6
	}
	if p.Base == 0 {
		p.Base = 100 * time.Millisecond
	}
	if p.Cap == 0 {
		p.Cap = 10 * time.Second
	}
	if p.Budget == 0 {
		p.Budget = 2 * time.Minute
	}
	return p, nil
}

// repeatable says what a call tolerates.
type repeatable int

const (
	// repeatUnsent: only if the request never left.
	repeatUnsent repeatable = iota
	// repeatRefused: also if the service says that it did nothing.
	repeatRefused
	// repeatAlways: also if the outcome is unknown.
	repeatAlways
)

// outcome says what is known about a failed attempt.
type outcome int

const (
	// outcomeFinal: repeating is pointless.
	outcomeFinal outcome = iota
	outcomeUnsent
	outcomeRefused
	outcomeUnknown
)

// classify sorts a failed attempt.
func classify(err error) outcome {
	if early := (*unsent)(nil); errors.As(err, &early) && classifyAnswer(early.refusal) != outcomeFinal {
		return outcomeUnsent
	}
	var e *Error
	if errors.As(err, &e) {
		return classifyAnswer(e)
	}
	if errors.Is(err, ErrProtocol) || errors.Is(err, ErrAnswerTooLarge) || errors.Is(err, http.ErrSchemeMismatch) {
		return outcomeFinal
	}
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	if errors.As(err, &cert) || errors.As(err, &plain) {
		return outcomeFinal
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return outcomeUnsent
	}
	return outcomeUnknown
}

func classifyAnswer(e *Error) outcome {
	if e.OutcomeUnknown {
		return outcomeUnknown
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		return outcomeRefused
	case http.StatusServiceUnavailable:
		switch e.Code {
		case ErrStorageThrottled, ErrRoutingUnstable, ErrTopologyUnstable:
			return outcomeRefused
		}
		return outcomeUnknown
	case http.StatusConflict:
		// A batch of the same name, or a load in one request, is under way, and over
		// soon; what the service does not give a time for, such as a session that is
		// open, is not worth waiting for.
		if e.Code == ErrOperationInProgress && e.RetryAfter > 0 {
			return outcomeUnknown
		}
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return outcomeUnknown
	case http.StatusInternalServerError:
		// The service says what failed in it. A host that says nothing has lost the
		// process that served, and will start another.
		if e.Code == "" {
			return outcomeUnknown
		}
	}
	return outcomeFinal
}

func (r repeatable) allows(o outcome) bool {
	switch o {
	case outcomeUnsent:
		return true
	case outcomeRefused:
		return r >= repeatRefused
	case outcomeUnknown:
		return r == repeatAlways
	}
	return false
}

// Retryable reports whether err is a passing trouble: the service is busy, or
// it cannot be reached. The call may or may not have been carried out.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if errors.Is(err, ErrInvalidKey) || errors.Is(err, ErrInvalidRequest) {
		return false
	}
	return classify(err) != outcomeFinal
}

// RetryAfter returns how long the service asked to wait, or zero.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// Pause returns how long to wait before repetition n, counted from 1: base
// doubled n-1 times up to limit, jittered to between half and all of it, and
// never shorter than what the service asked for.
func Pause(n int, base, limit time.Duration, err error) time.Duration {
	d := limit
	if shift := n - 1; shift < 20 && base<<shift < limit {
		d = base << shift
	}
	if d > 1 {
		d = d/2 + rand.N(d/2)
	}
	return max(d, RetryAfter(err))
}

// repeat runs attempt until it succeeds, may not be repeated, or patience ends.
func (c *Client) repeat(ctx context.Context, r repeatable, attempt func() error) error {
	var waited time.Duration
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || ctx.Err() != nil || !c.retry.again(n, err) || !r.allows(classify(err)) {
			return err
		}
		wait := Pause(n, c.retry.Base, c.retry.Cap, err)
		if waited += wait; waited > c.retry.Budget {
			return err
		}
		if c.retry.OnRetry != nil {
			c.retry.OnRetry(Retry{Attempt: n, Wait: wait, Err: err})
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

// again reports whether a call may be repeated for the n-th time.
func (p *RetryPolicy) again(n int, err error) bool {
	underWay := errors.Is(err, ErrOperationInProgress) && RetryAfter(err) > 0
	return n <= p.Max || underWay && p.Max > 0
}

// sleep waits for d and reports whether ctx outlived it. A pause that would
// overrun the deadline is not begun.
func sleep(ctx context.Context, d time.Duration) bool {
	if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
