// Package coldstart starts the program of a cloud host where nothing of it is
// warm, and counts what it asks of the storage until it answers.
package coldstart

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
	"github.com/latticekv/lattice/tests/tap"
)

func TestMain(m *testing.M) { running.Main(m) }

// account is a fresh storage account with a tap before it.
type account struct {
	*tap.Tap
	tableURL, blobURL string
	env               []string
}

// fresh returns an account in which there is neither table nor container.
func fresh(t *testing.T) *account {
	t.Helper()
	e := azurite.Shared(t)
	opened, err := tap.Open(e.TableURL(), e.BlobURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return &account{opened, e.TableURL(), e.BlobURL(), []string{
		"LATTICE_STORE=azure", "LATTICE_INSECURE_NO_AUTH=true",
		"LATTICE_TABLE_NAME=" + e.TableName(t), "LATTICE_CONTAINER_NAME=" + e.ContainerName(t),
		"AZURE_STORAGE_CONNECTION_STRING=" + opened.Through(e.ConnectionString()),
		// A few entries fill several leaves, and every checkpoint folds what there is.
		"LATTICE_LEAF_TARGET_BYTES=4KiB", "LATTICE_CHECKPOINT_TAIL_ROWS=1", "LATTICE_LOG_LEVEL=warn",
	}}
}

// handler is a process of the custom handler.
type handler struct {
	*running.Process
	base string
	// listened is how long it took until a connection was accepted.
	listened time.Duration
}

// start runs the custom handler and returns as soon as it accepts connections.
func (a *account) start(t *testing.T, env ...string) *handler {
	t.Helper()
	program := running.Build(t, "functions/azurefunc")
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	_, port, _ := net.SplitHostPort(address)
	begun := time.Now()
	p, err := running.Run(t, append(append(a.env, "FUNCTIONS_CUSTOMHANDLER_PORT="+port), env...), program)
	if err != nil {
		t.Fatal(err)
	}
	h := &handler{Process: p, base: "http://" + address}
	deadline := time.After(30 * time.Second)
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			h.listened = time.Since(begun)
			conn.Close()
			return h
		}
		select {
		case <-p.Exited():
			t.Fatalf("the handler ended with %d:\n%s", p.ExitCode(), p.Output())
		case <-deadline:
			t.Fatalf("the handler does not listen: %v\n%s", err, p.Output())
		case <-time.After(time.Millisecond):
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// do sends a request and returns the body of the answer, which must have the
// status.
func (h *handler) do(t *testing.T, method, path, body string, want int) string {
	t.Helper()
	var header []string
	if method == http.MethodPost {
		header = []string{"Content-Type", "application/json"}
	}
	got := running.Ask(t, http.DefaultClient, method, h.base+path, strings.NewReader(body), header...)
	if got.Status != want {
		t.Fatalf("%s %s: %d %s, want %d\n%s", method, path, got.Status, got.Body, want, h.Output())
	}
	return got.Body
}

// logs waits until the log has the words; a line may come after the answer.
func (h *handler) logs(t *testing.T, want string) {
	t.Helper()
	deadline, again := time.After(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for !strings.Contains(h.Output(), want) {
		select {
		case <-again.C:
		case <-deadline:
			t.Errorf("the log does not tell %q:\n%s", want, h.Output())
			return
		}
	}
}

// tick runs a timer as the Functions host does.
func (h *handler) tick(t *testing.T, timer string) string {
	t.Helper()
	answer := h.do(t, http.MethodPost, "/"+timer, `{"Data":{},"Metadata":{}}`, 200)
	if !strings.Contains(answer, `"ok":true`) {
		t.Fatalf("timer %s: %s", timer, answer)
	}
	return answer
}

// leaves is what the test looks at in the diagnostics of a tree.
type leaves struct {
	Totals struct{ LiveKeys int }
	Shards []struct{ LiveKeys, Leaves int }
}

// checkpointed makes a tree of some shards with several leaves each, into which
// its log is folded, and returns how many keys it has.
func (a *account) checkpointed(t *testing.T) (keys int) {
	t.Helper()
	h := a.start(t)
	h.do(t, "PUT", "/v1/trees/t", fmt.Sprintf(`{"shardCount":%d}`, shards), 201)
	for range 2 {
		var b strings.Builder
		for range 500 {
			fmt.Fprintf(&b, `,{"op":"set","key":"%s","text":"%s"}`, key(keys), value(keys))
			keys++
		}
		h.do(t, "POST", "/v1/trees/t/batch", `{"operations":[`+b.String()[1:]+`]}`, 200)
		h.tick(t, "checkpoint")
	}
	var d leaves
	if err := json.Unmarshal([]byte(h.do(t, "GET", "/v1/trees/t/diagnostics?deep=true", "", 200)), &d); err != nil {
		t.Fatal(err)
	}
	if d.Totals.LiveKeys != keys || len(d.Shards) != shards {
		t.Fatalf("%d keys in %d shards, want %d in %d", d.Totals.LiveKeys, len(d.Shards), keys, shards)
	}
	for _, s := range d.Shards {
		if s.Leaves < 4 {
			t.Fatalf("a shard has %d leaves: too few to tell anything", s.Leaves)
		}
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// shards of the tree.
const shards = 4

func key(i int) string { return fmt.Sprintf("key-%05d", i) }

// value is text that no compression makes much shorter.
func value(i int) string {
	var b strings.Builder
	for x := uint64(i)*2654435761 + 1; b.Len() < 100; x = x*6364136223846793005 + 1442695040888963407 {
		fmt.Fprintf(&b, "%016x", x)
	}
	return b.String()
}

// cold starts a process, makes one request, and returns what the process asked of
// the storage from its start to its answer.
func (a *account) cold(t *testing.T, method, path, body string, want int) (answer string, asked []tap.Exchange) {
	t.Helper()
	a.Take()
	h := a.start(t)
	answer = h.do(t, method, path, body, want)
	asked = a.Take()
	h.Kill()
	t.Logf("%s %s: %d round trips to the storage", method, path, len(asked))
	for _, e := range asked {
		t.Log("  ", e)
	}
	return answer, asked
}
