package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/latticekv/lattice/providers/memory"
)

const (
	bulkOnce   = "/v1/trees/t/bulk-load"
	bulkStream = "/v1/trees/t/bulk-load?mode=stream"
	loads      = "/v1/trees/t/bulk-loads/"
	ndjsonType = "application/x-ndjson"
)

// bulkLines are entries with the key as the value.
func bulkLines(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "{\"key\":%q,\"text\":%q}\n", k, k)
	}
	return b.String()
}

func (i *instance) load(status int, method, path, body string) string {
	i.t.Helper()
	return i.want(status, method, path, body, "Content-Type", ndjsonType)
}

// refused is a problem, as far as bulk loads have one.
type refused struct {
	Code, Key, PreviousKey, Tree          string
	ChunkIndex, ExpectedChunkIndex, Line  *int64
	EntryIndex, AcceptedEntryCount, Limit *int64
}

func (i *instance) refuses(status int, code, method, path, body string) refused {
	i.t.Helper()
	var p refused
	if err := json.Unmarshal([]byte(i.load(status, method, path, body)), &p); err != nil || p.Code != code {
		i.t.Fatalf("%s %s: %+v, want %s; %v", method, path, p, code, err)
	}
	return p
}

func is(n *int64, want int64) bool { return n != nil && *n == want }

// TestBulkErrorsOverTheRealTree has a row for every error of the interface.
func TestBulkErrorsOverTheRealTree(t *testing.T) {
	i := onMemory(t)
	i.refuses(404, "tree_not_found", "PUT", loads+"a/chunks/0", bulkLines("a"))
	i.refuses(404, "tree_not_found", "GET", "/v1/trees/t/diagnostics", "")
	if p := i.refuses(422, "bulk_load_order", "POST", bulkOnce, bulkLines("b", "a", "b")); p.Key != "b" || p.PreviousKey != "b" || p.Tree != "t" {
		t.Errorf("%+v", p)
	}
	if p := i.refuses(422, "bulk_load_order", "POST", bulkStream, bulkLines("a", "c", "b")); p.Key != "b" || p.PreviousKey != "c" || !is(p.EntryIndex, 2) || !is(p.AcceptedEntryCount, 0) {
		t.Errorf("%+v", p)
	}
	if p := i.refuses(400, "invalid_argument", "POST", bulkOnce, bulkLines("a")+"{}\n"); !is(p.Line, 2) {
		t.Errorf("%+v", p)
	}
	long := strings.Repeat("k", 1025)
	if p := i.refuses(413, "key_too_long", "POST", bulkOnce+"?enforceLimits=true", bulkLines("a", long)); !is(p.Limit, 1024) {
		t.Errorf("%+v", p)
	}
	i.refuses(413, "key_too_long", "POST", bulkOnce, bulkLines(strings.Repeat("k", 4097)))
	if got := i.want(400, "POST", bulkOnce, bulkLines("a"), "Content-Type", ndjsonType, "Content-Digest", "sha-256=:"+strings.Repeat("A", 43)+"=:"); !strings.Contains(got, "digest_mismatch") {
		t.Error(got)
	}
	// Nothing of all that was applied, for the tree is empty still.
	i.load(201, "PUT", loads+"a", "")
	i.refuses(409, "operation_in_progress", "PUT", loads+"b", "")
	i.refuses(409, "operation_in_progress", "POST", bulkOnce, bulkLines("a"))
	i.refuses(409, "operation_in_progress", "POST", bulkStream, bulkLines("a"))
	i.refuses(404, "operation_not_found", "GET", loads+"b", "")
	i.refuses(400, "invalid_argument", "PUT", loads+"a%2Fb", "")
	i.load(200, "PUT", loads+"a/chunks/0", bulkLines("a", "b"))
	i.refuses(409, "operation_mismatch", "PUT", loads+"a/chunks/0", bulkLines("a", "c"))
	if p := i.refuses(409, "chunk_out_of_sequence", "PUT", loads+"a/chunks/5", bulkLines("c")); !is(p.ChunkIndex, 5) || !is(p.ExpectedChunkIndex, 1) {
		t.Errorf("%+v", p)
	}
	if p := i.refuses(422, "bulk_load_order", "PUT", loads+"a/chunks/1", bulkLines("a")); p.Key != "a" || p.PreviousKey != "b" || !is(p.ChunkIndex, 1) || !is(p.EntryIndex, 0) {
		t.Errorf("%+v", p)
	}
	i.load(200, "POST", loads+"a/commit", "")
	i.refuses(409, "operation_mismatch", "DELETE", loads+"a", "")
	i.refuses(409, "tree_not_empty", "POST", bulkOnce, bulkLines("z"))
	i.refuses(409, "tree_not_empty", "PUT", loads+"b", "")
	i.want(204, "DELETE", "/v1/trees/t/keys/a", "")
	i.want(204, "DELETE", "/v1/trees/t/keys/b", "")
	i.refuses(409, "tree_not_empty", "POST", bulkOnce, bulkLines("z")) // of tombstones
	i.want(204, "DELETE", "/v1/trees/t", "")
	i.refuses(409, "tree_deleted", "POST", bulkStream, bulkLines("z"))
}

