package hostile

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

// attack is a request that must be refused.
type attack struct {
	name string
	// raw are the bytes that are sent.
	raw string
	// status and code are those of the answer. Without a code the request is
	// refused by the HTTP server itself, before it is one.
	status int
	code   string
	// secrets were in the request and must not be in the answer.
	secrets []string
}

// request builds the bytes: a line, headers, and a body with its length unless a
// header says how long it is.
func request(line string, body string, headers ...string) string {
	var b strings.Builder
	b.WriteString(line + " HTTP/1.1\r\n")
	given := strings.ToLower("\r\n" + strings.Join(headers, "\r\n"))
	if !strings.Contains(given, "\r\nhost:") {
		b.WriteString("Host: lattice.example\r\n")
	}
	b.WriteString("Connection: close\r\n")
	if !strings.Contains(given, "\r\ncontent-length:") && !strings.Contains(given, "\r\ntransfer-encoding:") {
		b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	return b.String()
}

// chunked is a body in the coding of that name.
func chunked(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(strconv.FormatInt(int64(len(p)), 16) + "\r\n" + p + "\r\n")
	}
	return b.String() + "0\r\n\r\n"
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
	// rest is what followed on the connection.
	rest string
}

// exchange sends bytes as they are and reads one answer, and what follows it
// until the connection ends. No answer at all is the status 0.
func exchange(t testing.TB, address, raw string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// The answer may come, and the connection end, before all is sent.
		_, _ = io.WriteString(conn, raw)
	}()
	r := readReply(t, bufio.NewReader(conn), raw)
	conn.Close()
	<-sent
	return r
}

func readReply(t testing.TB, from *bufio.Reader, raw string) reply {
	t.Helper()
	method, _, _ := strings.Cut(raw, " ")
	if method != http.MethodHead {
		method = http.MethodGet
	}
	resp, err := http.ReadResponse(from, &http.Request{Method: method})
	if err != nil {
		return reply{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil && !(resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge && errorsIsReset(err)) {
		// A header without end is not read to its end.
		t.Errorf("the answer breaks off: %v", err)
	}
	rest, err := io.ReadAll(io.LimitReader(from, 1<<20))
	if err != nil && !errorsIsReset(err) {
		t.Errorf("the connection stays: %v", err)
	}
	return reply{resp.StatusCode, resp.Header, string(body), string(rest)}
}

func errorsIsReset(err error) bool { return strings.Contains(err.Error(), "connection reset") }

// answerHeaders are all that a refusal may have.
var answerHeaders = []string{
	"Accept-Encoding", "Allow", "Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Etag", "Retry-After", "Www-Authenticate",
	"X-Content-Type-Options", "X-Request-Id", "Content-Digest",
}

// inner is what no answer tells: code, addresses, names of rows and blobs.
var inner = regexp.MustCompile(`goroutine |\.go:\d|runtime error|panic|0x[0-9a-f]{8}|127\.0\.0\.1:\d|devstoreaccount1|AccountKey|PartitionKey`)

// judge holds an answer against what was expected of it.
func (a *attack) judge(t *testing.T, r reply) {
	t.Helper()
	if r.status != a.status {
		t.Fatalf("answered %d, want %d: %.300s", r.status, a.status, r.body)
	}
	if r.rest != "" {
		t.Errorf("a second answer: %.200s", r.rest)
	}
	for name := range r.header {
		if !slices.Contains(answerHeaders, name) {
			t.Errorf("the answer has the header %s: %s", name, r.header.Get(name))
		}
	}
	if found := inner.FindString(r.body); found != "" {
		t.Errorf("the answer tells %q: %.300s", found, r.body)
	}
	for _, secret := range a.secrets {
		if len(secret) > 12 && (strings.Contains(r.body, secret) || strings.Contains(r.header.Get("Www-Authenticate"), secret)) {
			t.Errorf("the answer has a credential: %.300s", r.body)
		}
	}
	if a.code != "" && !strings.HasPrefix(a.raw, "HEAD ") {
		a.judgeProblem(t, r)
	}
}

var saneID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func (a *attack) judgeProblem(t *testing.T, r reply) {
	t.Helper()
	var p struct {
		Type, Title, Code, RequestID string
		Status                       int
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("no problem document: %v: %.300s", err, r.body)
	}
	if p.Code != a.code {
		t.Errorf("code %s, want %s: %.300s", p.Code, a.code, r.body)
	}
	id := r.header.Get("X-Request-Id")
	if p.Status != a.status || p.Type != "urn:lattice:problem:"+a.code || p.Title == "" || p.RequestID != id || !saneID.MatchString(id) {
		t.Errorf("header %v, document %.300s", r.header, r.body)
	}
	if r.header.Get("Content-Type") != "application/problem+json" || r.header.Get("Cache-Control") != "no-store" || r.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header %v", r.header)
	}
	if a.status == http.StatusUnauthorized && !strings.HasPrefix(r.header.Get("Www-Authenticate"), `Bearer realm="lattice"`) {
		t.Errorf("no challenge: %v", r.header)
	}
}

// remember makes the credentials of an attack secrets of the logs.
func (a *attack) remember(t testing.TB) {
	for _, s := range a.secrets {
		if len(s) >= 24 {
			running.Secret(t, s)
		}
	}
}
