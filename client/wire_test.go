package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// answering is a client of one handler over a real listener.
func answering(t *testing.T, o Options, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	o.Retry.Max = -1
	c, err := New(srv.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func TestUploadCarriesLengthAndDigest(t *testing.T) {
	var got []*http.Request
	c := answering(t, Options{Token: "s3cret", UserAgent: "me"}, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r)
		w.Header().Set("ETag", `"v"`)
		_, _ = io.WriteString(w, `{"results":[{"key":"k","status":"ok"}]}`)
	})
	tree := c.Tree("t")
	for _, v := range []string{"", "hello"} {
		if _, err := tree.Set(t.Context(), "k", []byte(v), SetOptions{}); err != nil {
			t.Fatal(err)
		}
		r := got[len(got)-1]
		if r.Header.Get("Content-Length") == "" && r.ContentLength != int64(len(v)) || r.Header.Get("Content-Digest") != digestOf([]byte(v)) {
			t.Errorf("value %q: length %d, digest %q", v, r.ContentLength, r.Header.Get("Content-Digest"))
		}
		if len(r.TransferEncoding) > 0 || r.Header.Get("Authorization") != "Bearer s3cret" || r.UserAgent() != "me" {
			t.Errorf("headers %v, encoding %v", r.Header, r.TransferEncoding)
		}
	}
	if _, err := tree.Batch(t.Context(), Batch{Ops: []Op{{Key: "k"}}}); err != nil {
		t.Fatal(err)
	}
	if r := got[2]; r.ContentLength <= 0 || r.Header.Get("Content-Digest") == "" {
		t.Errorf("batch: length %d, headers %v", r.ContentLength, r.Header)
	}
}

func TestDamagedValueIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		digest string
		want   error
	}{
		"right":   {"sha-512=:AAAA:, " + digestOf([]byte("value")), nil},
		"none":    {"", nil},
		"other":   {"sha-512=:AAAA:", nil},
		"damaged": {digestOf([]byte("valuf")), ErrDigest},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Want-Content-Digest") == "" {
					t.Error("the digest was not asked for")
				}
				w.Header().Set("ETag", `"v"`)
				w.Header().Set("Content-Digest", tc.digest)
				_, _ = io.WriteString(w, "value")
			})
			if _, err := c.Tree("t").Get(t.Context(), "k", ReadOptions{}); !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"declared": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "101")
			_, _ = io.WriteString(w, strings.Repeat("x", 101))
		},
		"chunked": func(w http.ResponseWriter, r *http.Request) {
			for range 101 {
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, Options{MaxAnswerBytes: 100}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"v"`)
				h(w, r)
			})
			if _, err := c.Tree("t").Get(t.Context(), "k", ReadOptions{}); !errors.Is(err, ErrAnswerTooLarge) {
				t.Errorf("get: %v", err)
			}
			if _, err := c.Tree("t").Count(t.Context(), Range{}, CountOptions{}); !errors.Is(err, ErrAnswerTooLarge) {
				t.Errorf("count: %v", err)
			}
			for _, err := range c.Tree("t").Scan(t.Context(), Query{}) {
				if err == nil {
					t.Error("scan gave an entry")
				}
			}
		})
	}
}

func TestOddAnswersAreRefused(t *testing.T) {
	for _, body := range []string{"", "hello", "{}", "[]", `{"entries":5}`, "<html></html>"} {
		t.Run(body, func(t *testing.T) {
			c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) })
			tree := c.Tree("t")
			_, err1 := tree.Get(t.Context(), "k", ReadOptions{})
			_, err2 := tree.Set(t.Context(), "k", nil, SetOptions{})
			_, err3 := tree.Count(t.Context(), Range{}, CountOptions{})
			_, err4 := tree.DeleteRange(t.Context(), Range{}, true)
			_, err5 := tree.Batch(t.Context(), Batch{Ops: []Op{{Key: "k"}}})
			for i, err := range []error{err1, err2, err3, err4, err5} {
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("call %d: %v", i+1, err)
				}
			}
			for _, err := range tree.Scan(t.Context(), Query{}) {
				if !errors.Is(err, ErrIncomplete) {
					t.Errorf("scan: %v", err)
				}
			}
		})
	}
}

func TestMixedUpResultsAreRefused(t *testing.T) {
	for _, body := range []string{`{"results":[{"key":"b","status":"ok"},{"key":"a","status":"ok"}]}`, `{"results":[{"key":"a","status":"ok"}]}`, `{"results":[{"key":"a","status":"ok"},{"key":"b"}]}`} {
		c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) })
		if _, err := c.Tree("t").Batch(t.Context(), Batch{Ops: []Op{{Key: "a"}, {Key: "b"}}}); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRedirectIsNoSuccess(t *testing.T) {
	c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
			return
		}
		w.Header().Set("ETag", `"v"`)
	})
	_, err := c.Tree("t").Set(t.Context(), "k", nil, SetOptions{})
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusMovedPermanently {
		t.Fatalf("error %v", err)
	}
}

const line1, line2 = `{"key":"a","value":"eA==","version":"1"}` + "\n", `{"key":"b","value":"","version":"2"}` + "\n"

func TestBrokenStreamIsAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		n    int64
		last string
		want error
	}{
		"complete":           {line1 + line2 + `{"end":true,"count":2}` + "\n", 2, "", nil},
		"no last newline":    {line1 + `{"end":true,"count":1}`, 1, "", nil},
		"empty but complete": {`{"end":true,"count":0}` + "\n", 0, "", nil},
		"no end line":        {line1 + line2, 2, "b", ErrIncomplete},
		"nothing":            {"", 0, "", ErrIncomplete},
		"cut in a line":      {line1 + line2[:20], 1, "a", ErrIncomplete},
		"cut in the end":     {line1 + `{"end":true,"count":1`, 1, "a", ErrIncomplete},
		"wrong count":        {line1 + `{"end":true,"count":2}` + "\n", 1, "a", ErrIncomplete},
		"no count":           {line1 + `{"end":true}` + "\n", 1, "a", ErrIncomplete},
		"goes on after end":  {line1 + `{"end":true,"count":1}` + "\n" + line2, 1, "a", ErrIncomplete},
		"line without key":   {line1 + `{"value":"eA=="}` + "\n", 1, "a", ErrIncomplete},
		"bad base64":         {line1 + `{"key":"b","value":"!"}` + "\n", 1, "a", ErrIncomplete},
		"problem":            {line1 + `{"error":{"status":503,"code":"topology_unstable","detail":"moved"}}` + "\n", 1, "a", ErrTopologyUnstable},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, tc.body) })
			n, err := drainScan(t.Context(), c)
			if n != tc.n || !errors.Is(err, tc.want) {
				t.Fatalf("%d entries, %v; want %d, %v", n, err, tc.n, tc.want)
			}
			var se *StreamError
			if errors.As(err, &se) && (se.Entries != tc.n || se.LastKey != tc.last) {
				t.Fatalf("%+v", se)
			}
		})
	}
}

func drainScan(ctx context.Context, c *Client) (n int64, err error) {
	for _, e := range c.Tree("t").Scan(ctx, Query{}) {
		if err = e; err == nil {
			n++
		}
	}
	return n, err
}

func TestConnectionThatDiesInAStream(t *testing.T) {
	c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, line1)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	n, err := drainScan(t.Context(), c)
	if n != 1 || !errors.Is(err, ErrIncomplete) {
		t.Fatalf("%d entries, %v", n, err)
	}
}

func TestLeavingAStreamEndsIt(t *testing.T) {
	left := make(chan struct{})
	c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, line1); err != nil {
				return
			}
		}
	})
	for _, err := range c.Tree("t").Scan(t.Context(), Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Fatal("the service still streams")
	}
}

func TestLongLine(t *testing.T) {
	long := strings.Repeat("A", 400_000)
	c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "{\"key\":\"a\",\"value\":%q}\n{\"end\":true,\"count\":1}\n", long)
	})
	for e, err := range c.Tree("t").Scan(t.Context(), Query{}) {
		if err != nil || len(e.Value) != 300_000 {
			t.Fatalf("%d bytes, %v", len(e.Value), err)
		}
	}
}

func TestPageTokenThatRepeats(t *testing.T) {
	c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"entries":[],"trees":[],"nextPageToken":"again"}`)
	})
	for _, err := range c.Tree("t").Scan(t.Context(), Query{Limit: 5}) {
		if !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
	}
	for _, err := range c.ListTrees(t.Context()) {
		if !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
	}
}

func TestSizeBoundsTheBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := Op{Key: rapid.StringN(1, 40, -1).Draw(t, "key"), Text: rapid.Bool().Draw(t, "text")}
		op.Value = rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		if op.Text {
			op.Value = []byte(rapid.String().Draw(t, "string"))
		}
		if rapid.Bool().Draw(t, "expires") {
			op.TTL = time.Duration(rapid.Int64Range(1, 1<<62).Draw(t, "ttl"))
		}
		j, err := op.json()
		if err != nil {
			if utf8.ValidString(op.Key) {
				t.Fatal(err)
			}
			return
		}
		b, err := encodeJSON(j)
		if err != nil {
			t.Fatal(err)
		}
		if len(b)+1 > op.Size() {
			t.Fatalf("%d bytes, %d announced: %s", len(b), op.Size(), b)
		}
	})
}

func TestPathsKeepOnlyPlainKeys(t *testing.T) {
	for key, want := range map[string]bool{"a": true, "A-z_0.9~": true, "a.b": true, ".": false, "..": false, "...": false, "a/b": false, "a b": false, "%": false, "ü": false} {
		if plainSegment(key) != want {
			t.Errorf("%q: %v", key, !want)
		}
	}
}

// FuzzStream feeds the decoder with anything: it ends, and never calls a
// stream complete whose end line does not count its entries.
func FuzzStream(f *testing.F) {
	f.Add(line1 + line2 + `{"end":true,"count":2}` + "\n")
	f.Add(line1 + "{")
	f.Add("\n\n\n")
	f.Add(`{"error":{"code":"x"}}`)
	f.Fuzz(func(t *testing.T, body string) {
		c, err := New("http://x", Options{MaxAnswerBytes: 1 << 16, HTTPClient: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := drainScan(t.Context(), c)
		if err == nil && !strings.Contains(body, "end") && !strings.Contains(strings.ToLower(body), `"end"`) && !strings.Contains(body, `\u`) {
			t.Fatalf("%d entries without end line pass for complete", n)
		}
		if err != nil && !errors.Is(err, ErrIncomplete) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestOddAnswersOfCursorsAreRefused(t *testing.T) {
	for _, body := range []string{
		"", "{}", `{"page":1,"entries":[],"hasMore":false}`, `{"page":3,"entries":[],"hasMore":false}`, `{"page":2,"entries":[]}`,
		`{"page":2,"hasMore":true}`, `{"page":2,"entries":[],"deleted":0,"hasMore":true}`, `{"page":0,"entries":[],"hasMore":true}`,
		`{"cursorId":"x","snapshotVersion":"v"}`, `{"cursorId":""}`,
	} {
		c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) })
		cur := c.Tree("t").Cursor("id", 1)
		if p, err := cur.Next(t.Context(), 5); !errors.Is(err, ErrProtocol) || cur.LastPage() != 1 {
			t.Errorf("%s: page %+v, %v; the last page is %d", body, p, err, cur.LastPage())
		}
		if _, err := c.Tree("t").OpenCursor(t.Context(), CursorQuery{Kind: CursorKeys}); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: opened, %v", body, err)
		}
	}
	c := answering(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"page":7,"entries":[],"hasMore":true}`)
	})
	cur := c.Tree("t").Cursor("id", -1)
	if p, err := cur.Next(t.Context(), 5); err != nil || p.Page != 7 || cur.LastPage() != 7 {
		t.Errorf("a page that nobody counted: %+v, %v", p, err)
	}
}
