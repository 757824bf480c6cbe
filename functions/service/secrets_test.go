package service

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/faulty"
	"github.com/latticekv/lattice/providers/memory"
)

// The marks stand for what a trace and a log must not tell. The key is long
// enough not to come about by chance, in every form in which it travels.
const (
	keyMark   = "kEyMaRk"
	valueMark = "vAlUeMaRk"
	queryMark = "qUeRyMaRk"
	headMark  = "hEaDeRmArK"
)

// marked are requests of every kind with marks wherever a caller may put
// something, that succeed and that fail.
func marked(x *traced) {
	const one = "/v1/trees/t/keys/" + keyMark
	b64 := base64.RawURLEncoding.EncodeToString([]byte(keyMark))
	headers := []string{"Authorization", "Bearer " + headMark, "Cookie", headMark, "User-Agent", headMark, "Referer", headMark, "Baggage", "k=" + headMark}
	send := func(method, path, body string, more ...string) {
		x.call(method, path, body, append(more, headers...)...)
	}
	send("PUT", one, valueMark)
	send("PUT", one+"?ttl="+queryMark, valueMark)
	send("PUT", one, valueMark, "If-None-Match", "*")
	send("PUT", one, valueMark, "If-Match", `"`+headMark+`"`)
	send("PUT", "/v1/trees/t/keys/"+strings.Repeat(keyMark, 5000), valueMark)
	send("GET", one, "")
	send("GET", "/v1/trees/t/key?b64="+b64, "")
	send("GET", "/v1/trees/t/key?key="+keyMark+"&x="+queryMark, "")
	send("GET", "/v1/trees/t/keys/other"+keyMark, "")
	send("GET", "/v1/trees/t/entries?prefix="+keyMark, "")
	send("GET", "/v1/trees/t/count?start="+keyMark, "")
	send("POST", "/v1/trees/t/batch-get", fmt.Sprintf(`{"keys":[%q]}`, keyMark))
	send("POST", "/v1/trees/t/batch", fmt.Sprintf(`{"operations":[{"op":"put","key":"%s2","value":%q}]}`, keyMark, valueMark))
	send("POST", "/v1/trees/t/batch", fmt.Sprintf(`{"atomic":true,"operationId":"op","operations":[{"op":"put","key":"%s3","value":%q},{"op":"put","key":"%s4","value":%q}]}`, keyMark, valueMark, keyMark, valueMark))
	send("POST", "/v1/trees/t/cursors", fmt.Sprintf(`{"prefix":%q}`, keyMark))
	send("DELETE", "/v1/trees/t/entries?prefix=other"+keyMark, "")
	send("GET", "/"+keyMark+"?"+queryMark, "")
	send(headMark, one, "")
	send("DELETE", one, "")
}

func TestNeitherSpansNorLogsTellKeysAndValues(t *testing.T) {
	m := memory.New(memory.Options{})
	in := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	log := &lines{}
	x := newTraced(t, in.Table(), in.Blobs(), func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Options.CheckpointTailRows, c.Options.InlineValueBytes = 1, 4
		c.Options.RequestTimeout, c.Options.RoutingRetryBudget = 200*time.Millisecond, 100*time.Millisecond
	})
	x.want(201, "PUT", "/v1/trees/t", `{"shardCount":4}`)
	marked(x)
	for _, timer := range []string{"checkpoint", "collect", "monitor", "migrations", "transactions"} {
		x.tick(timer)
	}
	for _, cause := range []error{store.ErrThrottled, store.ErrOutcomeUnknown, store.ErrCorrupt, store.ErrTooLarge} {
		in.Add(faulty.Rule{When: faulty.InPartition("s-"), Chance: 0.7, Do: faulty.Fail(cause)})
		marked(x)
		in.Clear()
	}
	spans := x.spans.GetSpans()
	if len(spans) < 100 {
		t.Fatalf("only %d spans", len(spans))
	}
	for i := range spans {
		text := fmt.Sprint(spans[i].Name, spans[i].Attributes, spans[i].Events, spans[i].Status, spans[i].Links, spans[i].SpanContext.TraceState(), spans[i].Resource)
		searchMarks(t, "the span "+spans[i].Name, text)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for line := range strings.Lines(log.all.String()) {
		searchMarks(t, "the log", line)
	}
}

func searchMarks(t *testing.T, where, text string) {
	t.Helper()
	for _, mark := range []string{keyMark, valueMark, queryMark, headMark} {
		for _, form := range []string{mark, base64.StdEncoding.EncodeToString([]byte(mark))[:8], base64.RawURLEncoding.EncodeToString([]byte(mark))[:8], fmt.Sprintf("%x", mark)} {
			if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
				t.Errorf("%s tells %s: %.600s", where, mark, text)
			}
		}
	}
}

func TestEveryLineOfARequestNamesIt(t *testing.T) {
	m := memory.New(memory.Options{})
	in := faulty.New(m.Table(), m.Blobs(), faulty.Options{})
	log := &lines{}
	x := newTraced(t, in.Table(), in.Blobs(), func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(log, nil))
		c.Options.RequestTimeout, c.Options.RoutingRetryBudget = 200*time.Millisecond, 100*time.Millisecond
	})
	x.want(201, "PUT", "/v1/trees/t", `{"shardCount":1}`)
	x.want(201, "PUT", "/v1/trees/t/keys/a", "v")
	for _, c := range []struct {
		id      string
		cause   error
		outcome string
		message string
		status  int
	}{
		{"throttled-1", store.ErrThrottled, "throttled", "storage operation", 503},
		{"unknown-1", store.ErrOutcomeUnknown, "unknown", "storage operation", 503},
		{"unknown-2", store.ErrOutcomeUnknown, "unknown", "append", 503},
		{"refused-1", store.ErrTooLarge, "failed", "append", 413},
		{"corrupt-1", store.ErrCorrupt, "corrupt", "storage operation", 500},
	} {
		id := c.id
		in.Add(faulty.Rule{When: faulty.InPartition("s-"), Do: faulty.Fail(c.cause)})
		x.want(c.status, "PUT", "/v1/trees/t/keys/a", "v", "X-Request-Id", id, "Traceparent", callersTrace)
		in.Clear()
		found := 0
		for _, message := range []string{c.message, "request"} {
			for _, line := range log.about(t, message) {
				if line["requestId"] != id || message == c.message && line["outcome"] != c.outcome {
					continue
				}
				found++
				if line["tree"] != "t" || message == c.message && line["shard"] != 0.0 || line["traceId"] != callersTrace[3:35] || line["spanId"] == nil || line["error"] == nil && c.status >= 500 {
					t.Errorf("%s: the line %v", id, line)
				}
			}
		}
		if found < 2 {
			all, _ := json.Marshal(log.about(t, c.message))
			t.Errorf("%s: %d lines of %q and the request: %s", id, found, c.message, all)
		}
	}
}

func TestLinesOfOneOutcomeAreHeldBack(t *testing.T) {
	p := &pace{}
	told, skipped := 0, 0
	for i := range 1000 {
		if n, ok := p.due(time.Duration(i) * 10 * time.Millisecond); ok {
			told, skipped = told+1, skipped+n
		}
	}
	if told != 10 || skipped != 9*99 {
		t.Errorf("%d lines told, %d counted as not told", told, skipped)
	}
}
