package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/latticekv/lattice/core/tree"
)

func testParser() *entryParser {
	now := time.UnixMilli(1_700_000_000_000)
	return &entryParser{now: func() time.Time { return now }, types: map[string]string{}}
}

// reading is what a line was understood as.
type reading struct {
	end   bool
	count int64
	entry tree.BulkEntry
	err   string
}

func readLine(line []byte, strict bool) (got reading, quick bool) {
	p := testParser()
	if quick = p.scan(line); strict || !quick {
		if err := p.parse(line); err != nil {
			return reading{err: err.Error()}, quick
		}
	}
	if p.f.given[fieldEnd] || p.f.given[fieldCount] {
		if err := p.f.checkEnd(); err != nil {
			return reading{err: err.Error()}, quick
		}
		return reading{end: true, count: p.f.count}, quick
	}
	if err := p.entry("", &got.entry); err != nil {
		return reading{err: err.Error()}, quick
	}
	return got, quick
}

// agree holds the quick reading of a line against the strict one.
func agree(t interface{ Errorf(string, ...any) }, line []byte) (quick bool) {
	want, _ := readLine(line, true)
	got, quick := readLine(line, false)
	same := got.end == want.end && got.count == want.count && got.err == want.err && got.entry.Key == want.entry.Key &&
		bytes.Equal(got.entry.Value, want.entry.Value) && got.entry.Type == want.entry.Type && got.entry.Expiry.Equal(want.entry.Expiry)
	if !same {
		t.Errorf("%q is read as %+v, strictly as %+v (quick: %t)", line, got, want, quick)
	}
	return quick
}

var oddLines = []string{
	`{"key":"a","value":"YQ=="}`, `{"key": "a", "value": "YQ=="}`, `{"key":"a","value":"YR=="}`, `{"key":"a","value":"YQ"}`, "{\"key\":\"a\",\"value\":\"YQ\r==\"}",
	`{"key":"a","value":"YQ==\n"}`, `{"key":"a\"","text":"b"}`, `{"key":"a\\","text":"b"}`, `{"key":"é🙂","text":"\u00e9"}`, "{\"key\":\"\xff\",\"text\":\"\"}",
	`{"key":"a","text":"","ttl":"5m"}`, `{"key":"a","text":"","ttl":5}`, `{"key":"a","text":"","ttl":"-5"}`, `{"key":"a","text":"","ttl":null}`,
	`{"key":"a","text":"","expiresAt":"2030-01-01T00:00:00Z"}`, `{"key":"a","text":"","expiresAt":"2030-01-01T00:00:00.123456789+05:30"}`,
	`{"key":"a","text":"","expiresAt":"2030-01-01 00:00:00Z"}`, `{"key":"a","text":"","expiresAt":"1900-01-01T00:00:00Z"}`, `{"key":"a","text":"","expiresAt":"9999-12-31T23:59:59-01:00"}`,
	`{"key":"a","text":"","version":"v","contentType":"a/b"}`, `{"key":"a","text":"","contentType":""}`, `{"key":"a","text":"","contentType":"b"}`,
	`{"key":"a","key":"b","text":""}`, `{"key":"a","text":"","text":""}`, `{"Key":"a","text":""}`, `{"key":"a","text":""}x`, `{"key":"a","text":"",}`, `{"key":"a" "text":""}`,
	`{"key":"a","json":{"b":[1,2, 3]}}`, `{"key":"a","json":null}`, `{"key":"a","json":"s"}`, `{}`, `{`, `}`, `{"}`, ``, ` {"key":"a","text":""} `, "{\"key\":\"a\",\"text\":\"\"}\r",
	"{\"key\":\"a\",\"text\":\"\t\"}", `{"end":true,"count":3}`, `{"end":true,"count":-1}`, `{"end":"true","count":"3"}`, `{"end":true,"count":3,"key":"a"}`, `{"error":{"code":"x"}}`,
	`{"key":"","text":""}`, `{"text":""}`, `{"key":"a"}`, `{"key":"a","text":"","value":""}`, `{"key":"\ud83e","text":""}`, `{"key":"\ud83e\udd8a","text":""}`, `[]`, `null`,
}

func TestQuickAndStrictReadingAgree(t *testing.T) {
	for _, line := range oddLines {
		agree(t, []byte(line))
	}
	quick := 0
	names := rapid.SampledFrom(append(fieldNames[:], "x", "error", "Key", `key\u0000`))
	texts := rapid.OneOf(
		rapid.String(), rapid.StringMatching(`[A-Za-z0-9+/]{0,12}={0,2}`), rapid.StringMatching(`[a-z/0-9.-]{0,20}`),
		rapid.SampledFrom([]string{"5m", "30", "2030-01-01T00:00:00Z", "text/plain", "a\r", "\x00", `\n`, `\"`}),
	)
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("{")
		for i := range rapid.IntRange(0, 5).Draw(t, "members") {
			if i > 0 {
				b.WriteString(rapid.SampledFrom([]string{",", ", ", " ,", ""}).Draw(t, "comma"))
			}
			name, text := names.Draw(t, "name"), texts.Draw(t, "text")
			format := rapid.SampledFrom([]string{"\"%s\":\"%s\"", "\"%s\": \"%s\"", "\"%s\":%s", "%q:%q"}).Draw(t, "format")
			fmt.Fprintf(&b, format, name, text)
		}
		b.WriteString("}")
		if agree(t, []byte(b.String())) {
			quick++
		}
	})
	if quick == 0 {
		t.Error("no line was read quickly")
	}
}

