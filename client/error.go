package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the service's name of a kind of failure. A Code is itself an error,
// so that errors.Is(err, ErrKeyNotFound) tests an *Error for it.
type Code string

// Error implements error.
func (c Code) Error() string { return strings.ReplaceAll(string(c), "_", " ") }

// The codes of the service.
const (
	ErrInvalidArgument     = Code("invalid_argument")
	ErrUnauthenticated     = Code("unauthenticated")
	ErrAuthorizationDenied = Code("authorization_denied")
	ErrTreeNotFound        = Code("tree_not_found")
	ErrKeyNotFound         = Code("key_not_found")
	ErrTreeExists          = Code("tree_exists")
	ErrTreeDeleted         = Code("tree_deleted")
	ErrTreeNotEmpty        = Code("tree_not_empty")
	ErrOperationMismatch   = Code("operation_mismatch")
	ErrOperationInProgress = Code("operation_in_progress")
	ErrOperationNotFound   = Code("operation_not_found")
	ErrCursorNotFound      = Code("cursor_not_found")
	ErrSnapshotExpired     = Code("snapshot_expired")
	ErrChunkOutOfSequence  = Code("chunk_out_of_sequence")
	ErrBulkLoadOrder       = Code("bulk_load_order")
	ErrVersionMismatch     = Code("version_mismatch")
	ErrDigestMismatch      = Code("digest_mismatch")
	ErrLengthRequired      = Code("length_required")
	ErrKeyTooLong          = Code("key_too_long")
	ErrValueTooLarge       = Code("value_too_large")
	ErrRequestTooLarge     = Code("request_too_large")
	ErrUnsupportedEncoding = Code("unsupported_encoding")
	ErrSchemaViolation     = Code("schema_violation")
	ErrQuotaExceeded       = Code("quota_exceeded")
	ErrStorageThrottled    = Code("storage_throttled")
	ErrRoutingUnstable     = Code("routing_unstable")
	ErrTopologyUnstable    = Code("topology_unstable")
	ErrUnavailable         = Code("unavailable")
	ErrRouteNotFound       = Code("route_not_found")
	ErrInternal            = Code("internal")
)

var (
	// ErrInvalidKey: the key is empty or not UTF-8. Nothing was sent.
	ErrInvalidKey = errors.New("invalid key")
	// ErrInvalidRequest: the arguments contradict each other or are out of
	// bounds. Nothing was sent.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrIncomplete: a stream broke off before its end line, or its count
	// differs from the entries received. What was received is right, but it
	// is not all.
	ErrIncomplete = errors.New("incomplete stream")
	// ErrDigest: a value arrived damaged, its digest differs.
	ErrDigest = errors.New("content digest differs")
	// ErrProtocol: the answer is not one that this API gives; something else
	// may be listening there.
	ErrProtocol = errors.New("unexpected answer")
	// ErrAnswerTooLarge: an answer exceeds Options.MaxAnswerBytes.
	ErrAnswerTooLarge = errors.New("answer too large")
)

// Error is a refusal by the service, or by a proxy before it.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code names the kind of failure; empty if the answer did not say, as
	// with most proxies.
	Code Code
	// Title and Detail are for people.
	Title, Detail string
	// RequestID finds the request in the service's logs.
	RequestID string
	// RetryAfter is how long the service asks to wait; zero if it did not say.
	RetryAfter time.Duration
	// Current is the version now stored, after a version_mismatch: of Key, the
	// first one that failed, in an atomic batch. Empty if the key is absent.
	Current string
	// Tree and Key are what the failure is about, when the answer says so.
	Tree, Key string
	// Limit is the bound that was exceeded, 0 if the answer names none: bytes
	// of a key, a value or a request, or what an admission cap is set to.
	Limit int64
	// Bulk says where a bulk load failed; nil if the answer does not.
	Bulk *BulkFailure
	// Batch says which conditions of an atomic batch failed; nil if the answer does
	// not.
	Batch *BatchFailure
	// OutcomeUnknown says that a write may or may not have been carried out.
	OutcomeUnknown bool
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", e.Status)
	if e.Code != "" {
		fmt.Fprintf(&b, " %s", string(e.Code))
	} else if e.Title != "" {
		fmt.Fprintf(&b, " %s", e.Title)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	return b.String()
}

// Is makes the error match its Code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// maxProblemBytes bounds how much of an error's body is read.
const maxProblemBytes = 64 << 10

// problem is the body of application/problem+json. The advice to wait is
// taken from the Retry-After header alone.
type problem struct {
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Code      Code   `json:"code"`
	RequestID string `json:"requestId"`
	Tree      string `json:"tree"`
	Key       string `json:"key"`
	Limit     int64  `json:"limit"`
	bulkProblem
	batchProblem
	// OutcomeUnknown is left out when the service knows that nothing was done.
	OutcomeUnknown bool `json:"outcomeUnknown"`
}

// readError turns an answer that is no success into an *Error. It reads at
// most maxProblemBytes and does not close the body.
func readError(resp *http.Response, now time.Time) *Error {
	e := &Error{
		Status:     resp.StatusCode,
		Title:      http.StatusText(resp.StatusCode),
		RequestID:  resp.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"), now),
	}
	if resp.StatusCode == http.StatusPreconditionFailed {
		e.Current = version(resp.Header)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	if err != nil && len(body) == 0 {
		return e
	}
	var p problem
	if json.Unmarshal(body, &p) == nil {
		e.fill(p)
	}
	return e
}

func (e *Error) fill(p problem) {
	e.Code, e.Detail, e.Tree, e.Key = p.Code, p.Detail, p.Tree, p.Key
	e.Limit, e.Bulk, e.Batch, e.OutcomeUnknown = p.Limit, p.failure(), p.batchFailure(), p.OutcomeUnknown
	if p.Title != "" {
		e.Title = p.Title
	}
	if e.RequestID == "" {
		e.RequestID = p.RequestID
	}
}

// retryAfter parses both forms of the header: seconds and an HTTP date.
func retryAfter(h string, now time.Time) time.Duration {
	if h == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(h, 64); err == nil {
		if s > 0 && s < float64(24*time.Hour/time.Second) {
			return time.Duration(s * float64(time.Second))
		}
		return 0
	}
	if at, err := http.ParseTime(h); err == nil && at.After(now) {
		return min(at.Sub(now), 24*time.Hour)
	}
	return 0
}

// version returns the ETag of an answer without its quotes.
func version(h http.Header) string {
	tag := strings.TrimPrefix(h.Get("ETag"), "W/")
	return strings.Trim(tag, `"`)
}

// StreamError is an ErrIncomplete that says how far the stream came.
type StreamError struct {
	// Entries is how many entries were delivered.
	Entries int64
	// LastKey is the key of the last one, empty if there was none. A forward
	// scan goes on from the key that follows it: LastKey + "\x00".
	LastKey string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *StreamError) Error() string {
	return fmt.Sprintf("%v after %d entries: %v", ErrIncomplete, e.Entries, e.Err)
}

// Unwrap makes the error match ErrIncomplete and its cause.
func (e *StreamError) Unwrap() []error { return []error{ErrIncomplete, e.Err} }
