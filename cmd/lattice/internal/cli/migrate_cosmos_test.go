package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// cosmosKey is a key in form only.
const cosmosKey = "Y29zbW9zLXNlY3JldA=="

// cosmosAccount serves an account with one container over a real listener.
func cosmosAccount(t *testing.T, items ...string) (endpoint string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		location := []map[string]string{{"name": "here", "databaseAccountEndpoint": endpoint}}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "test", "writableLocations": location, "readableLocations": location})
	})
	mux.HandleFunc("GET /dbs/shop/colls/orders", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"orders","_rid":"r","defaultTtl":-1,"partitionKey":{"paths":["/tenant"],"kind":"Hash"}}`)
	})
	throttled := false
	mux.HandleFunc("POST /dbs/shop/colls/orders/docs", func(w http.ResponseWriter, _ *http.Request) {
		if !throttled {
			throttled = true
			w.Header().Set("x-ms-retry-after-ms", "1000")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprintf(w, `{"Documents":[%s]}`, strings.Join(items, ","))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	endpoint = srv.URL
	return endpoint
}

func TestMigrateCosmos(t *testing.T) {
	l, s := fake(t)
	endpoint := cosmosAccount(t, `{"id":"2","tenant":"a","total":1.10,"_ts":1700000000}`, `{"id":"1","tenant":"b","ttl":2000000000,"_ts":1700000000}`)
	t.Setenv("COSMOS", "AccountEndpoint="+endpoint+"/;AccountKey="+cosmosKey+";")
	t.Setenv("COSMOS_KEY", cosmosKey)
	common := []string{"--database", "shop", "--container", "orders", "--preview", "1"}
	r := l.run("", append([]string{"migrate", "cosmos", "orders", "--source-env", "COSMOS", "--state", t.TempDir()}, common...)...)
	for _, want := range []string{"waiting 1s for the source", "2 records read: 2 loaded", "a/2"} {
		if r.code != ExitOK || !strings.Contains(r.out+r.err, want) {
			t.Errorf("exit %d: %s%s lacks %q", r.code, r.out, r.err, want)
		}
	}
	if strings.Contains(r.out+r.err, cosmosKey) {
		t.Error("the key is shown")
	}
	if v, _ := s.Value("orders", "a/2"); string(v) != `{"id":"2","tenant":"a","total":1.10}` {
		t.Errorf("%s", v)
	}
	if out := l.ok("", "get", "orders", "b/1", "--json"); !strings.Contains(out, "2087-04-01T01:46:40Z") {
		t.Errorf("the expiry is lost: %s", out)
	}
	l.ok("", append([]string{"migrate", "cosmos", "again", "--endpoint", endpoint, "--key-env", "COSMOS_KEY", "--state", t.TempDir()}, common...)...)
}

func TestMigrateCosmosUsage(t *testing.T) {
	l, _ := fake(t)
	t.Setenv("COSMOS", "AccountKey="+cosmosKey)
	names := []string{"--database", "d", "--container", "c"}
	for want, args := range map[string][]string{
		"missing flags":                  nil,
		"give the address of the source": names,
		"is not of the form":             append(names, "--source-env", "COSMOS"),
		"not both":                       append(names, "--source-env", "COSMOS", "--endpoint", "https://x"),
		"goes with --endpoint":           append(names, "--key-env", "COSMOS"),
		"the environment has no NOTHING": append(names, "--endpoint", "https://x", "--key-env", "NOTHING"),
		"the query must be a condition":  append(names, "--endpoint", "https://x", "--query", "SELECT 1"),
		"the page size is 20000":         append(names, "--endpoint", "https://x", "--page-size", "20000"),
	} {
		r := l.fails(ExitUsage, want, "", append([]string{"migrate", "cosmos", "t", "--state", t.TempDir()}, args...)...)
		if strings.Contains(r.out+r.err, cosmosKey) {
			t.Errorf("a key is shown: %s", r.err)
		}
	}
}