func TestUsualLinesAreReadQuickly(t *testing.T) {
	for _, line := range []string{
		`{"key":"order/1","value":"AAECAw=="}`, `{"key": "é", "value": "", "contentType": "text/plain; charset=utf-8", "expiresAt": "2030-01-01T00:00:00Z"}`,
		`{"key":"a","value":"AA==","version":"000000000000000000000001"}`, `{"key":"a","text":"b","ttl":"5m"}`,
	} {
		if _, quick := readLine([]byte(line), false); !quick {
			t.Errorf("%s takes the long way", line)
		}
	}
}

func FuzzBulkLine(f *testing.F) {
	for _, line := range oddLines {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') < 0 {
			agree(t, line)
		}
	})
}

// FuzzBulkLines holds the reader of streams against the one of bodies in
// memory, at any size of the pieces in which a body arrives.
func FuzzBulkLines(f *testing.F) {
	f.Add([]byte(lines("a", "b")+"\n{\"end\":true,\"count\":2}\n"), 3)
	f.Add([]byte("\n\nx"), 1)
	f.Add([]byte(lines(strings.Repeat("k", 100))), 17)
	f.Fuzz(func(t *testing.T, body []byte, piece int) {
		held := all(&lineSource{lines: &heldLines{body}, parse: testParser()})
		pieces := &pieces{body, 1 + abs(piece)%64}
		streamed := all(&lineSource{lines: &streamLines{body: bufio.NewReaderSize(pieces, 16), limit: 1 << 20, hold: free, done: func() {}}, parse: testParser()})
		if held != streamed {
			t.Errorf("%q is read as\n%s\nand as a stream as\n%s", body, held, streamed)
		}
	})
}

func free(int64) error { return nil }

func abs(n int) int { return max(n, -(n + 1)) }

// all renders what a source gives.
func all(src tree.BulkSource) string {
	var b strings.Builder
	for {
		var e tree.BulkEntry
		if err := src.Next(context.Background(), &e); err != nil {
			line := &lineError{}
			errors.As(err, &line)
			fmt.Fprintf(&b, "%d: %v", line.line, err)
			return b.String()
		}
		fmt.Fprintf(&b, "%q=%q\n", e.Key, e.Value)
	}
}

