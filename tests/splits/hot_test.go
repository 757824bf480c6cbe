package splits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/keyspace"
	"github.com/latticekv/lattice/tests/running"
)

func TestMain(m *testing.M) { running.Main(m) }

const (
	heatClients = 64
	heatHotKeys = 3000
	heatCold    = 600
	heatShare   = 0.9
	// heatSplits is how many are waited for, heatLongest how long at most, and
	// heatAfter is the time in which the spread of the heat is measured then.
	heatSplits  = 3
	heatLongest = 50 * time.Second
	heatAfter   = 4 * time.Second
)

// system is a running service, of one process or many.
type system struct {
	url  string
	stop func() error
}

// hotSettings are the intervals of a day, in half a minute.
var hotSettings = map[string]string{
	"hot-shard-sample-interval": "1s", "auto-split-min-tree-age": "2s", "hot-shard-split-cooldown": "3s",
	"migrations-interval": "200ms", "hot-shard-min-shard-entries": "64",
}

// oneProcess is cmd/local, which keeps its own schedule.
func oneProcess(t *testing.T, w *world) system {
	args := []string{"--store=azure", "--table-name=" + w.table, "--container-name=" + w.container, "--log-level=warn", "--data-dir=" + t.TempDir()}
	for name, value := range hotSettings {
		args = append(args, "--"+name+"="+value)
	}
	s := running.Start(t, []string{"AZURE_STORAGE_CONNECTION_STRING=" + w.emulator.ConnectionString()}, args...)
	return system{s.URL, s.Stop}
}

// heat is a running service under a load of which one shard gets nearly all.
type heat struct {
	t         *testing.T
	src       clock.Source
	start     time.Duration
	service   system
	tree      *client.Tree
	hot, cold []string
	// all are the keys that always exist, sorted.
	all  []string
	mu   sync.Mutex
	asks map[string]int
	// last is the highest version that was acknowledged, by key.
	last map[string]string
	// rates are requests by second. again counts answers of 503, polls the
	// counts and scans that were held against the truth.
	rates []int
	again atomic.Int64
	polls [3]atomic.Int64
}

