package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestValueLimitIsExact(t *testing.T) {
	const limit = 3 << 20
	r := newRig(t, func(c *Config) { c.Options.MaxValueSizeBytes = limit })
	for _, size := range []int{0, 1, 4096, firstChunk - 1, firstChunk, firstChunk + 1, limit - 1, limit} {
		value := strings.Repeat("x", size)
		r.put(k+"a", value)
		r.do("GET", k+"a", "").wantStatus(200).wantBody(value)
		r.chunked("PUT", k+"b", value).wantStatus(map[bool]int{true: 201, false: 200}[size == 0])
		r.do("GET", k+"b", "").wantBody(value)
	}
	for _, size := range []int{limit + 1, limit + maxDrain, limit + maxDrain + 1} {
		for _, send := range []func(method, path, body string) *reply{r.chunked, func(m, p, b string) *reply { return r.do(m, p, b) }} {
			if size > limit+maxDrain {
				continue
			}
			p := send("PUT", k+"c", strings.Repeat("x", size)).wantProblem(413, CodeValueTooLarge)
			if p.Limit != limit || p.Key != "c" {
				t.Errorf("%d bytes: problem %+v", size, p)
			}
		}
	}
	r.do("GET", k+"c", "").wantProblem(404, CodeKeyNotFound)
	if n := r.api.buffered.Load(); n != 0 {
		t.Errorf("%d bytes still count as held", n)
	}
}

// chunked sends a body without announcing its length.
func (r *rig) chunked(method, path, body string) *reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.web.URL+path, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.ContentLength = -1
	return r.send(req)
}

// raw sends bytes as they are and reads the answer.
func (r *rig) raw(request string) *http.Response { r.t.Helper(); return r.bytes(request, false) }

// cutOff sends a request and says that nothing follows.
func (r *rig) cutOff(request string) *http.Response { r.t.Helper(); return r.bytes(request, true) }

func (r *rig) bytes(request string, cut bool) *http.Response {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.web.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		r.t.Fatal(err)
	}
	if cut {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			r.t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatalf("no answer: %v", err)
	}
	return resp
}

func TestBodyShorterThanAnnounced(t *testing.T) {
	r := newRig(t)
	resp := r.cutOff("PUT " + k + "a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nshort")
	if resp.StatusCode != 400 {
		t.Errorf("status %d", resp.StatusCode)
	}
	resp = r.cutOff("PUT " + k + "a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n")
	if resp.StatusCode != 400 {
		t.Errorf("broken chunks: status %d", resp.StatusCode)
	}
	if len(r.db.trees) != 0 {
		t.Error("a cut-off body was stored")
	}
}

func TestHugeBodiesAreRefusedByTheirAnnouncement(t *testing.T) {
	r := newRig(t)
	resp := r.cutOff("PUT " + k + "a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999999999\r\n\r\n")
	if resp.StatusCode != 413 {
		t.Errorf("status %d", resp.StatusCode)
	}
	resp = r.cutOff("POST " + tr + "/batch HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n")
	if resp.StatusCode != 413 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestPathsArriveAsSent(t *testing.T) {
	r := newRig(t)
	for i, path := range []string{"..", ".", "%2e%2e%2f", "a%2fb", "a%2Fb", "%00", "a;b", "é", "a'b\"c"} {
		resp := r.raw(fmt.Sprintf("PUT %s%s HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d", k, path, i))
		if resp.StatusCode/100 != 2 {
			t.Errorf("%s: status %d, Location %q", path, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	items := r.db.trees["t"].items
	for _, key := range []string{"..", ".", "../", "a/b", "\x00", "a;b", "é", "a'b\"c"} {
		if _, ok := items[key]; !ok {
			t.Errorf("%q was not stored", key)
		}
	}
	if len(items) != 8 {
		t.Errorf("%d items", len(items))
	}
}

func TestEncodedBodiesAreRefused(t *testing.T) {
	r := newRig(t)
	for _, coding := range []string{"gzip", "identity, gzip", "x"} {
		r.do("PUT", k+"a", "x", "Content-Encoding", coding).wantProblem(415, CodeUnsupportedEncoding)
		got := r.do("POST", tr+"/batch", `{"operations":[]}`, "Content-Encoding", coding)
		if got.wantProblem(415, CodeUnsupportedEncoding); got.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("it does not say what it takes: %v", got.Header)
		}
	}
	for _, coding := range []string{"", "identity", "Identity"} {
		r.put(k+"a", "x", "Content-Encoding", coding)
	}
}

func TestMemoryForBodiesIsBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxBufferedBytes = 3 << 20 })
	r.do("PUT", k+"a", strings.Repeat("x", 3<<20+1)).wantProblem(503, CodeUnavailable)
	r.do("PUT", k+"a", strings.Repeat("x", 3<<20)).wantStatus(201)
	r.chunked("PUT", k+"a", strings.Repeat("x", 1<<20)).wantStatus(200)
	r.chunked("PUT", k+"a", strings.Repeat("x", 3<<20)).wantProblem(503, CodeUnavailable)
	r.api.buffered.Store(3 << 20)
	r.do("PUT", k+"a", "x").wantProblem(503, CodeUnavailable)
	r.do("GET", tr+"/count", "").wantStatus(200)
	r.api.buffered.Store(0)
	r.do("PUT", k+"a", "x").wantStatus(200)
	if n := r.api.buffered.Load(); n != 0 {
		t.Errorf("%d bytes still count as held", n)
	}
}