// pieces gives a body in pieces of one size.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// TestStreamIsReadAPortionAhead counts, over a pipe, how far the reader of a
// body is ahead of the entries it has given out.
func TestStreamIsReadAPortionAhead(t *testing.T) {
	const entries = 100_000
	r, w := io.Pipe()
	written := 0
	go func() {
		for i := range entries {
			n, err := fmt.Fprintf(w, "{\"key\":\"k%08d\",\"value\":\"%0100d\"}\n", i, 0)
			if written += n; err != nil {
				return
			}
		}
		_ = w.Close()
	}()
	var held int64
	s := newServer(Config{Clock: newFakeDB().clock, Options: testOptions(), MaxBufferedBytes: 1 << 30}, newFakeDB())
	req := &request{Request: httptest.NewRequest(http.MethodPost, bulkStream, io.NopCloser(r))}
	src, err := s.streamSource(httptest.NewRecorder(), req)
	if err != nil {
		t.Fatal(err)
	}
	given, n := 0, 0
	for {
		var e tree.BulkEntry
		err := src.Next(t.Context(), &e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Key != fmt.Sprintf("k%08d", n) || len(e.Value) != 75 {
			t.Fatalf("entry %d is %q with %d bytes", n, e.Key, len(e.Value))
		}
		n++
		given += len("{\"key\":\"k00000000\",\"value\":\"\"}\n") + 100
		if ahead := int(src.(*lineSource).lines.(*streamLines).body.Buffered()); ahead > linesPortion {
			t.Fatalf("%d bytes ahead", ahead)
		}
		held = max(held, s.buffered.Load())
	}
	if n != entries || given != written || held > linesPortion {
		t.Errorf("%d entries, %d of %d bytes, %d held", n, given, written, held)
	}
}

func TestReadingAStreamMakesOneKeyOfGarbage(t *testing.T) {
	line := []byte(`{"key":"order/acme/00001","value":"` + strings.Repeat("AAAA", 34) + `","contentType":"application/json"}`)
	p := testParser()
	var e tree.BulkEntry
	read := func() {
		if _, _, err := p.line(line, &e); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if n := testing.AllocsPerRun(100, read); n > 1 {
		t.Errorf("%v allocations for an entry", n)
	}
}

func TestLinesAreBounded(t *testing.T) {
	const limit = 100_000
	read := func(size int, hold func(int64) error) error {
		body := strings.NewReader(strings.Repeat("x", size) + "\n")
		l := &streamLines{body: bufio.NewReaderSize(body, 1000), limit: limit, hold: hold, done: func() {}}
		line, err := l.next()
		if err == nil && len(line) != size {
			t.Errorf("%d of %d bytes", len(line), size)
		}
		return err
	}
	for _, size := range []int{0, 999, 1000, 1001, limit - 1, limit} {
		var held int64
		if err := read(size, func(n int64) error { held += n; return nil }); err != nil || held > limit || size > 1000 && held < int64(size) {
			t.Errorf("%d bytes: %v, %d held", size, err, held)
		}
	}
	if p := classify(cmp.Or(read(limit+1, free), io.EOF)); p.Code != CodeRequestTooLarge || p.Limit != limit {
		t.Errorf("%+v", p)
	}
	if err := read(limit, func(int64) error { return failf(CodeUnavailable, "full") }); classify(cmp.Or(err, io.EOF)).Code != CodeUnavailable {
		t.Errorf("%v", err)
	}
}

// deadlineBody is a connection whose reads end at its deadline.
type deadlineBody struct {
	*httptest.ResponseRecorder
	*io.PipeReader
	due time.Time
	// bare counts reads without a deadline.
	bare int
}

func (d *deadlineBody) SetReadDeadline(t time.Time) error { d.due = t; return nil }

func (d *deadlineBody) Read(b []byte) (int, error) {
	if d.due.IsZero() {
		d.bare++
	}
	timer := time.AfterFunc(time.Until(d.due), func() { _ = d.PipeReader.CloseWithError(os.ErrDeadlineExceeded) })
	defer timer.Stop()
	return d.PipeReader.Read(b)
}

// TestStreamMustGetOn shows how long a body may take: as long as it likes if its
// lines keep coming, and RequestTimeout without a whole one.
func TestStreamMustGetOn(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(w io.Writer, pause func(time.Duration))
		busy time.Duration
		want int
		fine bool
	}{
		"steady": {send: func(w io.Writer, pause func(time.Duration)) {
			for i := range 50 {
				pause(20 * time.Second)
				_, _ = io.WriteString(w, lines(fmt.Sprintf("k%02d", i)))
			}
		}, want: 50, fine: true},
		"stalled": {send: func(w io.Writer, pause func(time.Duration)) {
			_, _ = io.WriteString(w, lines("a"))
			pause(31 * time.Second)
			_, _ = io.WriteString(w, lines("b"))
		}, want: 1},
		"byte by byte": {send: func(w io.Writer, pause func(time.Duration)) {
			for _, c := range lines("a", "b") {
				pause(2 * time.Second)
				_, _ = io.WriteString(w, string(c))
			}
		}, want: 0},
		"empty lines": {send: func(w io.Writer, pause func(time.Duration)) {
			_, _ = io.WriteString(w, lines("a"))
			for range 10 {
				pause(20 * time.Second)
				_, _ = io.WriteString(w, "\n")
			}
		}, want: 1},
		"a long line": {send: func(w io.Writer, pause func(time.Duration)) {
			_, _ = io.WriteString(w, `{"key":"a","text":"`)
			for range 20 {
				pause(20 * time.Second)
				_, _ = io.WriteString(w, strings.Repeat("x", linesPortion))
			}
			_, _ = io.WriteString(w, "\"}\n")
		}, want: 1, fine: true},
		"service is busy": {send: func(w io.Writer, pause func(time.Duration)) { _, _ = io.WriteString(w, lines("a", "b", "c")+"\n") }, busy: time.Minute, want: 3, fine: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				conn := &deadlineBody{ResponseRecorder: httptest.NewRecorder(), PipeReader: r}
				s := newServer(Config{Clock: newFakeDB().clock, Options: testOptions(), MaxBufferedBytes: 1 << 30}, newFakeDB())
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					tc.send(w, func(d time.Duration) {
						timer := time.NewTimer(d)
						<-timer.C
					})
					_ = w.Close()
				}()
				req := &request{Request: httptest.NewRequest(http.MethodPost, bulkStream, conn)}
				src, err := s.streamSource(conn, req)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for {
					var e tree.BulkEntry
					if err = src.Next(t.Context(), &e); err != nil {
						break
					}
					n++
					if !conn.due.IsZero() {
						t.Fatal("the deadline stands while the service works")
					}
					timer := time.NewTimer(tc.busy)
					<-timer.C
				}
				if n != tc.want || errors.Is(err, io.EOF) != tc.fine || conn.bare > 0 {
					t.Errorf("%d entries, %v, %d reads without a deadline", n, err, conn.bare)
				}
				_ = r.Close()
				<-sent
			})
		})
	}
}
