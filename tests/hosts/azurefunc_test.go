package hosts

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/hosts/funcshost"
	"github.com/latticekv/lattice/tests/running"
)

// freePort returns a port of the loopback address that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// waitFor tries until it works, or the process or the time is over.
func waitFor(t *testing.T, p *running.Process, try func() error) {
	t.Helper()
	deadline, tick := time.After(60*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.Exited():
			t.Fatalf("the program ended with %d:\n%s", p.ExitCode(), p.Output())
		case <-deadline:
			t.Fatalf("%v:\n%s", err, p.Output())
		}
	}
}

// onAzurite is the environment of a process over a table and a container of its
// own, at the end of a connection string.
func onAzurite(t *testing.T, connection string) []string {
	e := azurite.Shared(t)
	return []string{
		"LATTICE_STORE=azure", "AZURE_STORAGE_CONNECTION_STRING=" + connection, "LATTICE_TABLE_NAME=" + e.TableName(t),
		"LATTICE_CONTAINER_NAME=" + e.ContainerName(t), "LATTICE_INSECURE_NO_AUTH=true",
	}
}

// functionApp runs the custom handler behind a double of its host, over Azurite.
func functionApp(t *testing.T, edit ...func(*funcshost.Options)) *funcshost.Host {
	t.Helper()
	o := funcshost.Options{App: running.Root(t) + "/infra/azurefunc", Program: running.Build(t, "functions/azurefunc")}
	for _, f := range edit {
		f(&o)
	}
	if o.Env == nil {
		o.Env = onAzurite(t, azurite.Shared(t).ConnectionString())
	}
	return funcshost.Start(t, o)
}

// reply is an answer with its body read.
type reply struct {
	status int
	header http.Header
	body   string
}

// problem is the code of an answer that is a problem, else "".
func (r reply) problem() string {
	var p struct{ Code string }
	if json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return p.Code
}

// send makes a request. A body that is no *strings.Reader or *bytes.Reader goes
// without a length.
func send(t *testing.T, method, url string, body io.Reader, header ...string) reply {
	t.Helper()
	got := running.Ask(t, http.DefaultClient, method, url, body, header...)
	return reply{got.Status, got.Header, got.Body}
}

