package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/functions/auth/authtest"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

// internalToken is the internal credential of every program here.
const internalToken = "hostile-internal-token-0123456789"

// The markers are what is stored: neither may be in a log.
const (
	valueMarker = "value-marker-5f2c"
	keyMarker   = "key-marker-8d1e"
)

const (
	issuerName = "https://issuer.example"
	audience   = "lattice"
)

// world is a storage that several programs serve, the credentials that open
// them, and what is stored.
type world struct {
	t      *testing.T
	store  *azurite.Emulator
	issuer *authtest.Issuer
	// keys by name, such as "writer orders*"; expired keys are named so.
	keys map[string]string
	env  []string
	// targets serve HTTP; lambda takes events.
	targets []target
	// stolen are the cursor and page tokens of trees that are not the attacker's.
	stolen stolen
}

// target is one program that answers at an address.
type target struct {
	name, address string
	process       *running.Process
}

// roles are the keys: those of the attackers, and those that make the world.
var roles = []string{"reader orders*", "writer orders*", "writer orders-1", "admin orders*", "admin *", "internal", "expired *"}

// newWorld starts the programs over one storage, and fills it. Their schedules
// are so slow that nothing changes by itself.
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{t: t, store: azurite.Start(t), issuer: authtest.NewIssuer(t), keys: map[string]string{}}
	lines := w.drawKeys()
	w.env = append([]string{
		"LATTICE_STORE=azure", "AZURE_STORAGE_CONNECTION_STRING=" + w.store.ConnectionString(), "LATTICE_INTERNAL_TOKEN=" + internalToken,
		"LATTICE_AUTH_KEYS=" + lines, "LATTICE_AUTH_JWT_ISSUER=" + issuerName, "LATTICE_AUTH_JWT_AUDIENCE=" + audience,
		"LATTICE_AUTH_JWKS_URL=" + w.issuer.URL, "LATTICE_AUTH_JWT_TREES_CLAIM=trees", "LATTICE_AUTH_JWT_MAX_AGE=1h", "LATTICE_LOG_LEVEL=debug", "LATTICE_LEASES=false",
		"LATTICE_CHECKPOINT_INTERVAL=24h", "LATTICE_COLLECT_INTERVAL=24h", "LATTICE_MIGRATIONS_INTERVAL=1h", "LATTICE_TRANSACTIONS_INTERVAL=1h", "LATTICE_HOT_SHARD_SAMPLE_INTERVAL=1h",
		"LATTICE_MAX_VALUE_SIZE_BYTES=1MiB", "LATTICE_INLINE_VALUE_BYTES=64KiB", "LATTICE_MAX_BATCH_BYTES=64KiB", "LATTICE_MAX_BULK_CHUNK_BYTES=256KiB",
	}, more...)
	running.Secret(t, internalToken, valueMarker, keyMarker)
	w.startLocal()
	w.startCustomHandler()
	w.fill()
	return w
}

// drawKeys returns the lines for the configuration.
func (w *world) drawKeys() string {
	var lines []string
	for i, name := range roles {
		role, trees, _ := strings.Cut(name, " ")
		k := auth.Key{Name: fmt.Sprintf("k%d", i)}
		if role == "expired" {
			role, k.Expires = "admin", time.Now().Add(-time.Hour)
		}
		var err error
		if k.Role, err = auth.ParseRole(role); err != nil {
			w.t.Fatal(err)
		}
		if trees != "" {
			if k.Trees, err = auth.ParsePatterns(trees); err != nil {
				w.t.Fatal(err)
			}
		}
		secret, line, err := auth.NewKey(k)
		if err != nil {
			w.t.Fatal(err)
		}
		w.keys[name] = secret
		lines = append(lines, line)
		running.Secret(w.t, secret)
	}
	return strings.Join(lines, ";")
}

