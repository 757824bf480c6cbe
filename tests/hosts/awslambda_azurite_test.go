package hosts

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/running"
)

func TestLambdaRunsTimersOnAzurite(t *testing.T) {
	c := newCloud(t)
	l := startLambda(t, c.env...)
	if status, body := l.request(t, "PUT", "/v1/trees/t/keys/k", "", "v"); status != 201 {
		t.Fatalf("put: %d %s", status, body)
	}
	for event, timers := range map[string][]string{
		`{"timer":"checkpoint"}`: {"checkpoint"}, `{"timer":"monitor"}`: {"monitor"},
		`{"source":"aws.events","detail-type":"Scheduled Event"}`: {"monitor", "migrations", "transactions", "checkpoint", "collect"},
	} {
		answer := l.invoke(t, json.RawMessage(event))
		var done map[string]struct{ Timer string }
		if err := json.Unmarshal([]byte(answer), &done); err != nil || len(done) != len(timers) {
			t.Fatalf("%s returned %s: %v", event, answer, err)
		}
		for _, timer := range timers {
			if done[timer].Timer != timer {
				t.Errorf("%s returned %s", event, answer)
			}
		}
	}
	// Another instance sees it.
	if a := c.peer(t).call(t, "GET", "/v1/trees/t/keys/k", "", ""); a.status != 200 || a.body != "v" {
		t.Fatalf("get by another instance: %s", a)
	}
	if answer := l.invoke(t, json.RawMessage(`{"source":"aws.s3"}`)); !strings.Contains(answer, "neither an HTTP event") {
		t.Fatalf("an unknown event returned %s", answer)
	}
	if answer := l.invoke(t, json.RawMessage(`{"httpMethod":"GET","path":"/v1/trees"}`)); !strings.Contains(answer, "payload version 2.0") {
		t.Fatalf("an event of a REST API returned %s", answer)
	}
}

// entryLine is one line of a stream, or one entry of a page.
type entryLine struct {
	Key   string
	Value []byte
	End   bool
	Count int
}

// TestLambdaServesBinaryValuesOnAzurite runs through both forms of answers.
func TestLambdaServesBinaryValuesOnAzurite(t *testing.T) {
	for form, mode := range map[string]string{"whole": "false", "streamed": "true"} {
		t.Run(form, func(t *testing.T) {
			l := startLambda(t, append(newCloud(t).env, "LATTICE_LAMBDA_RESPONSE_STREAM="+mode)...)
			values := map[string]string{"a/b": "\x00\xff\x80\n", "a%b": "", "ключ 😀": strings.Repeat("\x00\x01\xfe\xff", 200<<10), "..": "\n"}
			escaped := map[string]string{"a/b": "a%2Fb", "a%b": "a%25b", "ключ 😀": "%D0%BA%D0%BB%D1%8E%D1%87%20%F0%9F%98%80", "..": "%2E%2E"}
			for key, value := range values {
				if a := l.call(t, "PUT", "/v1/trees/t/keys/"+escaped[key], "", value); a.status != 201 || a.header.Get("ETag") == "" {
					t.Fatalf("put %q: %s", key, a)
				}
				if a := l.call(t, "GET", "/v1/trees/t/keys/"+escaped[key], "", ""); a.status != 200 || a.body != value {
					t.Fatalf("get %q: %s", key, a)
				}
			}
			a := l.call(t, "GET", "/v1/trees/t/entries", "", "", "accept", "application/x-ndjson")
			count, end := 0, false
			for line := range strings.Lines(a.body) {
				var e entryLine
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				if end = e.End; end {
					if e.Count != len(values) {
						t.Errorf("the stream counts %d entries", e.Count)
					}
					break
				}
				if count++; string(e.Value) != values[e.Key] {
					t.Errorf("%q has %d bytes in the stream", e.Key, len(e.Value))
				}
			}
			if a.status != 200 || count != len(values) || !end {
				t.Errorf("the stream has %d entries, end %v: %s", count, end, a)
			}
			if status, body := l.request(t, "GET", "/v1/trees/t/count", "prefix=a", ""); status != 200 || !strings.Contains(body, `"count":2`) {
				t.Errorf("count: %d %s", status, body)
			}
			pages(t, l, mode == "true")
		})
	}
}

