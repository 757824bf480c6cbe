package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/hosts/funcshost"
)

func TestLostBodiesStoreNothing(t *testing.T) {
	for name, refuse := range map[string]bool{"lost": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			h := functionApp(t, func(o *funcshost.Options) { o.RefuseChunked = refuse })
			tree, line := h.URL+"/v1/trees/t", `{"key":"a","text":"1"}`+"\n"
			if begun := send(t, "PUT", tree+"/bulk-loads/x", nil); begun.status != 201 {
				t.Fatalf("begin: %d %s", begun.status, begun.body)
			}
			var open struct{ CursorID string }
			opened := send(t, "POST", tree+"/cursors", strings.NewReader(`{"kind":"keys"}`), "Content-Type", "application/json")
			if err := json.Unmarshal([]byte(opened.body), &open); err != nil || opened.status != 201 {
				t.Fatalf("open a cursor: %d %s", opened.status, opened.body)
			}
			next := "/cursors/" + open.CursorID + "/next"
			for _, c := range []struct {
				method, path string
				header       []string
				status       int
				code         string
			}{
				{"PUT", "-new", []string{"Content-Type", "application/json"}, 411, "length_required"},
				{"POST", next, []string{"Content-Type", "application/json"}, 411, "length_required"},
				{"PUT", "/keys/a", nil, 411, "length_required"},
				{"PUT", "/keys/a", []string{"Content-Type", "text/plain"}, 411, "length_required"},
				{"PUT", "/key?b64=YQ&mode=get-or-set", nil, 411, "length_required"},
				{"PUT", "/keys/a", []string{"Content-Digest", digest(line)}, 400, "digest_mismatch"},
				{"POST", "/batch", []string{"Content-Type", "application/json"}, 400, "invalid_argument"},
				{"POST", "/bulk-load", []string{"Content-Type", "application/x-ndjson"}, 411, "length_required"},
				{"POST", "/bulk-load?mode=stream", []string{"Content-Type", "application/x-ndjson"}, 411, "length_required"},
				{"PUT", "/bulk-loads/x/chunks/0", []string{"Content-Type", "application/x-ndjson"}, 411, "length_required"},
			} {
				if refuse {
					c.status, c.code = 500, ""
				}
				if got := send(t, c.method, tree+c.path, chunked(line), c.header...); got.status != c.status || got.problem() != c.code {
					t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.header, got.status, got.body, c.status, c.code)
				}
			}
			var state struct{ NextChunkIndex int }
			got := send(t, "GET", tree+"/bulk-loads/x", nil)
			if err := json.Unmarshal([]byte(got.body), &state); err != nil || state.NextChunkIndex != 0 {
				t.Errorf("the load went on: %s, %v", got.body, err)
			}
			if got := send(t, "GET", tree+"/count", nil); !strings.Contains(got.body, `"count":0`) {
				t.Errorf("something was stored: %s", got.body)
			}
			if got := send(t, "GET", tree+"-new", nil); got.status != 404 {
				t.Errorf("a tree was made: %d %s", got.status, got.body)
			}
			if got := send(t, "POST", tree+next, strings.NewReader(`{"limit":1}`), "Content-Type", "application/json"); !strings.Contains(got.body, `"page":1,`) {
				t.Errorf("a page was passed: %d %s", got.status, got.body)
			}
			if put := send(t, "PUT", tree+"/keys/empty", strings.NewReader(""), "Content-Digest", digest("")); put.status != 201 {
				t.Errorf("an empty value with its digest: %d %s", put.status, put.body)
			}
		})
	}
}

// writer writes numbered keys until ctx ends, and returns how many were
// acknowledged: each once, whatever happened in between.
func writer(ctx context.Context, t *testing.T, tree *client.Tree, n int) (acked int) {
	for ; ctx.Err() == nil; acked++ {
		// The first half on one shard, the second across them and named.
		ops := []client.Op{{Key: fmt.Sprintf("w%d/%05d/a", n, acked), Value: fmt.Append(nil, acked)}, {Key: fmt.Sprintf("w%d/%05d/b", n, acked), Value: fmt.Append(nil, acked)}}
		for {
			_, err := tree.Atomic(context.WithoutCancel(ctx), ops, client.AtomicOptions{OperationID: fmt.Sprintf("w%d-%d", n, acked)})
			if err == nil {
				break
			}
			if !client.Retryable(err) {
				t.Errorf("batch %d of writer %d: %v", acked, n, err)
				return acked
			}
		}
	}
	return acked
}

