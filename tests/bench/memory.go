package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/memory"
)

// upkeepEvery is the number of values written between two rounds of what the
// schedule does, which is not measured.
const upkeepEvery = 5000

// inMemory measures what the code itself costs: one thread, on memory.
func inMemory(ctx context.Context, s *settings, out io.Writer) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fmt.Fprintf(out, "\none thread on the memory provider, 4 shards, %d keys, values of %d bytes, seed %d\n\n", s.keys, s.valueBytes, s.seed)
	fmt.Fprintln(out, "| operation                 |    time µs |    bytes | allocations | expected |")
	fmt.Fprintln(out, "|:--------------------------|-----------:|---------:|------------:|:---------|")
	for _, leases := range []bool{true, false} {
		for _, c := range []struct {
			name   string
			expect time.Duration
			run    func(b *testing.B, m *inMemoryTree)
		}{
			{"get", 1500 * time.Nanosecond, getOne},
			{"put", 5 * time.Microsecond, putOne},
			{"batch of 1000", time.Millisecond, putMany},
		} {
			m, err := newInMemoryTree(ctx, s, leases)
			if err != nil {
				return err
			}
			r := testing.Benchmark(func(b *testing.B) { c.run(b, m) })
			if m.err != nil {
				return fmt.Errorf("%s: %w", c.name, m.err)
			}
			if !leases {
				c.expect = 0 // every read and write asks the storage: reported, not judged
			}
			printCost(out, c.name+leaseName(leases), r, c.expect)
		}
	}
	return nil
}

func printCost(out io.Writer, name string, r testing.BenchmarkResult, expect time.Duration) {
	took := time.Duration(r.NsPerOp())
	word := ""
	if expect > 0 {
		word = fmt.Sprintf("≤ %g: pass", float64(expect)/1000)
	}
	if expect > 0 && took > expect {
		word = fmt.Sprintf("≤ %g: short", float64(expect)/1000)
	}
	fmt.Fprintf(out, "| %-25s | %10.3f | %8d | %11d | %s |\n", name,
		float64(took)/1000, r.AllocedBytesPerOp(), r.AllocsPerOp(), word)
}

// inMemoryTree is a tree that holds all keys.
type inMemoryTree struct {
	ctx   context.Context
	db    *tree.DB
	tree  *tree.Tree
	keys  []string
	value []byte
	since int
	err   error
}

func newInMemoryTree(ctx context.Context, s *settings, leases bool) (*inMemoryTree, error) {
	store := memory.New(memory.Options{})
	o := options.Default()
	o.Leases = leases
	o.WalGracePeriod, o.BlobGracePeriod = time.Millisecond, time.Second
	db, err := tree.New(tree.Config{Table: store.Table(), Blobs: store.Blobs(), Clock: clock.NewSystem(), Options: o})
	if err != nil {
		return nil, err
	}
	t, err := db.OpenOrCreate(ctx, "bench")
	if err != nil {
		return nil, err
	}
	m := &inMemoryTree{ctx: ctx, db: db, tree: t, keys: keyNames(s.keys), value: values(s.seed, s.valueBytes)()}
	for start := 0; start < len(m.keys) && err == nil; start += 1000 {
		_, err = t.Batch(ctx, m.batch(start))
	}
	return m, err
}

func (m *inMemoryTree) batch(start int) []tree.BatchOp {
	ops := make([]tree.BatchOp, min(1000, len(m.keys)))
	for i := range ops {
		ops[i] = tree.BatchOp{Key: m.keys[(start+i)%len(m.keys)], Value: m.value}
	}
	return ops
}

func getOne(b *testing.B, m *inMemoryTree) {
	for i := 0; b.Loop(); i++ {
		if err := present(m.tree.Get(m.ctx, m.keys[i%len(m.keys)], tree.ReadOptions{})); err != nil {
			m.fail(b, err)
		}
	}
}

func putOne(b *testing.B, m *inMemoryTree) {
	for i := 0; b.Loop(); i++ {
		if _, err := m.tree.Put(m.ctx, m.keys[i%len(m.keys)], m.value, tree.PutOptions{}); err != nil {
			m.fail(b, err)
		}
		m.upkeep(b, 1)
	}
}

func putMany(b *testing.B, m *inMemoryTree) {
	ops := m.batch(0)
	for b.Loop() {
		if _, err := m.tree.Batch(m.ctx, ops); err != nil {
			m.fail(b, err)
		}
		m.upkeep(b, len(ops))
	}
}

func (m *inMemoryTree) fail(b *testing.B, err error) {
	m.err = err
	b.FailNow()
}

// upkeep does outside the measured time what the schedule does.
func (m *inMemoryTree) upkeep(b *testing.B, written int) {
	if m.since += written; m.since < upkeepEvery {
		return
	}
	m.since = 0
	b.StopTimer()
	defer b.StartTimer()
	_, err := m.db.Checkpoint(m.ctx, 0)
	if err == nil {
		_, err = m.db.Collect(m.ctx, 0)
	}
	if err != nil {
		m.fail(b, err)
	}
}
