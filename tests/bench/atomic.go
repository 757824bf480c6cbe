package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/providers/memory"
)

// atomicBatches measures atomic batches of several sizes over four shards, and
// scans of a snapshot beside scans of the live tree, in memory and on Azurite.
func atomicBatches(ctx context.Context, s *settings, out io.Writer) error {
	fmt.Fprintf(out, "\n| atomic batches | keys | clients | batches/s | p50, ms | |\n|---|---:|---:|---:|---:|---|\n")
	m := memory.New(memory.Options{})
	if err := atomicOn(ctx, s, out, "in process, memory", m.Table(), m.Blobs(), 1); err != nil {
		return err
	}
	at, err := azurite.Install(ctx, ".")
	if err != nil {
		return err
	}
	emulator, err := azurite.Start(ctx, azurite.Options{Program: at})
	if err != nil {
		return err
	}
	defer emulator.Stop()
	table, blobs, err := emulated(ctx, emulator.ConnectionString(), "atomic")
	if err != nil {
		return err
	}
	if err := atomicOn(ctx, s, out, "in process, Azurite", table, blobs, 16); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n| scan of %d entries | live, entries/s | snapshot, entries/s |\n|---|---:|---:|\n", s.keys*20)
	m = memory.New(memory.Options{})
	if err := scansOn(ctx, s, out, "in process, memory", m.Table(), m.Blobs()); err != nil {
		return err
	}
	if table, blobs, err = emulated(ctx, emulator.ConnectionString(), "scans"); err != nil {
		return err
	}
	return scansOn(ctx, s, out, "in process, Azurite", table, blobs)
}

// atomicExpected is the time that a batch of 16 keys over 4 shards may take in
// memory.
const atomicExpected = 100 * time.Microsecond

// atomicOn measures batches on one store.
func atomicOn(ctx context.Context, s *settings, out io.Writer, name string, table store.Table, blobs store.BlobStore, clients int) (err error) {
	t, finish, err := openBulkTree(ctx, table, blobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	for _, n := range []int{2, 16, 64} {
		for _, c := range slices.Compact([]int{1, clients}) {
			times, err := batchesOf(ctx, s, t, n, c)
			if err != nil {
				return err
			}
			p50 := times[len(times)/2]
			remark := ""
			if n == 16 && name == "in process, memory" {
				remark = fmt.Sprintf("at most %s: %s", atomicExpected, verdict(float64(atomicExpected)/float64(p50), 1))
			}
			fmt.Fprintf(out, "| %s | %d | %d | %.0f | %.3f | %s |\n", name, n, c, float64(len(times))/s.duration.Seconds(), milliseconds(p50), remark)
		}
	}
	return nil
}

// batchesOf lets clients write batches of n keys of their own for a while, and
// returns how long each took, sorted.
func batchesOf(ctx context.Context, s *settings, t *tree.Tree, n, clients int) ([]time.Duration, error) {
	var (
		mu  sync.Mutex
		all []time.Duration
	)
	begin := time.Now().Add(s.warmup)
	end := begin.Add(s.duration)
	g, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		g.Go(func() error {
			ops := make([]tree.BatchOp, n)
			next := values(s.seed+uint64(c), s.valueBytes)
			for i := range ops {
				ops[i].Key = fmt.Sprintf("batch-%03d-%03d-%03d", n, c, i)
			}
			var times []time.Duration
			for time.Now().Before(end) {
				for i := range ops {
					ops[i].Value = next()
				}
				start := time.Now()
				if _, err := t.AtomicBatch(ctx, ops, ""); err != nil {
					return err
				}
				if start.After(begin) {
					times = append(times, time.Since(start))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, times...)
			return nil
		})
	}
	err := g.Wait()
	slices.Sort(all)
	if err == nil && len(all) == 0 {
		err = errors.New("no batch ended in time")
	}
	return all, err
}

// scansOn measures scans on one store.
func scansOn(ctx context.Context, s *settings, out io.Writer, name string, table store.Table, blobs store.BlobStore) (err error) {
	t, finish, err := openBulkTree(ctx, table, blobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	entries := s.keys * 20
	if err := loadAll(ctx, t.BulkLoad, makeEntries(s, entries, false)); err != nil {
		return err
	}
	live, err := scanRate(s, entries, func() (int, error) {
		n := 0
		_, err := t.Stream(ctx, tree.ScanQuery{}, func(*tree.Item) error { n++; return nil })
		return n, err
	})
	if err != nil {
		return err
	}
	snapshot, err := scanRate(s, entries, func() (int, error) { return snapshotScan(ctx, t) })
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| %s | %.0f | %.0f |\n", name, live, snapshot)
	return nil
}

// snapshotScan opens a snapshot, reads it to the end, and closes it.
func snapshotScan(ctx context.Context, t *tree.Tree) (n int, err error) {
	c, err := t.OpenCursor(ctx, tree.CursorQuery{Kind: tree.CursorEntries, Snapshot: true})
	if err != nil {
		return 0, err
	}
	for more := true; more; {
		p, err := t.NextPage(ctx, c.ID, tree.PageQuery{Limit: 10_000})
		if err != nil {
			return n, err
		}
		n, more = n+len(p.Items), p.HasMore
	}
	return n, t.CloseCursor(ctx, c.ID)
}

// scanRate repeats a scan for a while and returns how many entries a second it
// read.
func scanRate(s *settings, entries int, scan func() (int, error)) (float64, error) {
	start, total := time.Now(), 0
	for time.Since(start) < s.duration {
		n, err := scan()
		if err == nil && n != entries {
			err = fmt.Errorf("a scan found %d of %d entries", n, entries)
		}
		if err != nil {
			return 0, err
		}
		total += n
	}
	return float64(total) / time.Since(start).Seconds(), nil
}