// loader loads chunks until ctx ends, and commits; it returns how many entries
// were acknowledged.
func loader(ctx context.Context, t *testing.T, tree *client.Tree) (acked int64) {
	again := func(what string, do func() error) {
		for {
			err := do()
			if err == nil {
				return
			}
			if !client.Retryable(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	ctx, plain := context.WithoutCancel(ctx), ctx
	again("begin", func() error { _, _, err := tree.BeginBulkLoad(ctx, "load"); return err })
	for chunk := int64(0); plain.Err() == nil; chunk++ {
		var w client.ChunkWriter
		for i := range 20 {
			if err := w.Append(&client.BulkEntry{Key: fmt.Sprintf("%06d-%03d", chunk, i), Value: []byte{0, 0xff}}); err != nil {
				t.Fatal(err)
			}
		}
		again("chunk", func() error {
			_, err := tree.AppendBulkLoad(ctx, "load", chunk, w.Bytes(), client.BulkOptions{})
			return err
		})
		acked += 20
	}
	again("commit", func() error {
		state, err := tree.CommitBulkLoad(ctx, "load")
		if err == nil && state.TotalLiveKeys != acked {
			t.Errorf("%d keys of the load, %d were acknowledged", state.TotalLiveKeys, acked)
		}
		return err
	})
	return acked
}

// underLoad runs writers and a load while disturb does its work, and compares
// what is there with what was acknowledged.
func underLoad(t *testing.T, h *funcshost.Host, disturb func()) {
	t.Helper()
	c, err := client.New(h.URL, client.Options{Retry: client.RetryPolicy{Base: 20 * time.Millisecond, Cap: 200 * time.Millisecond, Max: 50}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tree, acked := c.Tree("t"), make([]int, 6)
	var all sync.WaitGroup
	for n := range acked {
		all.Go(func() { acked[n] = writer(ctx, t, tree, n) })
	}
	all.Go(func() { loader(ctx, t, c.Tree("loaded")) })
	disturb()
	cancel()
	all.Wait()
	total := 0
	for n := range acked {
		total += acked[n]
		i := 0
		for e, err := range tree.Scan(t.Context(), client.Query{Range: client.Range{Prefix: fmt.Sprintf("w%d/", n)}}) {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("w%d/%05d/%c", n, i/2, 'a'+i%2); e.Key != want || string(e.Value) != fmt.Sprint(i/2) {
				t.Fatalf("%s = %s where %s was expected", e.Key, e.Value, want)
			}
			i++
		}
		if i != 2*acked[n] {
			t.Errorf("writer %d: %d keys, %d were acknowledged", n, i, 2*acked[n])
		}
	}
	if total < len(acked) {
		t.Errorf("only %d batches: that shows nothing", total)
	}
	t.Logf("%d batches acknowledged, %d handlers started", total, h.Starts())
}

func TestKilledHandlersLoseNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	h := functionApp(t)
	underLoad(t, h, func() {
		for range 4 {
			select {
			case <-time.After(300*time.Millisecond + time.Duration(rnd.IntN(400))*time.Millisecond):
			case <-t.Context().Done():
			}
			h.Kill()
			h.AwaitHandler()
		}
	})
	if h.Starts() < 5 {
		t.Errorf("%d handlers were started", h.Starts())
	}
}

func TestLostRepliesAreMadeGood(t *testing.T) {
	var answers atomic.Int64
	h := functionApp(t, func(o *funcshost.Options) {
		o.LoseReply = func() bool { return answers.Add(1)%3 == 0 }
	})
	underLoad(t, h, func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for answers.Load() < 300 && !t.Failed() {
			<-tick.C
		}
	})
}

// awayFromStorage runs the app with relays between it and Azurite.
func awayFromStorage(t *testing.T, env ...string) (*funcshost.Host, []*relay) {
	t.Helper()
	connection, relays := relayed(t, azurite.Shared(t).ConnectionString())
	return functionApp(t, func(o *funcshost.Options) { o.Env = append(onAzurite(t, connection), env...) }), relays
}

func TestHandlerStartsWithoutStorage(t *testing.T) {
	h, relays := awayFromStorage(t, "LATTICE_REQUEST_TIMEOUT=2s", "LATTICE_ROUTING_RETRY_BUDGET=1s", "LATTICE_TICK_BUDGET=200ms")
	if got := send(t, "GET", h.URL+"/healthz", nil); got.status != 200 {
		t.Errorf("healthz: %d %s", got.status, got.body)
	}
	if got := send(t, "GET", h.URL+"/readyz", nil); got.status != 503 {
		t.Errorf("readyz without storage: %d %s", got.status, got.body)
	}
	if got := send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("v")); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("put without storage: %d %s", got.status, got.body)
	}
	done, err := h.Invoke(t.Context(), "checkpoint", funcshost.Payload(time.Now(), false))
	if err != nil || done.OK() || len(done.Logs) != 1 {
		t.Errorf("a timer without storage: %+v, %v", done, err)
	}
	each(relays, (*relay).Open)
	waitFor(t, h.Handler(), func() error {
		if got := send(t, "GET", h.URL+"/readyz", nil); got.status != 200 {
			return fmt.Errorf("readyz with storage: %d %s", got.status, got.body)
		}
		return nil
	})
	waitFor(t, h.Handler(), func() error {
		if got := send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("v")); got.status/100 != 2 {
			return fmt.Errorf("put with storage: %d %s", got.status, got.body)
		}
		return nil
	})
	if done, err := h.Invoke(t.Context(), "checkpoint", funcshost.Payload(time.Now(), true)); err != nil || !done.OK() {
		t.Errorf("a timer with storage: %+v, %v", done, err)
	}
	if h.Starts() != 1 {
		t.Errorf("%d handlers were started", h.Starts())
	}
}

