package splits

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
)

// gauge watches a split from below: how much is read of the source's leaves
// between two appends to the target. What has been read and not appended is
// what a drain can be holding.
type gauge struct {
	mu sync.Mutex
	// known are the partitions that had rows before the split.
	known map[string]bool
	// read counts bytes since the last append, most is its highest value.
	read, most int64
	appends    int
	stopped    bool
}

// stop ends the watch: what follows is not the drain.
func (g *gauge) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
}

type gaugedTable struct {
	store.Table
	g *gauge
}

func (x gaugedTable) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	x.g.mu.Lock()
	if strings.HasPrefix(partition, "s-") && !x.g.known[partition] {
		x.g.appends++
		x.g.read = 0
	}
	x.g.mu.Unlock()
	return x.Table.Apply(ctx, partition, ops)
}

type gaugedBlobs struct {
	store.BlobStore
	g *gauge
}

func (x gaugedBlobs) count(n int) {
	x.g.mu.Lock()
	defer x.g.mu.Unlock()
	if x.g.stopped {
		return
	}
	x.g.read += int64(n)
	x.g.most = max(x.g.most, x.g.read)
}

func (x gaugedBlobs) Get(ctx context.Context, name string) ([]byte, store.ETag, error) {
	data, etag, err := x.BlobStore.Get(ctx, name)
	x.count(len(data))
	return data, etag, err
}

func (x gaugedBlobs) GetRange(ctx context.Context, name string, offset, length int64) ([]byte, store.ETag, error) {
	data, etag, err := x.BlobStore.GetRange(ctx, name, offset, length)
	x.count(len(data))
	return data, etag, err
}

// partitions notes those that are written to.
type partitions struct {
	store.Table
	mu    sync.Mutex
	names map[string]bool
}

func (x *partitions) Apply(ctx context.Context, partition string, ops []store.Op) ([]store.ETag, error) {
	x.mu.Lock()
	x.names[partition] = true
	x.mu.Unlock()
	return x.Table.Apply(ctx, partition, ops)
}

const (
	drainBatch = 200
	drainLeaf  = 64 << 10
)

// drained splits a shard of so many entries by an instance that knows nothing
// of it yet, and returns what the gauge saw and how many entries moved.
func drained(t *testing.T, entries int) (*gauge, int64) {
	t.Helper()
	mem, src := memory.New(memory.Options{}), clock.NewSystem()
	o := options.Default()
	o.DefaultShardCount, o.SplitDrainBatchSize, o.LeafTargetBytes = 1, drainBatch, drainLeaf
	open := func(table store.Table, blobs store.BlobStore) *tree.DB {
		db, err := tree.New(tree.Config{Table: table, Blobs: blobs, Clock: src, Options: o})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	seen := &partitions{Table: mem.Table(), names: map[string]bool{}}
	db := open(seen, mem.Blobs())
	h, err := db.OpenOrCreate(t.Context(), "drain")
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, h, entries)
	g := &gauge{known: seen.names}
	cold := open(gaugedTable{mem.Table(), g}, gaugedBlobs{mem.Blobs(), g})
	h, err = cold.Open(t.Context(), "drain")
	if err != nil {
		t.Fatal(err)
	}
	drive(t, cold, h, true)
	g.stop()
	_, done, err := h.Splits(t.Context())
	if err != nil || len(done) != 1 {
		t.Fatalf("%d splits are over, %v", len(done), err)
	}
	if n, err := h.Count(t.Context(), tree.Bounds{}, tree.ReadOptions{}); err != nil || n.Total != int64(entries) {
		t.Errorf("%d of %d entries are there, %v", n.Total, entries, err)
	}
	return g, done[0].Forwarded
}

// What a drain holds in memory is a batch, however large the shard is.
func TestDrainHoldsABatchAtATime(t *testing.T) {
	sizes := []int{100_000}
	if os.Getenv("LATTICE_SOAK") != "" {
		sizes = append(sizes, 1_000_000)
	}
	for _, entries := range sizes {
		began := clock.NewSystem()
		start := began.Now().Mono
		g, moved := drained(t, entries)
		t.Logf("%8d entries: %d moved in %d appends, at most %d bytes of leaves read between two of them (%s)",
			entries, moved, g.appends, g.most, (began.Now().Mono - start).Round(time.Millisecond))
		if moved < int64(entries)*4/10 || int64(g.appends) < moved/drainBatch {
			t.Errorf("%d entries moved in %d appends: a batch is %d", moved, g.appends, drainBatch)
		}
		// A batch is of some 150 bytes each, and half of what is read moves.
		// Beside it there is a leaf of each level, and the lists of leaves.
		if bound := int64(drainBatch*2*200 + 8*drainLeaf); g.most > bound {
			t.Errorf("%d bytes were read between two appends, over %d", g.most, bound)
		}
	}
}