func (w *world) startLocal() {
	w.t.Helper()
	s := running.Start(w.t, w.env, "--data-dir="+w.t.TempDir())
	w.targets = append(w.targets, target{"cmd/local", strings.TrimPrefix(s.URL, "http://"), s.Process})
}

func (w *world) startCustomHandler() {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	p, err := running.Run(w.t, append(w.env, fmt.Sprintf("FUNCTIONS_CUSTOMHANDLER_PORT=%d", port)), running.Build(w.t, "functions/azurefunc"))
	if err != nil {
		w.t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	until(w.t, p, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	w.targets = append(w.targets, target{"functions/azurefunc", address, p})
}

// until waits for a condition, and not longer than a minute or a process lives.
func until(t *testing.T, p *running.Process, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-p.Exited():
			t.Fatalf("the program ended with %d:\n%s", p.ExitCode(), p.Output())
		case <-deadline:
			t.Fatalf("waited in vain:\n%s", p.Output())
		}
	}
}

// bearer is the header of a key by its name.
func (w *world) bearer(name string) string {
	if w.keys[name] == "" {
		w.t.Fatalf("no key %q", name)
	}
	return "Authorization: Bearer " + w.keys[name]
}

// as sends a well-formed request with a token to the first program.
func (w *world) as(token, method, path, contentType, body string) running.Reply {
	w.t.Helper()
	return call(w.t, w.targets[0].address, token, method, path, contentType, body)
}

func call(t *testing.T, address, token, method, path, contentType, body string) running.Reply {
	t.Helper()
	header := []string{"Authorization", "Bearer " + token}
	if contentType != "" {
		header = append(header, "Content-Type", contentType)
	}
	return running.Ask(t, http.DefaultClient, method, "http://"+address+path, strings.NewReader(body), header...)
}

// stolen is what an attacker may have got hold of.
type stolen struct {
	// cursor is open on the tree people, deleting one that deletes in orders-1.
	cursor, deleting string
	// page goes on in people, forward goes on in orders-1 without reverse.
	page, forward string
	// version is that of the key a of orders-1.
	version string
}

// fill makes the trees orders-1 and people, a deleted one, and what hangs on
// them.
func (w *world) fill() {
	w.t.Helper()
	admin := w.keys["admin *"]
	must := func(status int, method, path, contentType, body string, into any) running.Reply {
		w.t.Helper()
		got := w.as(admin, method, path, contentType, body)
		if got.Status != status {
			w.t.Fatalf("%s %s: %d %s", method, path, got.Status, got.Body)
		}
		if into != nil {
			if err := json.Unmarshal([]byte(got.Body), into); err != nil {
				w.t.Fatal(err)
			}
		}
		return got
	}
	const json = "application/json"
	for _, tree := range []string{"orders-1", "people", "Orders", "gone"} {
		for _, key := range []string{"a", "b", keyMarker} {
			resp := must(201, "PUT", "/v1/trees/"+tree+"/keys/"+key, "text/plain", valueMarker, nil)
			if tree == "orders-1" && key == "a" {
				w.stolen.version = resp.Header.Get("ETag")
			}
		}
	}
	must(204, "DELETE", "/v1/trees/gone", "", "", nil)
	var cursor struct{ CursorID string }
	must(201, "POST", "/v1/trees/people/cursors", json, `{"kind":"entries"}`, &cursor)
	w.stolen.cursor = cursor.CursorID
	must(201, "POST", "/v1/trees/orders-1/cursors", json, `{"kind":"delete-range","prefix":"none"}`, &cursor)
	w.stolen.deleting = cursor.CursorID
	var page struct{ NextPageToken string }
	must(200, "GET", "/v1/trees/people/entries?limit=1", "", "", &page)
	w.stolen.page = page.NextPageToken
	must(200, "GET", "/v1/trees/orders-1/entries?limit=1", "", "", &page)
	w.stolen.forward = page.NextPageToken
	must(201, "PUT", "/v1/trees/orders-load/bulk-loads/first", "", "", nil)
	must(200, "PUT", "/v1/trees/orders-load/bulk-loads/first/chunks/0", "application/x-ndjson", `{"key":"m","text":"1"}`+"\n", nil)
}