// heldPut begins a write whose storage operations are held back, and returns
// when they are; the answer comes by the channel.
func heldPut(t *testing.T, h *funcshost.Host, relays []*relay) <-chan reply {
	t.Helper()
	if warm := send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("before")); warm.status != 201 {
		t.Fatalf("put: %d %s", warm.status, warm.body)
	}
	each(relays, (*relay).Hold)
	answered := make(chan reply, 1)
	go func() { answered <- send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("after")) }()
	waitFor(t, h.Handler(), func() error {
		for _, r := range relays {
			if r.Held() > 0 {
				return nil
			}
		}
		return errors.New("the write does not reach the storage")
	})
	return answered
}

func TestEndIsWaitedForByRequestsAndTimers(t *testing.T) {
	h, relays := awayFromStorage(t)
	each(relays, (*relay).Open)
	answered, ticked := heldPut(t, h, relays), make(chan error, 1)
	go func() {
		done, err := h.Invoke(t.Context(), "transactions", funcshost.Payload(time.Now(), false))
		if err == nil && !done.OK() {
			err = fmt.Errorf("the timer failed: %s", done.Logs)
		}
		ticked <- err
	}()
	waitFor(t, h.Handler(), func() error {
		if n := relays[0].Held() + relays[1].Held(); n < 2 {
			return errors.New("the timer does not reach the storage")
		}
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop() }()
	waitFor(t, h.Handler(), func() error {
		if dials(t.Context(), h.Address()) {
			return errors.New("the handler still listens")
		}
		return nil
	})
	each(relays, (*relay).Release)
	if put := <-answered; put.status != 200 {
		t.Errorf("the write in work was answered with %d %s", put.status, put.body)
	}
	if err := <-ticked; err != nil {
		t.Errorf("the timer in work: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestEndIsNotWaitedForTooLong(t *testing.T) {
	h, relays := awayFromStorage(t, "LATTICE_SHUTDOWN_GRACE_PERIOD=200ms")
	each(relays, (*relay).Open)
	answered := heldPut(t, h, relays)
	began := time.Now()
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the end took %s", took)
	}
	// Nobody may take it for done.
	if put := <-answered; put.status/100 == 2 {
		t.Errorf("the write in work was answered with %d", put.status)
	}
}

func TestCallerGetsNothingAfterThePlatformsLimit(t *testing.T) {
	h, relays := awayFromStorage(t)
	each(relays, (*relay).Open)
	if warm := send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("before")); warm.status != 201 {
		t.Fatalf("put: %d %s", warm.status, warm.body)
	}
	h.SetLimit(200 * time.Millisecond)
	each(relays, (*relay).Hold)
	if late := send(t, "PUT", h.URL+"/v1/trees/t/keys/a", strings.NewReader("late")); late.status != http.StatusBadGateway {
		t.Errorf("a late answer: %d %s", late.status, late.body)
	}
	each(relays, (*relay).Release)
	h.SetLimit(time.Minute)
	c, err := client.New(h.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	// Whatever became of the write, the next one is the last.
	if _, err := c.Tree("t").Set(t.Context(), "a", []byte("last"), client.SetOptions{}); err != nil {
		t.Error(err)
	}
	if e, err := c.Tree("t").Get(t.Context(), "a", client.ReadOptions{}); err != nil || string(e.Value) != "last" {
		t.Errorf("%q, %v", e.Value, err)
	}
}