// pages reads a tree page by page with the largest limit: pages end where an
// answer of this form would get too large.
func pages(t *testing.T, l *lambda, streams bool) {
	t.Helper()
	const parts, size = 12, 512 << 10
	part := strings.Repeat("\xff\x00", size/2)
	for n := range parts {
		if a := l.call(t, "PUT", fmt.Sprintf("/v1/trees/p/keys/%02d", n), "", part); a.status != 201 {
			t.Fatalf("put: %s", a)
		}
	}
	token, total, asked := "", 0, 0
	for {
		query := "limit=10000"
		if token != "" {
			query += "&pageToken=" + token
		}
		a := l.call(t, "GET", "/v1/trees/p/entries", query, "")
		var page struct {
			Entries       []entryLine
			NextPageToken string
		}
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 {
			t.Fatalf("page: %s, %v", a, err)
		}
		for _, e := range page.Entries {
			if string(e.Value) != part {
				t.Errorf("%s has %d bytes in its page", e.Key, len(e.Value))
			}
		}
		total += len(page.Entries)
		asked++
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	want := 4 // of 2 MiB at most
	if streams {
		want = 2 // of 4 MiB at most
	}
	if total != parts || asked != want {
		t.Errorf("%d entries in %d pages, want %d in %d", total, asked, parts, want)
	}
	keys := `{"keys":["00","01","02","03","04","05","06","07"]}`
	if a := l.call(t, "POST", "/v1/trees/p/batch-get", "", keys); !streams && (a.status != 413 || a.field("code") != "value_too_large" || !strings.Contains(a.body, "this host") || a.field("limit") == "") {
		t.Errorf("an answer beyond the limit of the host: %s", a)
	} else if streams && a.status != 200 {
		t.Errorf("a streamed answer of the same size: %s", a)
	}
}

// chunkOf returns lines of a bulk load from one key to another.
func chunkOf(from, to int) string {
	var b strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&b, "{\"key\":\"%06d\",\"value\":\"AP+A\"}\n", n)
	}
	return b.String()
}

func TestLambdaLoadsInBulkOnAzurite(t *testing.T) {
	l := startLambda(t, newCloud(t).env...)
	const load = "/v1/trees/bulk/bulk-loads/op"
	ndjson := []string{"content-type", "application/x-ndjson"}
	if a := l.call(t, "PUT", load, "", ""); a.status != 201 {
		t.Fatalf("begin: %s", a)
	}
	var acknowledged []string
	for range 2 {
		a := l.call(t, "PUT", load+"/chunks/0", "", chunkOf(0, 5000), ndjson...)
		if a.status != 200 || a.field("acceptedEntryCount") != "5000" {
			t.Fatalf("chunk 0: %s", a)
		}
		acknowledged = append(acknowledged, a.body)
	}
	if acknowledged[0] != acknowledged[1] {
		t.Errorf("the replay was answered with %s, the chunk with %s", acknowledged[1], acknowledged[0])
	}
	if a := l.call(t, "PUT", load+"/chunks/1", "", chunkOf(5000, 5100), ndjson...); a.status != 200 {
		t.Fatalf("chunk 1: %s", a)
	}
	if a := l.call(t, "PUT", load+"/chunks/0", "", chunkOf(0, 5000), ndjson...); a.status != 409 || a.field("expectedChunkIndex") != "2" {
		t.Errorf("an earlier chunk: %s", a)
	}
	if a := l.call(t, "POST", load+"/commit", "", ""); a.status != 200 || a.field("totalLiveKeys") != "5100" {
		t.Fatalf("commit: %s", a)
	}
	if a := l.call(t, "GET", "/v1/trees/bulk/keys/004999", "", ""); a.status != 200 || a.body != "\x00\xff\x80" {
		t.Errorf("a loaded key: %s", a)
	}
}