// chunked is a body whose length is not told.
func chunked(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// hardKeys are keys of which most do not survive in a path.
var hardKeys = []string{
	"plain", "a/b", "//", "..", ".", "a#b", "a?b", "100%", "%41", "%2F", `a\b`, "a ", " ", "a\r\n", "\x00", "é", "🦊",
	"\u200ea", "a+b", "a&b=c", "a;b", `"`, "key?b64=", strings.Repeat("🦊", 256),
}

func TestKeysSurviveInTheQuery(t *testing.T) {
	h := functionApp(t)
	for i, key := range hardKeys {
		value := fmt.Sprintf("\x00\xff\x80\n%d", i)
		at := h.URL + "/v1/trees/t/key?b64=" + base64.RawURLEncoding.EncodeToString([]byte(key))
		put := send(t, "PUT", at+"&ttl=1h", strings.NewReader(value), "Content-Type", "image/png", "If-None-Match", "*", "Content-Digest", digest(value))
		if put.status != 201 {
			t.Fatalf("put %q: %d %s", key, put.status, put.body)
		}
		etag := put.header.Get("ETag")
		for _, method := range []string{"GET", "HEAD"} {
			got := send(t, method, at, nil, "Want-Content-Digest", "sha-256=1")
			if got.status != 200 || method == "GET" && got.body != value || got.header.Get("Content-Type") != "image/png" || got.header.Get("ETag") != etag || got.header.Get("Lattice-Expires-At") == "" {
				t.Errorf("%s %q: %d %q %v", method, key, got.status, got.body, got.header)
			}
		}
		for _, c := range []struct {
			method string
			header []string
			status int
		}{
			{"GET", []string{"If-None-Match", etag}, 304}, {"GET", []string{"If-None-Match", `"x"`, "If-None-Match", etag}, 304},
			{"PUT", []string{"If-None-Match", "*"}, 412}, {"DELETE", []string{"If-Match", `"000000000000000100000001"`}, 412},
			{"PUT", []string{"If-Match", etag}, 200}, {"DELETE", []string{"If-Match", etag}, 412}, {"DELETE", nil, 204}, {"GET", nil, 404},
		} {
			body := ""
			if c.method == "PUT" {
				body = "other"
			}
			if got := send(t, c.method, at, strings.NewReader(body), c.header...); got.status != c.status {
				t.Errorf("%s %q with %q: %d %s, want %d", c.method, key, c.header, got.status, got.body, c.status)
			}
		}
	}
}

func TestKeysInThePathSurviveOrAreRefused(t *testing.T) {
	h := functionApp(t)
	for path, key := range map[string]string{
		"plain": "plain", "a%2Fb": "a/b", "a%20b": "a b", "%C3%A9": "é", "%F0%9F%A6%8A": "🦊",
		"a%23b": "", "a%3Fb": "", "100%25": "", "%2541": "", "a%5Cb": "", "a%20": "", "%2E%2E": "",
	} {
		put := send(t, "PUT", h.URL+"/v1/trees/t/keys/"+path, strings.NewReader(key))
		if key == "" {
			if put.status != 400 && put.status != 404 {
				t.Errorf("put %s: %d %s", path, put.status, put.body)
			}
			continue
		}
		got := send(t, "GET", h.URL+"/v1/trees/t/key?key="+strings.TrimPrefix(path, "/"), nil)
		if put.status != 201 || got.status != 200 || got.body != key {
			t.Errorf("put %s: %d, then %d %q", path, put.status, got.status, got.body)
		}
	}
	var list struct{ Count int }
	if got := send(t, "GET", h.URL+"/v1/trees/t/count", nil); json.Unmarshal([]byte(got.body), &list) != nil || list.Count != 5 {
		t.Errorf("the tree has other keys: %s", got.body)
	}
}

func TestRangesBatchesCursorsAndLoads(t *testing.T) {
	h := functionApp(t)
	c, err := client.New(h.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	tree := c.Tree("t")
	want := slices.Sorted(slices.Values(hardKeys))
	var b client.Batch
	for _, key := range want {
		b.Ops = append(b.Ops, client.Op{Key: key, Value: []byte("\x00\xff" + key)})
	}
	if _, err := tree.Batch(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for i, from := range want {
		got := scan(t, tree, client.Query{Range: client.Range{Start: from, End: from + "\x00"}})
		if !slices.Equal(got, want[i:i+1]) {
			t.Errorf("from %q: %q", from, got)
		}
		if got := scan(t, tree, client.Query{Range: client.Range{Prefix: from}}); len(got) == 0 || got[0] != from {
			t.Errorf("prefix %q: %q", from, got)
		}
	}
	if got := scan(t, tree, client.Query{}); !slices.Equal(got, want) {
		t.Errorf("scan %q", got)
	}
	if got := scan(t, tree, client.Query{Limit: len(want)}); !slices.Equal(got, want) {
		t.Errorf("pages %q", got)
	}
	for _, snapshot := range []bool{false, true} {
		cursor, err := tree.OpenCursor(t.Context(), client.CursorQuery{Kind: client.CursorEntries, Snapshot: snapshot})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for more := true; more; {
			p, err := cursor.Next(t.Context(), 5)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Entries {
				got = append(got, e.Key)
			}
			more = p.HasMore
		}
		if !slices.Equal(got, want) {
			t.Errorf("cursor %q", got)
		}
	}
}

func scan(t *testing.T, tree *client.Tree, q client.Query) (keys []string) {
	t.Helper()
	for e, err := range tree.Scan(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Value) != "\x00\xff"+e.Key {
			t.Errorf("%q = %q", e.Key, e.Value)
		}
		keys = append(keys, e.Key)
	}
	return keys
}

func TestLargeBodiesUpToTheLimit(t *testing.T) {
	h := functionApp(t)
	for _, size := range []int{0, 1, 64 << 10, 300 << 10, 5 << 20, 64 << 20} {
		value := string(bytes.Repeat([]byte("\x00\xff\x80\n"), size/4+1)[:size])
		at := fmt.Sprintf("%s/v1/trees/t/keys/k%d", h.URL, size)
		if put := send(t, "PUT", at, strings.NewReader(value), "Content-Digest", digest(value)); put.status != 201 {
			t.Fatalf("%d bytes: %d %s", size, put.status, put.body)
		}
		if got := send(t, "GET", at, nil); got.status != 200 || got.body != value {
			t.Errorf("%d bytes came back as %d with %d", size, got.status, len(got.body))
		}
	}
	over := strings.NewReader(strings.Repeat("x", 64<<20+1))
	if put := send(t, "PUT", h.URL+"/v1/trees/t/keys/over", over); put.status != 413 || put.problem() != "value_too_large" {
		t.Errorf("more than the limit: %d %s", put.status, put.body)
	}
}

func TestUnusualHeaders(t *testing.T) {
	h := functionApp(t)
	at := h.URL + "/v1/trees/t/keys/a"
	if put := send(t, "PUT", at, strings.NewReader("v"), "X-Request-Id", "one", "X-Request-Id", "two", "Cookie", "a=1", "Cookie", "b=2"); put.status != 201 || put.header.Get("X-Request-Id") == "" {
		t.Errorf("headers given twice: %d %v", put.status, put.header)
	}
	if got := send(t, "GET", at, nil, "X-Request-Id", "mine"); got.header.Get("X-Request-Id") != "mine" {
		t.Errorf("the request id became %q", got.header.Get("X-Request-Id"))
	}
	var many []string
	for i := range 90 {
		many = append(many, fmt.Sprintf("X-Many-%d", i), strings.Repeat("x", 200))
	}
	if got := send(t, "GET", at, nil, many...); got.status != 200 || got.body != "v" {
		t.Errorf("many headers: %d %s", got.status, got.body)
	}
	for _, header := range [][]string{{"X-Long", strings.Repeat("x", 80<<10)}, {"X-Name", "née"}} {
		if got := send(t, "PUT", at, strings.NewReader("other"), header...); got.status < 400 {
			t.Errorf("%s: %d", header[0], got.status)
		}
	}
	if got := send(t, "GET", at, nil); got.body != "v" {
		t.Errorf("a refused write changed the value to %q", got.body)
	}
	if got := send(t, "GET", h.URL+"/v1/trees/t/entries?prefix=a&prefix=b", nil); got.status != 200 || !strings.Contains(got.body, `"entries":[]`) {
		t.Errorf("joined parameters: %d %s", got.status, got.body)
	}
}

func TestCustomHandlerSaysWhatItLacks(t *testing.T) {
	for want, env := range map[string][]string{
		"FUNCTIONS_CUSTOMHANDLER_PORT":    {"LATTICE_STORE=memory"},
		"AZURE_STORAGE_CONNECTION_STRING": {"FUNCTIONS_CUSTOMHANDLER_PORT=0", "LATTICE_INSECURE_NO_AUTH=true"},
		"no credentials are configured":   {"FUNCTIONS_CUSTOMHANDLER_PORT=0", "LATTICE_STORE=memory"},
		"MaxKeyLength":                    {"FUNCTIONS_CUSTOMHANDLER_PORT=0", "LATTICE_STORE=memory", "LATTICE_MAX_KEY_LENGTH=0"},
	} {
		p, err := running.Run(t, env, running.Build(t, "functions/azurefunc"))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
		if p.ExitCode() != 1 || !strings.Contains(p.Output(), want) {
			t.Errorf("ended with %d, and does not name %s:\n%s", p.ExitCode(), want, p.Output())
		}
	}
}
