package splits

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
)

// The load: as many function instances as a busy app has, without leases, so
// that each must ask the log of a shard whether what it remembers is current.
// The profile serves 2,000 entities a second of one partition: that is what
// binds while one shard has nearly all of the load.
const (
	payInstances = 48
	payClients   = 4 // of each instance, one request at a time each
	payHotKeys   = 30_000
	payColdKeys  = 4_000
	payHotShare  = 0.95
	payWrites    = 0.02
	payWarmUp    = time.Second
	payPhase     = 4 * time.Second // before, and after
	payLongest   = 120 * time.Second
)

// payShards is where the splits stop: early, where the figures are only looked
// at.
func payShards() int {
	if *update || os.Getenv("LATTICE_SOAK") != "" {
		return 24
	}
	return 12
}

// payload drives the load and notes what came of it.
type payload struct {
	t         *testing.T
	src       clock.Source
	start     time.Duration
	dbs       []*tree.DB
	hot, cold []string
	mu        sync.Mutex
	series    series
	refused   atomic.Int64
}

func newPayload(t *testing.T) *payload {
	src := clock.NewSystem()
	mem := memory.New(memory.Options{Clock: src, Profile: memory.Azure()})
	p := &payload{t: t, src: src}
	o := options.Default()
	o.HotShardSampleInterval, o.AutoSplitMinTreeAge, o.HotShardSplitCooldown = time.Second, 0, 2*time.Second
	o.MaxPhysicalShardsPerTree = payShards()
	for range payInstances {
		db, err := tree.New(tree.Config{Table: mem.Table(), Blobs: mem.Blobs(), Clock: src, Options: o})
		if err != nil {
			t.Fatal(err)
		}
		p.dbs = append(p.dbs, db)
	}
	return p
}

// fill chooses hot keys in the slots of shard 0, and spread over all of them,
// and cold ones elsewhere, and writes them.
func (p *payload) fill(h *tree.Tree) {
	m := h.ShardMap()
	for i := 0; len(p.hot) < payHotKeys; i++ {
		if key := keyOf(i); m.OwnerOf(key) == 0 {
			p.hot = append(p.hot, key)
		} else if len(p.cold) < payColdKeys {
			p.cold = append(p.cold, key)
		}
	}
	var ops []tree.BatchOp
	for _, keys := range [][]string{p.hot, p.cold} {
		for _, key := range keys {
			ops = append(ops, tree.BatchOp{Key: key, Value: []byte("a value of a hundred bytes or so")})
		}
	}
	for len(ops) > 0 {
		n := min(len(ops), 2000)
		if _, err := h.Batch(p.t.Context(), ops[:n]); err != nil {
			p.t.Fatal(err)
		}
		ops = ops[n:]
	}
	if _, err := p.dbs[0].Checkpoint(p.t.Context(), time.Minute); err != nil {
		p.t.Fatal(err)
	}
}

// client asks for one key after another, some more often than others, until ctx
// ends.
func (p *payload) client(ctx context.Context, n int) {
	rnd := rand.New(rand.NewPCG(11, uint64(n)))
	zipf := rand.NewZipf(rnd, 1.1, 2000, payHotKeys-1)
	h, err := p.dbs[n%payInstances].Open(ctx, "pays")
	if err != nil {
		p.t.Errorf("open: %v", err)
		return
	}
	for ctx.Err() == nil {
		key := p.hot[zipf.Uint64()]
		if rnd.Float64() > payHotShare {
			key = p.cold[rnd.IntN(len(p.cold))]
		}
		began := p.src.Now().Mono
		if rnd.Float64() < payWrites {
			_, err = h.Put(context.WithoutCancel(ctx), key, []byte("another value, as long as it was"), tree.PutOptions{})
		} else {
			_, _, err = h.Get(context.WithoutCancel(ctx), key, tree.ReadOptions{})
		}
		end := p.src.Now().Mono
		switch {
		case errors.Is(err, tree.ErrRoutingUnstable):
			p.refused.Add(1) // 503: try again
		case err != nil:
			p.t.Errorf("request: %v", err)
			return
		default:
			p.mu.Lock()
			p.series.add(end-p.start, end-began)
			p.mu.Unlock()
		}
	}
}

// every calls f at an interval until ctx ends.
func (p *payload) every(ctx context.Context, interval time.Duration, f func(context.Context) error) {
	for p.src.Sleep(ctx, interval) == nil {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			p.t.Errorf("timer: %v", err)
		}
	}
}

// monitor splits what is hot until the tree has all its shards and none is on
// the move.
func (p *payload) monitor(ctx context.Context, h *tree.Tree) {
	for p.src.Sleep(ctx, time.Second) == nil {
		if _, err := p.dbs[0].Monitor(ctx, 0); err != nil && ctx.Err() == nil {
			p.t.Errorf("monitor: %v", err)
		}
		active, _, err := h.Splits(ctx)
		if err == nil && len(active) == 0 && len(h.ShardMap().Shards()) == payShards() {
			return
		}
	}
}

// run is the load before, during and after the splits, and returns when these
// began and ended.
func (p *payload) run(h *tree.Tree) (from, to time.Duration) {
	ctx, cancel := context.WithTimeout(p.t.Context(), payLongest)
	defer cancel()
	var wg sync.WaitGroup
	p.start = p.src.Now().Mono
	for n := range payInstances * payClients {
		wg.Go(func() { p.client(ctx, n) })
	}
	wg.Go(func() {
		p.every(ctx, 200*time.Millisecond, func(ctx context.Context) error { _, err := p.dbs[0].Migrations(ctx, 0); return err })
	})
	wg.Go(func() {
		p.every(ctx, 2*time.Second, func(ctx context.Context) error { _, err := p.dbs[0].Checkpoint(ctx, 0); return err })
	})
	_ = p.src.Sleep(ctx, payWarmUp+payPhase)
	from = p.src.Now().Mono - p.start
	p.monitor(ctx, h)
	to = p.src.Now().Mono - p.start
	_ = p.src.Sleep(ctx, payPhase)
	cancel()
	wg.Wait()
	return from, to
}

// With one shard hot, one partition binds. The monitor divides the shard until
// the load is spread, and all of them together serve a multiple.
func TestSplittingPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPayload(t)
		h, err := p.dbs[0].OpenOrCreate(t.Context(), "pays")
		if err != nil {
			t.Fatal(err)
		}
		p.fill(h)
		from, to := p.run(h)
		phases := []phase{
			p.series.phase("before", payWarmUp, from),
			p.series.phase("during", from, to),
			p.series.phase("after", to, to+payPhase),
		}
		shards := len(h.ShardMap().Shards())
		t.Logf("%d shards at the end, %d requests told to try again\n%s", shards, p.refused.Load(), table(phases))
		if gain := phases[2].rate() / phases[0].rate(); gain < 3 {
			t.Errorf("%d shards serve %.1f times what one did", shards, gain)
		}
		if phases[2].quantile(0.99) >= phases[0].quantile(0.99) {
			t.Error("the slowest requests are no faster than before")
		}
		if n := p.refused.Load(); n > int64(p.series.total())/100 {
			t.Errorf("%d requests were told to try again", n)
		}
		publish(t, &p.series, phases)
	})
}
