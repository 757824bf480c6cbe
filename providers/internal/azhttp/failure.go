package azhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/latticekv/lattice/core/store"
)

// maxRetryAfter bounds what is believed of a Retry-After header.
const maxRetryAfter = 10 * time.Minute

// StatusError is the answer of a service that refused or failed. It carries no
// text of the service, which may quote signatures.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Code is the service's own error code; empty if it sent none.
	Code string
	// RequestID finds the exchange in the service's logs.
	RequestID string
	// RetryAfter is how long the service asks to wait; zero if it did not.
	RetryAfter time.Duration
}

// Error implements error.
func (e *StatusError) Error() string {
	code := e.Code
	if code == "" {
		code = http.StatusText(e.Status)
	}
	text := fmt.Sprintf("status %d %s (request %q)", e.Status, code, e.RequestID)
	if hint := refusals[e.Code]; hint != "" {
		text += ": " + hint
	}
	return text
}

// Denied reports whether the service knows who asks, or not even that, and does
// not allow it.
func (e *StatusError) Denied() bool {
	return e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized
}

// refusals say what the codes of refused credentials mean to whoever has to mend
// it; the text of the service may quote signatures.
var refusals = map[string]string{
	"AuthenticationFailed":               "the credential is not accepted: a wrong key, a signature that has ended, or a clock that is off",
	"InvalidAuthenticationInfo":          "the credential is not accepted",
	"NoAuthenticationInformation":        "the service wants a credential",
	"KeyBasedAuthenticationNotPermitted": "the account takes identities alone, no keys and no signatures made with them",
	"AuthorizationFailure":               "the credential lacks a permission, or the account's network rules refuse this machine",
	"AuthorizationPermissionMismatch":    "the credential lacks the permission for this",
	"AuthorizationResourceTypeMismatch":  "the signature is not for this type of resource",
	"AuthorizationServiceMismatch":       "the signature is not for this service",
	"AuthorizationProtocolMismatch":      "the signature wants HTTPS",
	"AuthorizationSourceIPMismatch":      "the signature is not for the address of this machine",
	"InsufficientAccountPermissions":     "the credential lacks the permission for this",
}

// NewStatusError describes a response by its status and headers.
func NewStatusError(resp *http.Response) *StatusError {
	return &StatusError{
		Status:     resp.StatusCode,
		Code:       resp.Header.Get("x-ms-error-code"),
		RequestID:  resp.Header.Get("x-ms-request-id"),
		RetryAfter: retryAfter(resp.Header, time.Now()),
	}
}

// FromSDK describes the refusal in an error of an SDK; nil if there is none, that
// is, if no whole answer came.
func FromSDK(err error) *StatusError {
	var refused *azcore.ResponseError
	if !errors.As(err, &refused) {
		return nil
	}
	e := &StatusError{Status: refused.StatusCode}
	if refused.RawResponse != nil {
		e = NewStatusError(refused.RawResponse)
	}
	e.Code = refused.ErrorCode
	return e
}

// retryAfter reads the three headers by which Azure services ask for patience.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"retry-after-ms", "x-ms-retry-after-ms"} {
		if ms, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil {
			return clampWait(ms, time.Millisecond)
		}
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return clampWait(seconds, time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

func clampWait(n int64, unit time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	return time.Duration(min(n, int64(maxRetryAfter/unit))) * unit
}

// Codes by which the services name what a status alone does not say.
var (
	notFoundCodes = []string{"ResourceNotFound", "EntityNotFound", "BlobNotFound"}
	existsCodes   = []string{"EntityAlreadyExists", "BlobAlreadyExists"}
	tooLargeCodes = []string{"RequestBodyTooLarge", "EntityTooLarge", "PropertyValueTooLarge", "ContentLengthExceeded"}
)

// Classify returns the sentinel of the storage contract for an answer. It is the
// one place that knows which failures leave a write undecided: those in which
// the service began and does not say how it ended.
func Classify(e *StatusError, write bool) error {
	switch {
	case e.Status == http.StatusTooManyRequests, e.Code == "ServerBusy":
		return store.ErrThrottled
	case e.Code == "OperationTimedOut" && !write:
		// Overload, in the table service's words.
		return store.ErrThrottled
	case e.Status < 400, e.Status >= 500, e.Status == http.StatusRequestTimeout:
		return undecided(write)
	case slices.Contains(tooLargeCodes, e.Code), e.Status == http.StatusRequestEntityTooLarge:
		return store.ErrTooLarge
	case slices.Contains(notFoundCodes, e.Code):
		return store.ErrNotFound
	case slices.Contains(existsCodes, e.Code):
		return store.ErrExists
	case e.Status == http.StatusPreconditionFailed:
		return store.ErrPrecondition
	case e.Status == http.StatusBadRequest, e.Status == http.StatusRequestedRangeNotSatisfiable:
		return store.ErrInvalid
	}
	// Not authorised, no such table or container, being deleted: nothing was
	// applied, and whoever runs the account can mend it.
	return store.ErrUnavailable
}

func undecided(write bool) error {
	if write {
		return store.ErrOutcomeUnknown
	}
	return store.ErrUnavailable
}

// Fail turns an answer into an error of the contract.
func Fail(e *StatusError, write bool) error { return As(Classify(e, write), e) }

// As wraps an answer as the given sentinel.
func As(sentinel error, e *StatusError) error {
	if errors.Is(sentinel, store.ErrThrottled) {
		return &store.ThrottledError{RetryAfter: e.RetryAfter, Err: e}
	}
	return fmt.Errorf("%w: %w", sentinel, e)
}

// Lost turns a failure to get a whole answer into an error of the contract: what
// the service cannot have seen has no effect, and of a write that it may have
// seen nothing is known.
func Lost(ctx context.Context, err error, write bool, sent *Sent) error {
	if ended := context.Cause(ctx); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	if !sent.Possibly() {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", undecided(write), err)
}