func TestLambdaDemandsCredentials(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), running.Build(t, "cmd/lattice"), "keys", "new", "--json", "--name", "w", "--role", "writer", "--trees", "orders*").Output()
	var key struct{ Key, Line string }
	if err != nil || json.Unmarshal(out, &key) != nil || key.Key == "" {
		t.Fatalf("make a key: %v %s", err, out)
	}
	running.Secret(t, key.Key)
	l := startLambda(t, "LATTICE_STORE=memory", "LATTICE_AUTH_KEYS="+key.Line)
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/v1/trees/orders/keys/k", "Bearer " + key.Key, 201},
		{"/v1/trees/orders/keys/k", "", 401},
		{"/v1/trees/orders/keys/k", "Bearer " + key.Key + "x", 401},
		{"/v1/trees/others/keys/k", "Bearer " + key.Key, 403},
	} {
		if a := l.call(t, "PUT", c.path, "", "v", "authorization", c.authorization); a.status != c.want || strings.Contains(a.body, key.Key) {
			t.Errorf("%s: %s, want %d", c.path, a, c.want)
		}
	}
	if a := l.call(t, "POST", "/internal/timers/collect", "", "", "authorization", "Bearer "+key.Key); a.status != 401 && a.status != 403 {
		t.Errorf("a timer over HTTP: %s", a)
	}
	// A schedule needs none: whoever may invoke the function may run its timers.
	if got := l.invoke(t, json.RawMessage(`{"timer":"collect"}`)); !strings.Contains(got, `"timer":"collect"`) {
		t.Errorf("a schedule: %s", got)
	}
}

// TestLambdaEndsBeforeItIsEnded holds the storage until the time of the
// invocation is over: the function must say so itself, before the host ends it.
func TestLambdaEndsBeforeItIsEnded(t *testing.T) {
	c := newCloud(t)
	g := c.gate(t)
	l := startLambda(t, append(c.through(g), "AWS_LAMBDA_FUNCTION_TIMEOUT=2")...)
	const key = "/v1/trees/t/keys/k"
	if a := l.call(t, "PUT", key, "", "first"); a.status != 201 {
		t.Fatalf("put: %s", a)
	}
	pid := l.bootstrap(t)
	for _, applied := range []bool{false, true} {
		h := g.arm(&hold{matches: transactions, applied: applied, all: true})
		start := time.Now()
		a := l.call(t, "PUT", key, "", fmt.Sprint("second ", applied))
		if a.status != 503 || a.field("code") != "unavailable" || a.header.Get("Retry-After") == "" || a.field("outcomeUnknown") != "true" {
			t.Errorf("a write that is held (applied %v): %s", applied, a)
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("it was given up after %s", took)
		}
		g.arm(nil)
		h.let()
		if a := l.call(t, "GET", key, "", ""); a.status != 200 || a.body != "first" && !strings.HasPrefix(a.body, "second") {
			t.Errorf("get afterwards: %s", a)
		}
	}
	g.arm(&hold{matches: queries, all: true})
	if a := l.call(t, "GET", key, "", ""); a.status != 503 || a.header.Get("Retry-After") == "" || a.field("outcomeUnknown") != "" {
		t.Errorf("a read that is held: %s", a)
	}
	if got := l.invoke(t, json.RawMessage(`{"source":"aws.events"}`)); !strings.Contains(got, "errorMessage") || !strings.Contains(got, "timer monitor ") || !strings.Contains(got, "timer collect ") {
		t.Errorf("timers that are held: %s", got)
	}
	g.arm(nil)
	if got := l.invoke(t, json.RawMessage(`{"timer":"checkpoint"}`)); !strings.Contains(got, `"failed":0`) {
		t.Errorf("a timer afterwards: %s", got)
	}
	if now := l.bootstrap(t); now != pid {
		t.Error("the function was ended and begun anew")
	}
	if !strings.Contains(l.process.Output(), "options exceed the time of an invocation") {
		t.Error("the log does not say that the options exceed the time of an invocation")
	}
}
