// Package observe holds the tests of what an operator sees: that the metrics are
// those of the documents, that the dashboard's queries find data, and that alerts
// fire when they should.
package observe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/engines"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

// world is a service of two instances over one store, which a Prometheus watches
// as the sample configuration says.
type world struct {
	t testing.TB
	// first goes to the storage straight, second through a relay that throttles
	// when it is told to; rough says that it was.
	first, second     *running.Service
	throttling, rough atomic.Bool
	prometheus        engines.Prometheus
	// The keys of the service.
	admin, reader, slow, scraper string
}

// intervals are those of a day, in half a minute.
var intervals = []string{
	"--store=azure", "--log-level=error", "--leases=false", "--request-timeout=5s",
	"--hot-shard-sample-interval=1s", "--hot-shard-ops-per-second-threshold=40", "--hot-shard-min-shard-entries=16",
	"--auto-split-min-tree-age=1s", "--hot-shard-split-cooldown=5s", "--max-cluster-concurrent-auto-splits=4", "--migrations-interval=300ms",
	"--transactions-interval=500ms", "--tx-decision-retention=1s", "--checkpoint-interval=500ms", "--checkpoint-tail-rows=20", "--collect-interval=1s",
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	e := azurite.Start(t)
	keys := filepath.Join(t.TempDir(), "keys")
	w.makeKeys(keys)
	start := func(connection string) *running.Service {
		args := append([]string{"--table-name=observed", "--container-name=observed", "--auth-keys-file=" + keys, "--data-dir=" + t.TempDir()}, intervals...)
		return running.Start(t, []string{"AZURE_STORAGE_CONNECTION_STRING=" + connection}, args...)
	}
	w.first = start(e.ConnectionString())
	w.second = start(strings.ReplaceAll(e.ConnectionString(), e.TableURL(), w.relay(e.TableURL())))
	w.prometheus = engines.StartPrometheus(t, w.configure())
	return w
}

// makeKeys draws the keys of the service and writes their lines to a file.
func (w *world) makeKeys(file string) {
	w.t.Helper()
	all := auth.Patterns{"*"}
	lines := ""
	for _, k := range []struct {
		auth.Key
		to *string
	}{
		{auth.Key{Name: "admin", Role: auth.RoleAdmin, Trees: all}, &w.admin},
		{auth.Key{Name: "reader", Role: auth.RoleReader, Trees: all}, &w.reader},
		{auth.Key{Name: "slow", Role: auth.RoleReader, Trees: all, Limits: auth.Limits{Rate: 1}}, &w.slow},
		{auth.Key{Name: "prometheus", Role: auth.RoleInternal}, &w.scraper},
	} {
		secret, line, err := auth.NewKey(k.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		*k.to = secret
		lines += line + "\n"
		running.Secret(w.t, secret)
	}
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// relay stands in front of the table service and returns its address.
func (w *world) relay(to string) string {
	w.t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		w.t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Host, r.Out.URL.Scheme = target.Host, target.Scheme },
		// Requests whose time is up are given up in the middle.
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	}
	var n atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.throttling.Load() && n.Add(1)%20 != 0 {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(rw, `{"odata.error":{"code":"ServerBusy","message":{"lang":"en-US","value":"The server is busy."}}}`)
			return
		}
		pass.ServeHTTP(rw, r)
	}))
	w.t.Cleanup(front.Close)
	return front.URL + target.Path
}

// configure writes the sample configuration with the addresses, the token and the
// pace of this world, and returns its path.
func (w *world) configure() string {
	w.t.Helper()
	dir := w.t.TempDir()
	var c map[string]any
	if err := yaml.Unmarshal([]byte(read(w.t, folder(w.t), "prometheus.yaml")), &c); err != nil {
		w.t.Fatal(err)
	}
	c["global"] = map[string]any{"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"}
	job := c["scrape_configs"].([]any)[0].(map[string]any)
	job["scheme"] = "http"
	job["static_configs"] = []any{map[string]any{"targets": []string{hostOf(w.first), hostOf(w.second)}}}
	text, err := yaml.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	files := map[string]string{
		"prometheus.yaml": string(text),
		"alerts.yaml":     read(w.t, folder(w.t), "alerts.yaml"),
		"lattice-token":   w.scraper + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	if out, err := engines.Promtool(w.t, dir, "check", "config", "prometheus.yaml"); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "prometheus.yaml")
}

func hostOf(s *running.Service) string { return strings.TrimPrefix(s.URL, "http://") }

// client speaks to an instance under a key. It is patient where an answer is
// wanted; where it is not, refusals are what is wanted.
func (w *world) client(s *running.Service, key string, patient bool) *client.Client {
	w.t.Helper()
	retry := client.RetryPolicy{Max: -1}
	if patient {
		retry = client.RetryPolicy{Max: 20, Cap: time.Second}
	}
	c, err := client.New(s.URL, client.Options{Token: key, Retry: retry})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}
