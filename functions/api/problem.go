package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/tree"
)

const problemType = "application/problem+json"

// maxDetailBytes bounds a detail, which may quote what the caller sent.
const maxDetailBytes = 1 << 10

// maxProblemKeyBytes bounds the key a problem quotes.
const maxProblemKeyBytes = 1 << 10

// Problem is an error as the caller sees it, after RFC 9457.
type Problem struct {
	// Type is a URI that stands for Code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   Code   `json:"code"`
	// RequestID is the X-Request-Id of the answer.
	RequestID string `json:"requestId,omitempty"`
	Tree      string `json:"tree,omitempty"`
	Key       string `json:"key,omitempty"`
	// Limit is the bound that was exceeded, in the unit that Detail names.
	Limit int64 `json:"limit,omitempty"`
	bulkProblem
	batchProblem
	// RetryAfter is in seconds, the value of the header of that name.
	RetryAfter int64 `json:"retryAfter,omitempty"`
	// OutcomeUnknown says that a write may or may not have been applied.
	OutcomeUnknown bool `json:"outcomeUnknown,omitempty"`

	// current is the version now stored, for the ETag of a 412.
	current clock.Version
	// challenge is the error code of RFC 6750 that goes with a refusal.
	challenge string
}

// batchProblem is where the conditions of an atomic batch failed.
type batchProblem struct {
	// Failed are the operations concerned, the first ones if they are many.
	Failed []failedBody `json:"failed,omitempty"`
	// FailedCount is how many there are.
	FailedCount int `json:"failedCount,omitempty"`
}

// failedBody is an operation whose condition did not hold.
type failedBody struct {
	// Index is its place in the request, from 0.
	Index int    `json:"index"`
	Key   string `json:"key"`
	// Version is the one the key has; absent if the key is.
	Version string `json:"version,omitempty"`
}

// maxFailedBytes bounds the failed operations that a problem lists, as JSON:
// clients read no problem without end.
const maxFailedBytes = 32 << 10

func newBatchProblem(m *tree.BatchMismatchError) batchProblem {
	p := batchProblem{FailedCount: len(m.Failed)}
	size := 0
	for _, f := range m.Failed {
		b := failedBody{Index: f.Index, Key: clip(f.Key, maxProblemKeyBytes)}
		if !f.Current.IsZero() {
			b.Version = f.Current.String()
		}
		if size += len(mustMarshal(b)); size > maxFailedBytes {
			break
		}
		p.Failed = append(p.Failed, b)
	}
	return p
}

// Failure is an error that already knows its code.
type Failure struct {
	Code   Code
	Detail string
	// Limit is the bound that was exceeded; 0 if none was.
	Limit int64
	// RetryAfter is advice for a 503, where zero stands for one second, and for a
	// 429, where zero is none.
	RetryAfter time.Duration
	// Err is the cause, for the log; it may be nil.
	Err error

	// challenge is the error code of RFC 6750, empty if there is none.
	challenge string
}

// Error implements error.
func (f *Failure) Error() string {
	if f.Err != nil {
		return fmt.Sprintf("%s: %s: %v", f.Code, f.Detail, f.Err)
	}
	return fmt.Sprintf("%s: %s", f.Code, f.Detail)
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

func failf(code Code, format string, args ...any) *Failure {
	return &Failure{Code: code, Detail: fmt.Sprintf(format, args...)}
}

func newProblem(code Code, detail string) Problem {
	m := meanings[code]
	return Problem{
		Type: "urn:lattice:problem:" + string(code), Title: m.title,
		Status: m.status, Detail: clip(detail, maxDetailBytes), Code: code,
	}
}

// WriteProblem answers an error that arose outside this package's handlers,
// such as in a host's own front, in the form that all errors have.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	writeProblem(w, r, classify(err))
}

func writeProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	h := w.Header()
	p.RequestID = h.Get("X-Request-Id")
	for _, name := range []string{"ETag", "Content-Digest", "Lattice-Expires-At", "Content-Disposition"} {
		h.Del(name)
	}
	if !p.current.IsZero() {
		h.Set("ETag", quoteVersion(p.current))
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	if p.Code == CodeUnsupportedEncoding {
		h.Set("Accept-Encoding", "identity")
	}
	setChallenge(h, &p)
	h.Set("Cache-Control", "no-store")
	writeBuffered(w, r, p.Status, problemType, mustMarshal(p))
}

// mustMarshal encodes what is made of plain fields only.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return b
}

// retrySeconds rounds up to whole seconds, at least one: a header of zero
// would invite a storm.
func retrySeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// clip cuts s to at most n bytes at a rune boundary and makes it valid UTF-8.
func clip(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