func TestAdmissionCapsOverTheRealTree(t *testing.T) {
	i := onMemory(t)
	i.want(201, "PUT", "/v1/trees/t", `{"options":{"MaxLiveKeys":3}}`)
	i.load(200, "POST", bulkOnce, bulkLines("a", "b", "c", "d"))
	if p := i.refuses(429, "quota_exceeded", "PUT", "/v1/trees/t/keys/e", "v"); !is(p.Limit, 3) {
		t.Errorf("%+v", p)
	}
	if p := i.refuses(429, "quota_exceeded", "POST", bulkStream+"&enforceLimits=true", bulkLines("e")); !is(p.Limit, 3) || !is(p.AcceptedEntryCount, 0) {
		t.Errorf("%+v", p)
	}
	i.load(200, "POST", bulkStream, bulkLines("e"))
}

// TestStreamOverTheRealTree is larger than every buffer on its way, and breaks
// off once in the middle.
func TestStreamOverTheRealTree(t *testing.T) {
	m := memory.New(memory.Options{})
	i := newInstance(t, m.Table(), m.Blobs(), func(c *Config) { c.Options.BulkLoadBufferBytes = 1 << 20 })
	const n = 30_000
	key := func(k int) string { return fmt.Sprintf("k%08d", k) }
	body := func(to int) string {
		var b strings.Builder
		for k := range to {
			fmt.Fprintf(&b, "{\"key\":%q,\"text\":\"%0100d\"}\n", key(k), k)
		}
		return b.String()
	}
	p := i.refuses(400, "invalid_argument", "POST", bulkStream, body(n/2)+"x\n")
	if !is(p.Line, n/2+1) || p.AcceptedEntryCount == nil || *p.AcceptedEntryCount == 0 || *p.AcceptedEntryCount > n/2 {
		t.Fatalf("%+v", p)
	}
	last := key(int(*p.AcceptedEntryCount) - 1)
	if got := i.want(200, "GET", "/v1/trees/t/count", ""); got != fmt.Sprintf(`{"count":%d,"mapVersion":0}`, *p.AcceptedEntryCount) {
		t.Errorf("%d were accepted; %s", *p.AcceptedEntryCount, got)
	}
	i.want(200, "GET", "/v1/trees/t/keys/"+last, "")
	if got := i.load(200, "POST", bulkStream, body(n)+fmt.Sprintf("{\"end\":true,\"count\":%d}\n", n)); got != fmt.Sprintf(`{"acceptedEntryCount":%d,"totalLiveKeys":%d}`, n, n) {
		t.Error(got)
	}
	if got := i.want(200, "GET", "/v1/trees/t/keys/"+key(n-1), ""); got != fmt.Sprintf("%0100d", n-1) {
		t.Error(got)
	}
}

// TestBrokenBodiesLeaveTheTreeEmpty shows it by what only an empty tree lets
// happen.
func TestBrokenBodiesLeaveTheTreeEmpty(t *testing.T) {
	i := onMemory(t)
	u, err := url.Parse(i.url)
	if err != nil {
		t.Fatal(err)
	}
	entry := bulkLines("a")
	for _, path := range []string{bulkOnce, bulkStream} {
		for _, rest := range []string{
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(entry)+1, entry),
			fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(entry), entry),
		} {
			conn, err := net.Dial("tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: "+ndjsonType+"\r\n"+rest); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
				t.Errorf("%s: %.100s, %v", path, answer, err)
			}
			_ = conn.Close()
		}
	}
	i.load(200, "POST", bulkOnce, entry)
}

func TestDiagnosticsOverTheRealTree(t *testing.T) {
	i := onMemory(t)
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":2}`)
	i.load(200, "POST", bulkOnce, bulkLines("a", "b", "c"))
	i.want(204, "DELETE", "/v1/trees/t/keys/b", "")
	var d struct {
		Deep   bool
		Totals struct{ LiveKeys, Tombstones, Shards int64 }
		Shards []struct{ Shard, Slots int }
	}
	status, _, body := i.do(http.MethodGet, "/v1/trees/t/diagnostics?deep=true", nil)
	if err := json.Unmarshal(body, &d); err != nil || status != 200 || !d.Deep || d.Totals.LiveKeys != 2 || d.Totals.Tombstones != 1 || d.Totals.Shards != 2 || len(d.Shards) != 2 {
		t.Errorf("%d %s: %v", status, body, err)
	}
}
