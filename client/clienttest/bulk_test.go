package clienttest

import (
	"strings"
	"testing"
)

func TestBulkRefusals(t *testing.T) {
	const lines, list = "application/x-ndjson", "application/json"
	for _, tc := range []struct {
		kind, query, body string
		status            int
		want              string
	}{
		{lines, "", "", 400, `"body: missing"`},
		{lines, "", "{\"key\":\"a\",\"text\":\"\"}\nx\n", 400, `"line":2`},
		{lines, "", `{"key":"a"}`, 400, `"line":1`},
		{lines, "", `{"key":"a","text":"","ttl":"5s","expiresAt":"2030-01-01T00:00:00Z"}`, 400, "at most one"},
		{lines, "", "{\"key\":\"a\",\"text\":\"\"}\n{\"end\":true,\"count\":2}", 400, `"line":2`},
		{lines, "", "{\"end\":true,\"count\":0}\n{\"key\":\"a\",\"text\":\"\"}", 400, `"line":2`},
		{lines, "?mode=stream", "{\"key\":\"b\",\"text\":\"\"}\n{\"key\":\"a\",\"text\":\"\"}", 422, `"acceptedEntryCount":1`},
		{list, "", `{}`, 400, "body"},
		{list, "", `{"entries":[{"key":"a"}]}`, 400, `"entryIndex":0`},
		{list, "?mode=stream", `{"entries":[]}`, 400, "Content-Type"},
		{"text/csv", "", "a,b", 400, "Content-Type"},
	} {
		s := New()
		status, body, _ := ask(t, s, "POST", "/v1/trees/t/bulk-load"+tc.query, tc.body, "Content-Type", tc.kind)
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %q: %d %s", tc.query, tc.body, status, body)
		}
		if tc.query == "" && s.Len("t") != 0 {
			t.Errorf("%q left %d keys", tc.body, s.Len("t"))
		}
	}
}

func TestBulkForms(t *testing.T) {
	const entries = `{"key":"a","json":{"x": 1},"ttl":"1h"},{"key":"b","value":"AA==","contentType":"a/b","version":"v1"}`
	for kind, body := range map[string]string{
		"application/x-ndjson": strings.ReplaceAll(entries, "},{", "}\n\n{") + "\n{\"end\":true,\"count\":2}",
		"application/json":     `{"entries":[` + entries + `]}`,
	} {
		s := New()
		if status, answer, _ := ask(t, s, "POST", "/v1/trees/t/bulk-load", body, "Content-Type", kind); status != 200 || answer != "{\"acceptedEntryCount\":2,\"totalLiveKeys\":2}\n" {
			t.Errorf("%s: %d %s", kind, status, answer)
		}
		v, _ := s.Value("t", "a")
		_, _, h := ask(t, s, "GET", "/v1/trees/t/keys/b", "")
		_, _, expiring := ask(t, s, "GET", "/v1/trees/t/keys/a", "")
		if string(v) != `{"x":1}` || h.Get("Content-Type") != "a/b" || expiring.Get("Lattice-Expires-At") == "" {
			t.Errorf("%s: %s, %v, %v", kind, v, h, expiring)
		}
	}
}

func TestBulkSessionIsCounted(t *testing.T) {
	s := New()
	for _, call := range []string{"PUT ", "PUT /chunks/0", "PUT /chunks/0", "GET ", "POST /commit", "POST /commit"} {
		method, rest, _ := strings.Cut(call, " ")
		if status, body, _ := ask(t, s, method, "/v1/trees/t/bulk-loads/x"+rest, `{"key":"a","text":""}`, "Content-Type", "application/x-ndjson"); status/100 != 2 {
			t.Fatalf("%s: %d %s", call, status, body)
		}
	}
	for what, want := range map[string]int{"PUT bulk-load": 1, "PUT chunk": 2, "GET bulk-load": 1, "POST commit": 2, "POST bulk-load": 0} {
		if got := s.Requests(what); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
}
