package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/memory"
)

const token = "internal-token"

// instance is one service, spoken to over HTTP.
type instance struct {
	t   *testing.T
	svc *Service
	url string
}

// newInstance starts a service over a store that others may share.
func newInstance(t *testing.T, table store.Table, blobs store.BlobStore, change ...func(*Config)) *instance {
	t.Helper()
	cfg := Config{
		Table: table, Blobs: blobs, Options: options.Default(), InternalToken: token, Version: "test",
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	svc, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(svc.Handler())
	t.Cleanup(web.Close)
	return &instance{t, svc, web.URL}
}

func onMemory(t *testing.T, change ...func(*Config)) *instance {
	t.Helper()
	m := memory.New(memory.Options{})
	return newInstance(t, m.Table(), m.Blobs(), change...)
}

// do makes a request and returns status, headers and body.
func (i *instance) do(method, path string, body []byte, header ...string) (int, http.Header, []byte) {
	i.t.Helper()
	req, err := http.NewRequest(method, i.url+path, bytes.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	for h := 0; h+1 < len(header); h += 2 {
		req.Header.Set(header[h], header[h+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		i.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return resp.StatusCode, resp.Header, got
}

// want makes a request, demands a status and returns the body.
func (i *instance) want(status int, method, path, body string, header ...string) string {
	i.t.Helper()
	got, _, answer := i.do(method, path, []byte(body), header...)
	if got != status {
		i.t.Fatalf("%s %s: status %d, want %d: %.400s", method, path, got, status, answer)
	}
	return string(answer)
}

func (i *instance) tick(name string) map[string]any {
	i.t.Helper()
	var res map[string]any
	answer := i.want(200, "POST", "/internal/timers/"+name, "", "Authorization", "Bearer "+token)
	if err := json.Unmarshal([]byte(answer), &res); err != nil {
		i.t.Fatal(err)
	}
	if res["failed"] != 0.0 {
		i.t.Fatalf("tick %s: %s", name, answer)
	}
	return res
}

func TestKeysOverTheRealTree(t *testing.T) {
	i := onMemory(t)
	const a = "/v1/trees/t/keys/a%2Fb"
	i.want(404, "GET", a, "")
	status, h, _ := i.do("PUT", a, []byte("one"), "Content-Type", "text/plain")
	v1 := h.Get("ETag")
	if status != 201 || v1 == "" {
		t.Fatalf("PUT: %d, ETag %q", status, v1)
	}
	status, h, body := i.do("GET", a, nil)
	if status != 200 || string(body) != "one" || h.Get("ETag") != v1 || h.Get("Content-Type") != "text/plain" {
		t.Fatalf("GET: %d %q %v", status, body, h)
	}
	i.want(412, "PUT", a, "x", "If-None-Match", "*")
	i.want(412, "PUT", a, "x", "If-Match", `"000000000000000100000001"`)
	i.want(412, "PUT", a, "x", "If-Match", "W/"+v1)
	i.want(200, "PUT", a, "two", "If-Match", `"x", `+v1)
	i.want(200, "PUT", a, "three", "If-Match", "*")
	i.want(412, "PUT", a, "x", "If-Match", v1)
	i.want(304, "GET", a, "", "If-None-Match", "*")
	if got := i.want(200, "PUT", a+"?mode=get-or-set", "x"); got != "three" {
		t.Errorf("get-or-set answered %q", got)
	}
	i.want(201, "PUT", "/v1/trees/t/keys/b?mode=get-or-set&ttl=1h", "b")
	if _, h, _ = i.do("GET", "/v1/trees/t/keys/b", nil); h.Get("Lattice-Expires-At") == "" {
		t.Error("no expiry on a key with a time to live")
	}
	if status, h, _ = i.do("DELETE", a, nil); status != 204 || h.Get("Lattice-Existed") != "true" {
		t.Errorf("DELETE: %d %v", status, h)
	}
	i.want(404, "GET", a, "")
}

func TestValueSizes(t *testing.T) {
	i := onMemory(t)
	limit := int(options.Default().MaxValueSizeBytes)
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 256 << 10, 256<<10 + 1, 1 << 20, 1<<20 + 1, 4 << 20, 4<<20 + 1, limit} {
		value := bytes.Repeat([]byte{0x00, 0xff, 0x80, '\n', 'x'}, size/5+1)[:size]
		path := fmt.Sprintf("/v1/trees/t/keys/%d", size)
		if status, _, body := i.do("PUT", path, value); status != 201 {
			t.Fatalf("%d bytes: %d %.300s", size, status, body)
		}
		if _, _, got := i.do("GET", path, nil); !bytes.Equal(got, value) {
			t.Fatalf("%d bytes do not come back as written", size)
		}
	}
	answer := i.want(413, "PUT", "/v1/trees/t/keys/big", strings.Repeat("x", limit+1))
	if !strings.Contains(answer, `"code":"value_too_large"`) || !strings.Contains(answer, fmt.Sprintf(`"limit":%d`, limit)) {
		t.Errorf("one byte more: %s", answer)
	}
	i.want(404, "GET", "/v1/trees/t/keys/big", "")
}

func TestManyKeysOverTheRealTree(t *testing.T) {
	i := onMemory(t)
	var ops, keys []string
	for n := range 500 {
		key := fmt.Sprintf("k%03d", n)
		keys = append(keys, key)
		ops = append(ops, fmt.Sprintf(`{"op":"set","key":%q,"text":"v%d"}`, key, n))
	}
	i.want(200, "POST", "/v1/trees/t/batch", `{"operations":[`+strings.Join(ops, ",")+`]}`)
	if got := i.want(200, "GET", "/v1/trees/t/count", ""); !strings.HasPrefix(got, `{"count":500,`) {
		t.Errorf("count %s", got)
	}

	var got []string
	for token := ""; ; {
		var page struct {
			Entries       []struct{ Key, Text string }
			NextPageToken string
		}
		answer := i.want(200, "GET", "/v1/trees/t/entries?as=text&limit=100&pageToken="+url.QueryEscape(token), "")
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			got = append(got, e.Key)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if !slices.Equal(got, keys) {
		t.Errorf("pages give %d keys, in order: %t", len(got), slices.IsSorted(got))
	}
	i.want(400, "GET", "/v1/trees/t/entries?pageToken=made-up", "")

	stream := i.want(200, "GET", "/v1/trees/t/entries?keysOnly=true&reverse=true&prefix=k1", "", "Accept", "application/x-ndjson")
	lines := strings.Split(strings.TrimSpace(stream), "\n")
	if len(lines) != 101 || lines[100] != `{"end":true,"count":100}` || !strings.HasPrefix(lines[0], `{"key":"k199"`) {
		t.Errorf("stream of %d lines ends with %s", len(lines), lines[len(lines)-1])
	}
	if got := i.want(200, "DELETE", "/v1/trees/t/entries?start=k100&end=k200", ""); got != `{"deleted":100}` {
		t.Errorf("range delete: %s", got)
	}
	if got := i.want(200, "POST", "/v1/trees/t/batch-get?as=text", `{"keys":["k200","k150","k000"]}`); !strings.Contains(got, `"k200"`) || strings.Contains(got, "k150") {
		t.Errorf("batch-get: %s", got)
	}
	if got := i.want(200, "GET", "/v1/trees/t/entries?start=b&end=b", ""); got != `{"entries":[]}` {
		t.Errorf("empty range: %s", got)
	}
}

func TestTreesOverTheRealTree(t *testing.T) {
	i := onMemory(t)
	i.want(201, "PUT", "/v1/trees/t", `{"shardCount":2,"options":{"MaxScanRetries":7}}`)
	i.want(200, "PUT", "/v1/trees/t", `{"shardCount":2,"options":{"MaxScanRetries":7}}`)
	i.want(409, "PUT", "/v1/trees/t", `{"shardCount":3}`)
	i.want(400, "PUT", "/v1/trees/u", `{"shardCount":257}`)
	i.want(400, "PATCH", "/v1/trees/t", `{"options":{"NoSuch":1}}`)
	if got := i.want(200, "PATCH", "/v1/trees/t", `{"options":{"MaxScanRetries":9}}`); !strings.Contains(got, `"MaxScanRetries":{"value":9,"origin":"tree"}`) {
		t.Errorf("patched: %s", got)
	}
	if got := i.want(200, "PATCH", "/v1/trees/t", `{"options":{"MaxScanRetries":null}}`); !strings.Contains(got, `"MaxScanRetries":{"value":3,"origin":"default"}`) {
		t.Errorf("taken back: %s", got)
	}
	if got := i.want(200, "GET", "/v1/trees/t/shard-map", ""); got != `{"version":0,"slots":4096,"shards":[{"shard":0,"slots":[[0,2047]]},{"shard":1,"slots":[[2048,4095]]}]}` {
		t.Errorf("shard map: %s", got)
	}
	i.want(201, "PUT", "/v1/trees/t/keys/a", "1")
	i.want(409, "POST", "/v1/trees/t/purge", "")
	i.want(204, "DELETE", "/v1/trees/t", "")
	i.want(409, "GET", "/v1/trees/t/keys/a", "")
	i.want(409, "PUT", "/v1/trees/t/keys/a", "2")
	if got := i.want(200, "GET", "/v1/trees/t", ""); !strings.Contains(got, `"state":"deleted"`) {
		t.Errorf("deleted: %s", got)
	}
	i.want(200, "POST", "/v1/trees/t/recover", "")
	i.want(409, "POST", "/v1/trees/t/recover", "")
	if got := i.want(200, "GET", "/v1/trees/t/keys/a", ""); got != "1" {
		t.Errorf("recovered value %q", got)
	}
	i.want(204, "DELETE", "/v1/trees/t", "")
	if status, _, body := i.do("POST", "/v1/trees/t/purge", nil); status != 204 && status != 202 {
		t.Errorf("purge: %d %s", status, body)
	}
	i.tick("collect")
	i.want(404, "GET", "/v1/trees/t", "")
	if got := i.want(200, "GET", "/v1/trees", ""); got != `{"trees":[]}` {
		t.Errorf("trees: %s", got)
	}
}

func TestTicksKeepTheData(t *testing.T) {
	i := onMemory(t, func(c *Config) { c.Options.CheckpointTailRows = 1 })
	for n := range 20 {
		i.want(201, "PUT", fmt.Sprintf("/v1/trees/t/keys/%02d", n), "v")
	}
	if res := i.tick("checkpoint"); res["rows"] == 0.0 || res["trees"] != 1.0 {
		t.Errorf("checkpoint did %v", res)
	}
	i.tick("collect")
	if got := i.want(200, "GET", "/v1/trees/t/count", ""); !strings.HasPrefix(got, `{"count":20,`) {
		t.Errorf("count after the ticks: %s", got)
	}
	i.want(401, "POST", "/internal/timers/checkpoint", "")
	i.want(404, "POST", "/internal/timers/nothing", "", "Authorization", "Bearer "+token)
}

func TestInstancesShareAStore(t *testing.T) {
	m := memory.New(memory.Options{})
	a, b := newInstance(t, m.Table(), m.Blobs()), newInstance(t, m.Table(), m.Blobs())
	a.want(201, "PUT", "/v1/trees/t/keys/n", "0")
	const writers, rounds = 4, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			i := []*instance{a, b}[w%2]
			for done := 0; done < rounds; {
				_, h, body := i.do("GET", "/v1/trees/t/keys/n", nil)
				var n int
				if _, err := fmt.Sscan(string(body), &n); err != nil {
					t.Errorf("counter %q: %v", body, err)
					return
				}
				if status, _, _ := i.do("PUT", "/v1/trees/t/keys/n", fmt.Append(nil, n+1), "If-Match", h.Get("ETag")); status == 200 {
					done++
				}
			}
		})
	}
	wg.Wait()
	if got := b.want(200, "GET", "/v1/trees/t/keys/n", ""); got != fmt.Sprint(writers*rounds) {
		t.Errorf("%d increments gave %s", writers*rounds, got)
	}
}

func TestMetricsNameWhatHappened(t *testing.T) {
	i := onMemory(t)
	i.want(201, "PUT", "/v1/trees/secret-tree/keys/secret-key", "v")
	i.want(200, "GET", "/v1/trees/secret-tree/keys/secret-key", "")
	i.want(404, "GET", "/nowhere/secret-path", "")
	i.tick("checkpoint")
	got := i.want(200, "GET", "/metrics", "")
	for _, line := range []string{
		`lattice_http_requests_total{method="PUT",route="/v1/trees/{tree}/keys/{key}",status="201"} 1`,
		`lattice_http_requests_total{method="GET",route="unmatched",status="404"} 1`,
		`lattice_storage_operations_total{kind="table_apply",outcome="ok"}`,
		`lattice_tick_runs_total{outcome="ok",timer="checkpoint"} 1`,
		`lattice_tick_last_success_timestamp_seconds{timer="checkpoint"}`,
		`lattice_build_info{version="test"} 1`, "lattice_http_requests_in_flight 0",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if strings.Contains(got, "secret") {
		t.Error("the metrics name what callers sent")
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	m := memory.New(memory.Options{})
	if _, err := New(Config{Options: options.Default()}); err == nil {
		t.Error("a service without stores was assembled")
	}
	bad := options.Default()
	bad.MaxKeyLength, bad.TickBudget = 0, 0
	_, err := New(Config{Table: m.Table(), Blobs: m.Blobs(), Options: bad})
	if err == nil || !strings.Contains(err.Error(), "MaxKeyLength") || !strings.Contains(err.Error(), "TickBudget") {
		t.Errorf("faults of options: %v", err)
	}
}