// snapshot is everything that is stored: every row of every table and every
// blob of every container, with their tags, and the list of trees as the service
// tells it.
func (w *world) snapshot() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	w.tables(all)
	w.blobs(all)
	all["trees"] = w.as(w.keys["admin *"], "GET", "/v1/trees", "", "").Body
	return all
}

func (w *world) tables(all map[string]string) {
	w.t.Helper()
	service, err := aztables.NewServiceClientFromConnectionString(w.store.ConnectionString(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for tables := service.NewListTablesPager(nil); tables.More(); {
		page, err := tables.NextPage(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, table := range page.Tables {
			w.rows(all, service.NewClient(*table.Name), *table.Name)
		}
	}
}

func (w *world) rows(all map[string]string, table *aztables.Client, name string) {
	w.t.Helper()
	for rows := table.NewListEntitiesPager(nil); rows.More(); {
		page, err := rows.NextPage(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, row := range page.Entities {
			var id struct{ PartitionKey, RowKey string }
			if err := json.Unmarshal(row, &id); err != nil {
				w.t.Fatal(err)
			}
			all["row "+name+" "+id.PartitionKey+" "+id.RowKey] = string(row)
		}
	}
}

func (w *world) blobs(all map[string]string) {
	w.t.Helper()
	client, err := azblob.NewClientFromConnectionString(w.store.ConnectionString(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for containers := client.NewListContainersPager(nil); containers.More(); {
		page, err := containers.NextPage(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, c := range page.ContainerItems {
			for blobs := client.NewListBlobsFlatPager(*c.Name, nil); blobs.More(); {
				list, err := blobs.NextPage(w.t.Context())
				if err != nil {
					w.t.Fatal(err)
				}
				for _, b := range list.Segment.BlobItems {
					all["blob "+*c.Name+" "+*b.Name] = fmt.Sprint(*b.Properties.ETag, *b.Properties.ContentLength)
				}
			}
		}
	}
}

// unchanged fails the test unless everything is as it was, but for what is left
// out.
func (w *world) unchanged(before map[string]string, without ...func(name, text string) bool) {
	w.t.Helper()
	after := w.snapshot()
	for _, f := range without {
		maps.DeleteFunc(after, f)
	}
	for name := range maps.Keys(after) {
		if old, ok := before[name]; !ok {
			w.t.Errorf("new: %s %.200s", name, after[name])
		} else if old != after[name] {
			w.t.Errorf("changed: %s\n%.300s\n%.300s", name, old, after[name])
		}
	}
	for name := range maps.Keys(before) {
		if _, ok := after[name]; !ok {
			w.t.Errorf("gone: %s", name)
		}
	}
}

// runtimeAPI plays the side of Lambda that hands events to a function.
type runtimeAPI struct {
	events  chan string
	answers chan string
	once    sync.Mutex
}

// ServeHTTP implements http.Handler.
func (r *runtimeAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasSuffix(req.URL.Path, "/invocation/next") {
		select {
		case event := <-r.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "1")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
			_, _ = io.WriteString(w, event)
		case <-req.Context().Done():
		}
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	w.WriteHeader(http.StatusAccepted)
	r.answers <- string(body)
}

// invoke hands in an event and returns the answer.
func (r *runtimeAPI) invoke(ctx context.Context, event string) (string, error) {
	r.once.Lock()
	defer r.once.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case r.events <- event:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case answer := <-r.answers:
		// A streamed answer has a prelude that ends with eight zero bytes.
		if prelude, body, ok := bytes.Cut([]byte(answer), make([]byte, 8)); ok {
			return string(prelude) + "\n" + string(body), nil
		}
		return answer, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