func newHeat(t *testing.T, start func(*testing.T, *world) system) *heat {
	s := start(t, newWorld(t))
	c, err := client.New(s.url, client.Options{Retry: client.RetryPolicy{Max: -1}})
	if err != nil {
		t.Fatal(err)
	}
	h := &heat{t: t, src: clock.NewSystem(), service: s, tree: c.Tree("hot"), asks: map[string]int{}, last: map[string]string{}}
	if _, err := h.tree.Create(t.Context(), client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.fill()
	return h
}

// fill writes keys in all slots of shard 0, and some elsewhere.
func (h *heat) fill() {
	m := h.shardMap()
	for i := 0; len(h.hot) < heatHotKeys || len(h.cold) < heatCold; i++ {
		switch key := keyOf(i); {
		case m.OwnerOf(key) != 0 && len(h.cold) < heatCold:
			h.cold = append(h.cold, key)
		case m.OwnerOf(key) == 0 && len(h.hot) < heatHotKeys:
			h.hot = append(h.hot, key)
		}
	}
	h.all = slices.Sorted(slices.Values(slices.Concat(h.hot, h.cold)))
	for keys := range slices.Chunk(h.all, 600) {
		var b client.Batch
		for _, key := range keys {
			b.Ops = append(b.Ops, client.Op{Key: key, Value: []byte("first")})
		}
		if _, err := h.tree.Batch(h.t.Context(), b); err != nil {
			h.t.Fatal(err)
		}
	}
}

// shardMap asks the service who owns what.
func (h *heat) shardMap() *keyspace.Map {
	resp, err := http.Get(h.service.url + "/v1/trees/hot/shard-map")
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Version uint64
		Shards  []struct {
			Shard keyspace.ShardID
			Slots [][2]uint16
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != http.StatusOK {
		h.t.Fatalf("shard map: %s, %v", resp.Status, err)
	}
	var owner [keyspace.Slots]keyspace.ShardID
	for _, s := range body.Shards {
		for _, run := range s.Slots {
			for slot := int(run[0]); slot <= int(run[1]); slot++ {
				owner[slot] = s.Shard
			}
		}
	}
	var runs []keyspace.Range
	for slot, id := range owner {
		if n := len(runs); n > 0 && runs[n-1].Shard == id {
			runs[n-1].To = uint16(slot)
			continue
		}
		runs = append(runs, keyspace.Range{From: uint16(slot), To: uint16(slot), Shard: id})
	}
	m, err := keyspace.FromRanges(body.Version, runs)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// answered files an answer: errors are failures of the test unless the service
// says with 503 when to try again.
func (h *heat) answered(what string, err error) bool {
	var e *client.Error
	switch {
	case err == nil:
		return true
	case errors.As(err, &e) && e.Status == http.StatusServiceUnavailable && e.RetryAfter > 0:
		h.again.Add(1)
		_ = h.src.Sleep(context.Background(), 50*time.Millisecond)
	default:
		h.t.Errorf("%s: %v", what, err)
	}
	return false
}

// client does one thing after another, with some keys more often than others.
func (h *heat) client(ctx context.Context, n int) {
	rnd := rand.New(rand.NewPCG(5, uint64(n)))
	zipf := rand.NewZipf(rnd, 1.2, 300, heatHotKeys-1)
	pick := func() string {
		if rnd.Float64() > heatShare {
			return h.cold[rnd.IntN(len(h.cold))]
		}
		return h.hot[zipf.Uint64()]
	}
	for i := 0; ctx.Err() == nil && !h.t.Failed(); i++ {
		keys := []string{pick()}
		for len(keys) < 5 && i%10 >= 8 {
			keys = append(keys, pick())
		}
		if h.step(context.WithoutCancel(ctx), i%10, keys, fmt.Sprintf("temporary-%d-%d", n, i)) {
			h.note(keys)
		}
	}
}

// note counts a request that was carried out.
func (h *heat) note(keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	second := int((h.src.Now().Mono - h.start) / time.Second)
	for len(h.rates) <= second {
		h.rates = append(h.rates, 0)
	}
	h.rates[second]++
	for _, key := range keys {
		h.asks[key]++
	}
}

// step makes one request, or a few that belong together.
func (h *heat) step(ctx context.Context, kind int, keys []string, temporary string) bool {
	switch kind {
	case 0, 1, 2, 3:
		_, err := h.tree.Get(ctx, keys[0], client.ReadOptions{})
		return h.answered("get", err)
	case 4, 5:
		r, err := h.tree.Set(ctx, keys[0], []byte("again"), client.SetOptions{})
		if err == nil && r.Created {
			h.t.Errorf("%s had gone", keys[0])
		}
		h.wrote(keys[0], r.Version)
		return h.answered("set", err)
	case 6:
		_, created, err := h.tree.GetOrSet(ctx, keys[0], []byte("never"), client.SetOptions{})
		if err == nil && created {
			h.t.Errorf("%s had gone", keys[0])
		}
		return h.answered("get or set", err)
	case 7:
		_, err := h.tree.Set(ctx, temporary, []byte("soon gone"), client.SetOptions{})
		if !h.answered("set", err) {
			return false
		}
		existed, err := h.tree.Delete(ctx, temporary, client.DeleteOptions{})
		if err == nil && !existed {
			h.t.Errorf("%s had gone", temporary)
		}
		return h.answered("delete", err)
	case 8:
		found, err := h.tree.GetMany(ctx, keys, client.ReadOptions{})
		if err == nil && len(found) != len(keys) {
			h.t.Errorf("%d of %d found", len(found), len(keys))
		}
		return h.answered("get many", err)
	}
	var b client.Batch
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		b.Ops = append(b.Ops, client.Op{Key: key, Value: []byte("together")})
	}
	results, err := h.tree.Batch(ctx, b)
	for _, r := range results {
		if r.Err() == nil {
			h.wrote(r.Key, r.Version)
		}
	}
	return h.answered("batch", err)
}

// wrote notes what was acknowledged; versions of a key order as texts.
func (h *heat) wrote(key, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[key] = max(h.last[key], version)
}

// poll counts and scans, and holds each answer against what must be there.
func (h *heat) poll(ctx context.Context, kind int) {
	for ctx.Err() == nil && !h.t.Failed() {
		what := client.Range{Prefix: "key-"}
		if kind == 0 {
			n, err := h.tree.Count(context.WithoutCancel(ctx), what, client.CountOptions{})
			if h.answered("count", err) && n.Total != int64(len(h.all)) {
				h.t.Errorf("count is %d of %d", n.Total, len(h.all))
			}
		} else {
			h.scan(context.WithoutCancel(ctx), client.Query{Range: what, KeysOnly: true, Reverse: kind == 2})
		}
		h.polls[kind].Add(1)
		_ = h.src.Sleep(ctx, 100*time.Millisecond)
	}
}

func (h *heat) scan(ctx context.Context, q client.Query) {
	var keys []string
	for e, err := range h.tree.Scan(ctx, q) {
		if !h.answered("scan", err) {
			return
		}
		keys = append(keys, e.Key)
	}
	if q.Reverse {
		slices.Reverse(keys)
	}
	if !slices.Equal(keys, h.all) {
		h.t.Errorf("a scan has %d keys instead of %d, or others, or in another order (reverse %v)", len(keys), len(h.all), q.Reverse)
	}
}

// run is the load until there were enough splits, and a while longer. It
// returns what was asked for in that while.
func (h *heat) run() map[string]int {
	ctx, cancel := context.WithTimeout(h.t.Context(), heatLongest)
	defer cancel()
	h.start = h.src.Now().Mono
	var wg sync.WaitGroup
	for n := range heatClients {
		wg.Go(func() { h.client(ctx, n) })
	}
	for kind := range h.polls {
		wg.Go(func() { h.poll(ctx, kind) })
	}
	for h.src.Sleep(ctx, 500*time.Millisecond) == nil {
		s, err := h.tree.Splits(ctx)
		if err == nil && len(s.Recent) >= heatSplits {
			break
		}
	}
	h.mu.Lock()
	h.asks = map[string]int{}
	h.mu.Unlock()
	_ = h.src.Sleep(ctx, heatAfter)
	cancel()
	wg.Wait()
	return h.asks
}
