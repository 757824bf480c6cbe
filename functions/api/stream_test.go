package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/store"
)

func linesOf(a *reply) []string {
	return strings.Split(strings.TrimSuffix(string(a.body), "\n"), "\n")
}

func TestStreamIsTheWholeRange(t *testing.T) {
	r := newRig(t)
	r.do("GET", tr+"/entries", "", "Accept", ndjsonType).wantProblem(404, CodeTreeNotFound)
	var keys []string
	for i := range 2500 {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	fill(r, keys...)
	got := r.do("GET", tr+"/entries?as=text", "", "Accept", ndjsonType).wantStatus(200).wantHeader("Content-Type", ndjsonType)
	lines := linesOf(got)
	if len(lines) != 2501 || lines[2500] != `{"end":true,"count":2500}` {
		t.Fatalf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	for i, line := range lines[:2500] {
		var e entryBody
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Key != keys[i] || *e.Text != "v-"+keys[i] {
			t.Fatalf("line %d is %s: %v", i, line, err)
		}
	}
	lines = linesOf(r.do("GET", tr+"/entries?prefix=k00&reverse=true&keysOnly=true", "", "Accept", ndjsonType))
	if len(lines) != 101 || !strings.HasPrefix(lines[0], `{"key":"k0099"`) || strings.Contains(lines[0], "value") {
		t.Errorf("%d lines, the first is %s", len(lines), lines[0])
	}
	r.do("GET", tr+"/entries?prefix=none", "", "Accept", ndjsonType).wantStatus(200).wantBody("{\"end\":true,\"count\":0}\n")
	r.do("HEAD", tr+"/entries", "", "Accept", ndjsonType).wantStatus(200).wantBody("").wantHeader("Content-Type", ndjsonType)
	for _, query := range []string{"limit=5", "pageToken=t:a"} {
		r.do("GET", tr+"/entries?"+query, "", "Accept", ndjsonType).wantProblem(400, CodeInvalidArgument)
	}
}

func TestAcceptChoosesTheStream(t *testing.T) {
	tests := map[string]bool{
		"": false, "*/*": false, "application/*": false, jsonType: false, ndjsonType: true, "Application/X-NDJSON": true,
		ndjsonType + "; q=0": false, ndjsonType + ";q=0.5, " + jsonType: false, ndjsonType + ", " + jsonType: true,
		jsonType + ";q=0.2, " + ndjsonType + ";q=0.9": true, "text/html, " + ndjsonType + ", */*;q=0.1": true,
		ndjsonType + ";q=x": false, ";;;, " + ndjsonType: true, `a/b; c="x,` + ndjsonType + `"`: false,
	}
	for accept, want := range tests {
		if got := prefersStream([]string{accept}); got != want {
			t.Errorf("Accept %q: stream %t, want %t", accept, got, want)
		}
	}
}

func TestStreamThatFailsLacksItsEnd(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b", "c")
	r.db.trees["t"].streamErr, r.db.trees["t"].streamed = store.ErrUnavailable, 2
	got := r.do("GET", tr+"/entries", "", "Accept", ndjsonType).wantStatus(200)
	lines := linesOf(got)
	if len(lines) != 3 || strings.Contains(string(got.body), `"end"`) {
		t.Fatalf("lines %q", lines)
	}
	var last struct{ Error Problem }
	if err := json.Unmarshal([]byte(lines[2]), &last); err != nil || last.Error.Code != CodeUnavailable || last.Error.RequestID != got.Header.Get("X-Request-Id") {
		t.Errorf("last line %s: %v", lines[2], err)
	}
	r.do("GET", "/healthz", "")
	if !strings.Contains(r.logs.String(), `"level":"ERROR"`) || !strings.Contains(r.logs.String(), `"code":"unavailable"`) {
		t.Errorf("the log does not tell of the failure: %s", r.logs.String())
	}
	r.db.trees["t"].streamed = 0
	r.do("GET", tr+"/entries", "", "Accept", ndjsonType).wantProblem(503, CodeUnavailable)
}

func TestStreamFlushesItsFirstEntry(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b")
	steps, release := 0, make(chan struct{})
	r.db.setHook(func(ctx context.Context, call string) {
		if call != "step" {
			return
		}
		if steps++; steps == 2 {
			<-release
		}
	})
	req, err := http.NewRequest("GET", r.web.URL+tr+"/entries", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", ndjsonType)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"key":"a"`) {
		t.Fatalf("first line %q: %v", lines.Text(), lines.Err())
	}
	close(release)
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	if len(rest) != 2 || rest[1] != `{"end":true,"count":2}` {
		t.Errorf("the rest is %q", rest)
	}
}

func TestStreamEndsWhenTheClientLeaves(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b", "c")
	ended := make(chan error, 1)
	steps := 0
	r.db.setHook(func(ctx context.Context, call string) {
		if call != "step" {
			return
		}
		if steps++; steps == 2 {
			<-ctx.Done()
			ended <- context.Cause(ctx)
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", r.web.URL+tr+"/entries", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", ndjsonType)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	leave()
	if cause := <-ended; cause == nil {
		t.Error("the stream was not cancelled")
	}
	r.web.Close()
	if statuses := r.statuses(); !slices.Contains(statuses, statusClientGone) {
		t.Errorf("statuses %v", statuses)
	}
}

func (r *rig) statuses() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []int
	for _, x := range r.seen {
		all = append(all, x.Status)
	}
	return all
}

// direct serves one request without a network, for tests under virtual time.
func (r *rig) direct(method, path, body string, header ...string) *reply {
	req := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(r.t.Context())
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	r.api.ServeHTTP(rec, req)
	resp := rec.Result()
	resp.Request = req
	return &reply{r.t, resp, rec.Body.Bytes()}
}

func TestTimeOfRequestsAndStreamSteps(t *testing.T) {
	r := newRig(t)
	fill(r, "a", "b", "c")
	r.web.Close()
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		slow := 20 * time.Second
		r.db.setHook(func(ctx context.Context, call string) {
			if call == "step" || call == "get" || call == "scan" {
				select {
				case <-time.After(slow):
				case <-ctx.Done():
				}
			}
		})
		start := time.Now()
		lines := linesOf(r.direct("GET", tr+"/entries", "", "Accept", ndjsonType).wantStatus(200))
		if len(lines) != 4 || time.Since(start) != time.Minute {
			t.Errorf("a stream of slow steps: %d lines in %s", len(lines), time.Since(start))
		}
		slow = 31 * time.Second
		for _, path := range []string{k + "a", tr + "/entries"} {
			start = time.Now()
			r.direct("GET", path, "").wantProblem(503, CodeUnavailable)
			if took := time.Since(start); took != 30*time.Second {
				t.Errorf("GET %s was cut off after %s", path, took)
			}
		}
		r.direct("GET", tr+"/entries", "", "Accept", ndjsonType).wantProblem(503, CodeUnavailable)
	})
}

// TestMemoryForStreamsIsBounded: a value counts while it is written, and no
// longer.
func TestMemoryForStreamsIsBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxBufferedBytes = 3 << 20 })
	r.put(k+"a", strings.Repeat("x", longAnswer+1))
	r.put(k+"b", strings.Repeat("x", longAnswer+1))
	r.api.buffered.Store(3<<20 - longAnswer - 1)
	got := r.do("GET", tr+"/entries", "", "Accept", ndjsonType).wantStatus(200)
	if !strings.Contains(string(got.body), `{"end":true,"count":2}`) {
		t.Errorf("%.100s", got.body)
	}
	r.awaitBuffered(3<<20 - longAnswer - 1)
	r.api.buffered.Store(3<<20 - longAnswer)
	r.do("GET", tr+"/entries", "", "Accept", ndjsonType).wantProblem(503, CodeUnavailable)
}
