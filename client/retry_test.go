package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/client/clienttest"
)

// trip is a transport made of a function.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// served lets a handler answer without a network, so that time can be virtual.
func served(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp
}

// failing is a client whose first n requests end in what fail makes; applied
// says that the service carries them out all the same.
func failing(t *testing.T, n int, applied bool, fail func() (*http.Response, error)) (*Client, *int) {
	t.Helper()
	srv := clienttest.New()
	calls := 0
	c, err := New("http://service", Options{HTTPClient: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
		calls++
		if calls > n {
			return served(srv, r), nil
		}
		if applied {
			served(srv, r)
		}
		return fail()
	})}})
	if err != nil {
		t.Fatal(err)
	}
	return c, &calls
}

func problemResponse(status int, code Code, after string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		w := httptest.NewRecorder()
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"d","requestId":"r1"}`, status, string(code))
		return w.Result(), nil
	}
}

func lostReply() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func notDialled() (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// calls by what they tolerate.
var (
	plainSet = func(ctx context.Context, t *Tree) error {
		_, err := t.Set(ctx, "k", []byte("v"), SetOptions{})
		return err
	}
	conditionalSet = func(ctx context.Context, t *Tree) error {
		_, err := t.Set(ctx, "k", []byte("v"), SetOptions{IfAbsent: true})
		return err
	}
	getOrSet = func(ctx context.Context, t *Tree) error {
		_, _, err := t.GetOrSet(ctx, "k", []byte("v"), SetOptions{})
		return err
	}
	plainBatch = func(ctx context.Context, t *Tree) error {
		_, err := t.Batch(ctx, Batch{Ops: []Op{{Key: "k"}}})
		return err
	}
	conditionalBatch = func(ctx context.Context, t *Tree) error {
		_, err := t.Batch(ctx, Batch{Ops: []Op{{Key: "k", IfAbsent: true}}})
		return err
	}
	atomicBatch = func(ctx context.Context, t *Tree) error {
		_, err := t.Batch(ctx, Batch{Ops: []Op{{Key: "k", IfAbsent: true}}, Atomic: true})
		return err
	}
	namedBatch = func(ctx context.Context, t *Tree) error {
		_, err := t.Atomic(ctx, []Op{{Key: "k", IfAbsent: true}}, AtomicOptions{})
		return err
	}
	create = func(ctx context.Context, t *Tree) error {
		_, err := t.Create(ctx, CreateOptions{})
		return err
	}
)

func TestRepeatedOnlyWhereSafe(t *testing.T) {
	throttled := problemResponse(503, ErrStorageThrottled, "1")
	unavailable := problemResponse(503, ErrUnavailable, "1")
	for _, tc := range []struct {
		name    string
		call    func(context.Context, *Tree) error
		fail    func() (*http.Response, error)
		applied bool
		repeats bool
	}{
		{"plain set, throttled", plainSet, throttled, false, true},
		{"plain set, unavailable", plainSet, unavailable, false, true},
		{"plain set, reply lost", plainSet, lostReply, true, true},
		{"plain set, bad gateway", plainSet, problemResponse(502, "", ""), true, true},
		{"plain set, refused", plainSet, problemResponse(400, ErrInvalidArgument, ""), false, false},
		{"plain set, host without its process", plainSet, problemResponse(500, "", ""), true, true},
		{"plain set, failed", plainSet, problemResponse(500, ErrInternal, ""), false, false},
		{"conditional set, throttled", conditionalSet, throttled, false, true},
		{"conditional set, over quota", conditionalSet, problemResponse(429, ErrQuotaExceeded, ""), false, true},
		{"conditional set, unavailable", conditionalSet, unavailable, false, false},
		{"conditional set, reply lost", conditionalSet, lostReply, true, false},
		{"conditional set, not dialled", conditionalSet, notDialled, false, true},
		{"get or set, reply lost", getOrSet, lostReply, true, false},
		{"get or set, throttled", getOrSet, throttled, false, true},
		{"plain batch, reply lost", plainBatch, lostReply, true, true},
		{"conditional batch, throttled", conditionalBatch, throttled, true, false},
		{"conditional batch, not dialled", conditionalBatch, notDialled, false, true},
		{"atomic batch, throttled", atomicBatch, throttled, false, true},
		{"atomic batch, reply lost", atomicBatch, lostReply, true, false},
		{"named batch, throttled", namedBatch, throttled, false, true},
		{"named batch, reply lost", namedBatch, lostReply, true, true},
		{"named batch, outcome unknown", namedBatch, problemResponse(504, "", ""), true, true},
		{"named batch, under way", namedBatch, problemResponse(409, ErrOperationInProgress, "1"), true, true},
		{"bulk load, another is open", namedBatch, problemResponse(409, ErrOperationInProgress, ""), false, false},
		{"named batch of other keys", namedBatch, problemResponse(409, ErrOperationMismatch, ""), false, false},
		{"create, reply lost", create, lostReply, true, true},
		{"drop, not dialled", func(ctx context.Context, t *Tree) error { return ignoreMissing(t.Drop(ctx)) }, notDialled, false, true},
		{"drop, reply lost", func(ctx context.Context, t *Tree) error { return t.Drop(ctx) }, lostReply, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, calls := failing(t, 1, tc.applied, tc.fail)
				err := tc.call(t.Context(), c.Tree("t"))
				if repeated := *calls == 2; repeated != tc.repeats {
					t.Fatalf("%d calls, %v", *calls, err)
				}
				if (err == nil) != tc.repeats {
					t.Fatalf("error %v", err)
				}
			})
		})
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ErrTreeNotFound) {
		return nil
	}
	return err
}

func TestUnknownOutcomeIsNoRefusal(t *testing.T) {
	e := &Error{Status: 503, Code: ErrStorageThrottled, OutcomeUnknown: true}
	if repeatRefused.allows(classify(e)) || !repeatAlways.allows(classify(e)) {
		t.Fatal("a write that may have been carried out counts as refused")
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := failing(t, 1, false, problemResponse(503, ErrStorageThrottled, "7"))
		start := time.Now()
		if err := plainSet(t.Context(), c.Tree("t")); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 7*time.Second || d > 8*time.Second {
			t.Fatalf("waited %s, asked for 7 s", d)
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		policy RetryPolicy
		after  string
		limit  time.Duration
		calls  int
	}{
		"count":              {RetryPolicy{Max: 3}, "", 0, 4},
		"never":              {RetryPolicy{Max: -1}, "", 0, 1},
		"budget":             {RetryPolicy{Max: 1000, Budget: 25 * time.Second}, "10", 0, 3},
		"advice over budget": {RetryPolicy{}, "3600", 0, 1},
		"deadline":           {RetryPolicy{Max: 1000}, "10", 25 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, calls := failing(t, 1<<30, false, problemResponse(503, ErrStorageThrottled, tc.after))
				p, err := tc.policy.withDefaults()
				if err != nil {
					t.Fatal(err)
				}
				told := 0
				p.OnRetry = func(r Retry) { told++ }
				c.retry = p
				ctx := t.Context()
				if tc.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
					defer cancel()
				}
				err = plainSet(ctx, c.Tree("t"))
				if !errors.Is(err, ErrStorageThrottled) || *calls != tc.calls || told < tc.calls-1 {
					t.Fatalf("%d calls, told of %d, %v", *calls, told, err)
				}
			})
		})
	}
}

func TestCancelEndsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, calls := failing(t, 1<<30, false, problemResponse(503, ErrStorageThrottled, "60"))
		ctx, cancel := context.WithCancel(t.Context())
		c.retry.OnRetry = func(Retry) { cancel() }
		start := time.Now()
		if err := plainSet(ctx, c.Tree("t")); err == nil || *calls != 1 || time.Since(start) > 0 {
			t.Fatalf("%d calls in %s, %v", *calls, time.Since(start), err)
		}
	})
}

func TestPauseGrowsAndIsBounded(t *testing.T) {
	for n := 1; n < 100; n++ {
		d := Pause(n, 100*time.Millisecond, 5*time.Second, nil)
		want := min(5*time.Second, 100*time.Millisecond<<min(n-1, 20))
		if d < want/2 || d > want {
			t.Fatalf("pause %d is %s, want %s to %s", n, d, want/2, want)
		}
	}
	if d := Pause(1, 0, 0, &Error{RetryAfter: time.Minute}); d != time.Minute {
		t.Fatalf("pause %s, asked for a minute", d)
	}
}

func TestErrorSaysWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			status int
			header map[string]string
			body   string
			want   Error
			text   string
		}{
			"problem": {412, map[string]string{"ETag": `"v7"`, "X-Request-Id": "id"}, `{"code":"version_mismatch","title":"T","detail":"d","tree":"t","key":"k"}`,
				Error{Status: 412, Code: ErrVersionMismatch, Title: "T", Detail: "d", RequestID: "id", Current: "v7", Tree: "t", Key: "k"}, "412 version_mismatch: d (request id)"},
			"proxy":       {502, map[string]string{"Retry-After": "3"}, "<html>", Error{Status: 502, Title: "Bad Gateway", RetryAfter: 3 * time.Second}, "502 Bad Gateway"},
			"date":        {503, map[string]string{"Retry-After": time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}, "", Error{Status: 503, Title: "Service Unavailable", RetryAfter: time.Minute}, "503 Service Unavailable"},
			"bad advice":  {503, map[string]string{"Retry-After": "soon"}, "", Error{Status: 503, Title: "Service Unavailable"}, "503 Service Unavailable"},
			"bad advice2": {503, map[string]string{"Retry-After": "-4"}, "", Error{Status: 503, Title: "Service Unavailable"}, "503 Service Unavailable"},
		} {
			w := httptest.NewRecorder()
			for k, v := range tc.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
			got := readError(w.Result(), time.Now())
			if *got != tc.want || got.Error() != tc.text {
				t.Errorf("%s: %+v %q", name, *got, got.Error())
			}
		}
	})
}

func TestNewRefusesBadURLs(t *testing.T) {
	for _, u := range []string{"", "localhost:8080", "ftp://x", "http://", "http://user:secret@x", "http://x?a=b", "http://x#f", "http://x:port\x00/secret"} {
		_, err := New(u, Options{})
		if !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("%q: %v", u, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error gives the secret away: %v", err)
		}
	}
	if _, err := New("http://x", Options{HTTPClient: &http.Client{}, RootCAs: x509.NewCertPool()}); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("authorities beside a client of its own: %v", err)
	}
	if _, err := New("http://x", Options{MaxAnswerBytes: -1}); err == nil {
		t.Error("negative bound accepted")
	}
	if _, err := New("http://x", Options{Retry: RetryPolicy{Base: -1}}); err == nil {
		t.Error("negative pause accepted")
	}
	c, err := New("https://x/prefix//", Options{})
	if err != nil || c.base != "https://x/prefix" {
		t.Errorf("base %q, %v", c.base, err)
	}
}
