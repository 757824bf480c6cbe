package splits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/split"
	"github.com/latticekv/lattice/core/tree"
)

// sizes are the numbers of entries of the shard that is split. The largest is
// for the long run.
func sizes() []int {
	if os.Getenv("LATTICE_SOAK") != "" {
		return []int{1_000, 100_000, 1_000_000}
	}
	return []int{1_000, 100_000}
}

// The time in which moved slots are refused, from the seal to the move of the
// map, does not depend on how much the shard holds: what it holds is carried
// over before.
func TestWindowDoesNotGrowWithTheShard(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Azurite")
	}
	w := newWorld(t)
	var medians []time.Duration
	for _, entries := range sizes() {
		windows, stall := measure(t, w, entries)
		slices.Sort(windows)
		median, worst := windows[len(windows)/2], windows[len(windows)-1]
		t.Logf("%8d entries: %d splits, slots refused for %s (median), %s (worst); longest wait of a client %s", entries, len(windows), median, worst, stall)
		medians = append(medians, median)
	}
	// Generous bounds: this may run beside other tests on a small machine.
	if first, last := medians[0], medians[len(medians)-1]; last > 10*first+time.Second {
		t.Errorf("slots are refused for %s in a small shard and %s in a large one", first, last)
	}
}

// measure fills a tree of one shard, and splits one shard after another while
// 500 writes a second go on.
func measure(t *testing.T, w *world, entries int) (windows []time.Duration, stall time.Duration) {
	t.Helper()
	db := w.instance(t, func(o *options.Options) { o.DefaultShardCount = 1 })
	name := fmt.Sprint("window-", entries)
	h, err := db.OpenOrCreate(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, h, entries)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	longest := writeOn(ctx, t, h, entries, 500)
	const splits = 3
	for source := range splits {
		drive(t, db, h, source == 0)
	}
	cancel()
	stall = longest()
	_, done, err := h.Splits(t.Context())
	if err != nil || len(done) != splits {
		t.Fatalf("%d splits are over, %v", len(done), err)
	}
	for _, s := range done {
		windows = append(windows, s.Durations()[split.PhaseSwap.String()])
	}
	if n, err := h.Count(t.Context(), tree.Bounds{}, tree.ReadOptions{}); err != nil || n.Total != int64(entries) {
		t.Errorf("the count is %d of %d, %v", n.Total, entries, err)
	}
	return windows, stall
}

// fill writes entries whose values do not compress, so that the shard is as
// large as it looks.
func fill(t *testing.T, db *tree.DB, h *tree.Tree, entries int) {
	t.Helper()
	chance := rand.NewChaCha8([32]byte{1})
	for start := 0; start < entries; start += 5000 {
		var ops []tree.BatchOp
		for i := start; i < min(start+5000, entries); i++ {
			value := make([]byte, 100)
			_, _ = chance.Read(value)
			ops = append(ops, tree.BatchOp{Key: keyOf(i), Value: value})
		}
		if _, err := h.Batch(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Checkpoint(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// writeOn overwrites keys at a rate until ctx ends; the function it returns
// waits for that and tells the longest time that one write took.
func writeOn(ctx context.Context, t *testing.T, h *tree.Tree, entries, perSecond int) func() time.Duration {
	var (
		wg      sync.WaitGroup
		longest atomic.Int64
	)
	const clients = 20
	for c := range clients {
		wg.Go(func() {
			tick := time.NewTicker(time.Second * clients / time.Duration(perSecond))
			defer tick.Stop()
			for i := c; ; i += clients {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				start := time.Now()
				_, err := h.Put(context.WithoutCancel(ctx), keyOf(i*7919%entries), []byte("overwritten"), tree.PutOptions{})
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				took := int64(time.Since(start))
				for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
				}
			}
		})
	}
	return func() time.Duration { wg.Wait(); return time.Duration(longest.Load()) }
}

// drive splits the shard with the most slots, and sees it through.
func drive(t *testing.T, db *tree.DB, h *tree.Tree, first bool) {
	t.Helper()
	owners := h.ShardMap().Shards()
	source := owners[len(owners)-1]
	if first {
		source = owners[0]
	}
	if _, err := h.BeginSplit(t.Context(), source, "test"); err != nil {
		t.Fatal(err)
	}
	for range 600 {
		if _, err := db.Migrations(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		active, _, err := h.Splits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(active) == 0 {
			return
		}
	}
	t.Fatal("the split does not end")
}