func TestReadExactly(t *testing.T) {
	limit := bodyLimit{10, CodeValueTooLarge, "the value"}
	tests := map[string]struct {
		body   string
		length int64
		code   Code
	}{
		"announced":          {"12345", 5, ""},
		"unannounced":        {"1234567890", -1, ""},
		"empty":              {"", 0, ""},
		"empty, unannounced": {"", -1, ""},
		"short":              {"1234", 5, CodeInvalidArgument},
		"long":               {"123456", 5, CodeInvalidArgument},
		"over":               {"12345678901", -1, CodeValueTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := readExactly(iotestOneByte{strings.NewReader(tt.body)}, tt.length, limit, func(int64) error { return nil })
			if tt.code == "" {
				if err != nil || !bytes.Equal(got, []byte(tt.body)) || got == nil {
					t.Errorf("read %q, %v", got, err)
				}
				return
			}
			if err == nil || classify(err).Code != tt.code {
				t.Errorf("error %v, want %s", err, tt.code)
			}
		})
	}
}

// iotestOneByte hands out one byte a call, and sometimes none.
type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// TestMemoryForAnswersIsBounded: a value stays in memory while its reader takes
// its time, so it counts.
func TestMemoryForAnswersIsBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxBufferedBytes = 3 << 20 })
	r.put(k+"a", strings.Repeat("x", longAnswer+1))
	r.put(k+"b", "small")
	reads := []struct{ method, path, body string }{
		{"GET", k + "a", ""}, {"GET", tr + "/entries", ""}, {"POST", tr + "/batch-get", `{"keys":["a"]}`}, {"PUT", k + "a?mode=get-or-set", ""},
	}
	for _, c := range reads {
		r.do(c.method, c.path, c.body).wantStatus(200)
		r.awaitBuffered(0)
	}
	for _, c := range reads[:3] {
		r.api.buffered.Store(3<<20 - longAnswer)
		r.do(c.method, c.path, c.body).wantProblem(503, CodeUnavailable)
	}
	r.do("HEAD", k+"a", "").wantStatus(200)
	r.do("GET", k+"b", "").wantStatus(200)
}

// heldWhile is an answer that notes what is counted while it is written.
type heldWhile struct {
	*httptest.ResponseRecorder
	s    *Server
	most int64
}

func (h *heldWhile) Write(b []byte) (int, error) {
	h.most = max(h.most, h.s.buffered.Load())
	return h.ResponseRecorder.Write(b)
}

// TestPagesOfCursorsAreCountedBeforeTheCursorMoves: a page that is refused is the
// next one still.
func TestPagesOfCursorsAreCountedBeforeTheCursorMoves(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxBufferedBytes = 3 << 20 })
	for _, key := range []string{"a", "b"} {
		r.put(k+key, strings.Repeat(key, longAnswer+1))
	}
	open := decode[cursorBody](r.do("POST", tr+"/cursors", `{"kind":"entries"}`).wantStatus(201))
	r.awaitBuffered(0)
	next := func(others int64, body string) *heldWhile {
		r.api.buffered.Store(others)
		w := &heldWhile{httptest.NewRecorder(), r.api, 0}
		r.api.ServeHTTP(w, httptest.NewRequest("POST", tr+"/cursors/"+open.CursorID+"/next", strings.NewReader(body)))
		if n := r.api.buffered.Load(); n != others {
			t.Errorf("%d bytes stay counted, want %d", n, others)
		}
		return w
	}
	for i, key := range []string{"a", "b"} {
		if w := next(3<<20-longAnswer, `{"limit":1}`); w.Code != 503 {
			t.Errorf("without room: %d %.100s", w.Code, w.Body)
		}
		w := next(5, `{"limit":1}`)
		if want := fmt.Sprintf(`{"page":%d,"entries":[{"key":"%s"`, i+1, key); w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) {
			t.Fatalf("%d %.100s, want %s", w.Code, w.Body, want)
		}
		if size := int64(w.Body.Len()); w.most < 5+size || w.most > 5+size+2*pageOverheadBytes {
			t.Errorf("%d counted while %d were written", w.most, size)
		}
	}
}

// TestAnswersForWhichNoRoomWouldDoAreRefusedForGood: to say "try again" would be
// to lie.
func TestAnswersForWhichNoRoomWouldDoAreRefusedForGood(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxBufferedBytes = 1 << 20 })
	for i := range 8 {
		r.put(fmt.Sprint(k, i), strings.Repeat("<", 100<<10))
	}
	r.do("GET", tr+"/entries?as=text", "").wantProblem(413, CodeValueTooLarge)
	r.do("GET", tr+"/entries?as=text&limit=1", "").wantStatus(200)
	r.do("GET", tr+"/entries?limit=7", "").wantStatus(200)
}

// awaitBuffered waits for what is counted: the caller has its answer a moment
// before the handler ends.
func (r *rig) awaitBuffered(want int64) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for r.api.buffered.Load() != want {
		if time.Now().After(deadline) {
			r.t.Fatalf("%d bytes stay counted, want %d", r.api.buffered.Load(), want)
		}
		runtime.Gosched()
	}
}
