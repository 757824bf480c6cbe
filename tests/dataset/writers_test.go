package dataset

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

const (
	writerCount = 8
	// keysEach is how many keys a writer goes round.
	keysEach = 40
	// ownPrefix is behind every key of the dataset.
	ownPrefix = "~own/"
)

// outcome is what a write leaves behind: a value, or nothing.
type outcome struct {
	value string
	there bool
}

// known is what is known of one key.
type known struct {
	// acked is what the last acknowledged write left.
	acked outcome
	// open are the writes since then of which no answer came. Any of them may
	// be there, now or later: it may still have been on its way.
	open []outcome
}

// allows reports whether a read may say so.
func (k *known) allows(o outcome) bool { return o == k.acked || slices.Contains(k.open, o) }

// writers write keys of their own beside an import and remember what was
// acknowledged. One writer writes one thing at a time.
type writers struct {
	tree string
	seed uint64
	keys [writerCount]map[string]*known
	// acks counts acknowledged requests.
	acks  atomic.Int64
	round int
}

func newWriters(tree string, seed uint64) *writers {
	w := &writers{tree: tree, seed: seed}
	for i := range w.keys {
		w.keys[i] = map[string]*known{}
	}
	return w
}

// run writes until the service is gone. After everyAck acknowledgements it
// calls then, once.
func (w *writers) run(t *testing.T, n *node, everyAck int64, then func()) {
	t.Helper()
	w.round++
	until := w.acks.Load() + everyAck
	var all sync.WaitGroup
	var once sync.Once
	for i := range writerCount {
		rng := rand.New(rand.NewPCG(w.seed, uint64(w.round*writerCount+i)))
		all.Go(func() {
			for step := 0; w.step(t, n, i, step, rng); step++ {
				if w.acks.Add(1) >= until {
					once.Do(then)
				}
			}
		})
	}
	all.Wait()
	if w.acks.Load() < until {
		t.Fatalf("the writers came to an end before the crash:\n%s", n.Output())
	}
}

// step makes one request and reports whether it was acknowledged.
func (w *writers) step(t *testing.T, n *node, writer, step int, rng *rand.Rand) bool {
	effect := map[string]outcome{}
	size := 1
	if rng.IntN(3) == 0 {
		size = 2 + rng.IntN(20)
	}
	for range size {
		key := fmt.Sprintf("%s%d/%02d", ownPrefix, writer, rng.IntN(keysEach))
		value := outcome{fmt.Sprintf("writer %d, round %d, step %d", writer, w.round, step), true}
		if rng.IntN(5) == 0 {
			value = outcome{}
		}
		effect[key] = value
	}
	for key, o := range effect {
		k := w.keys[writer][key]
		if k == nil {
			k = &known{}
			w.keys[writer][key] = k
		}
		k.open = append(k.open, o)
	}
	if !w.send(t, n, effect) {
		return false
	}
	for key, o := range effect {
		*w.keys[writer][key] = known{acked: o}
	}
	return true
}

// send writes one key by itself and several as a batch. An answer other than
// success is a fault unless the service is away.
func (w *writers) send(t *testing.T, n *node, effect map[string]outcome) bool {
	method, path, body := "POST", treePath(w.tree, "batch", nil), ""
	if len(effect) == 1 {
		for key, o := range effect {
			method, path, body = "PUT", treePath(w.tree, "keys/"+url.PathEscape(key), nil), o.value
			if !o.there {
				method = "DELETE"
			}
		}
	} else {
		body = batchOf(effect)
	}
	resp, err := n.do(context.WithoutCancel(t.Context()), method, path, body)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s %s: %d %s", method, path, resp.StatusCode, answer)
	}
	return err == nil && resp.StatusCode < 300
}

func batchOf(effect map[string]outcome) string {
	var ops []map[string]any
	for key, o := range effect {
		op := map[string]any{"op": "set", "key": key, "text": o.value}
		if !o.there {
			op = map[string]any{"op": "delete", "key": key}
		}
		ops = append(ops, op)
	}
	body, err := json.Marshal(map[string]any{"operations": ops})
	if err != nil {
		panic(err) // strings and maps always encode
	}
	return string(body)
}

// check compares what is there with what may be, and returns how many keys
// are there.
func (w *writers) check(t *testing.T, n *node) int {
	t.Helper()
	found := w.read(t, n)
	total, open := 0, 0
	for _, keys := range w.keys {
		for key, k := range keys {
			total, open = total+1, open+len(k.open)
			got, there := found[key]
			if !k.allows(outcome{got, there}) {
				t.Errorf("%s is %q, there %v; acknowledged was %+v, open are %+v", key, got, there, k.acked, k.open)
			}
		}
	}
	for key := range found {
		if !slices.ContainsFunc(w.keys[:], func(keys map[string]*known) bool { return keys[key] != nil }) {
			t.Errorf("%s was never written", key)
		}
	}
	t.Logf("round %d: %d requests acknowledged so far, %d keys, %d writes open", w.round, w.acks.Load(), total, open)
	return len(found)
}

func (w *writers) read(t *testing.T, n *node) map[string]string {
	t.Helper()
	var page struct {
		Entries       []line
		NextPageToken string
	}
	query := url.Values{"prefix": {ownPrefix}, "as": {"text"}, "limit": {"10000"}}
	n.ask(t, "GET", treePath(w.tree, "entries", query), "", &page)
	if page.NextPageToken != "" {
		t.Fatal("more keys than the writers have")
	}
	found := map[string]string{}
	for _, e := range page.Entries {
		found[e.Key] = e.Text
	}
	return found
}
