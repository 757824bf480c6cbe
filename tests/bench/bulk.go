package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/migrate/durable"
	"github.com/latticekv/lattice/migrate/spool"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/providers/bolt"
)

// bulk measures loads: one-shot on Azurite beside transactions of the plain
// client, a stream on bolt, and the sorting of keys for a migration; with the
// memory that each took.
func bulk(ctx context.Context, s *settings, out io.Writer) error {
	fmt.Fprintf(out, "\n| load | entries | seconds | entries/s | memory over the start, MiB | |\n|---|---:|---:|---:|---:|---|\n")
	if err := bulkOnAzurite(ctx, s, out); err != nil {
		return err
	}
	if err := streamOnBolt(ctx, s, out); err != nil {
		return err
	}
	return sortKeys(ctx, s, out)
}

const (
	// bulkShare is how many times as fast as the plain client a one-shot load is
	// to be, bulkMemory the MiB that it and a sort may take.
	bulkShare  = 50
	bulkMemory = 256
)

// loaded is the outcome of one load.
type loaded struct {
	name    string
	entries int
	took    time.Duration
	memory  int64 // bytes
}

func (l loaded) rate() float64 { return float64(l.entries) / l.took.Seconds() }

func (l loaded) print(out io.Writer, remark string) {
	fmt.Fprintf(out, "| %s | %d | %.1f | %.0f | %d | %s |\n", l.name, l.entries, l.took.Seconds(), l.rate(), l.memory>>20, remark)
}

// measured times f and watches the memory of the process meanwhile.
func measured(name string, entries int, f func() error) (loaded, error) {
	before, peak := resident(), int64(0)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			peak = max(peak, resident())
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	}()
	start := time.Now()
	err := f()
	took := time.Since(start)
	close(done)
	<-watched
	return loaded{name: name, entries: entries, took: took, memory: peak - before}, err
}

// resident is the memory that the process has, as the system counts it, or, where
// that is not told, as the runtime does.
func resident() int64 {
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(data)); len(fields) > 1 {
			if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return pages * int64(os.Getpagesize())
			}
		}
	}
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// made yields entries without keeping them: keys in order or in a fixed disorder,
// values that do not compress.
type made struct {
	n, at   int
	mixed   bool
	value   int
	rng     *rand.Rand
	scratch []byte
}

func makeEntries(s *settings, n int, mixed bool) *made {
	return &made{n: n, mixed: mixed, value: s.valueBytes, rng: rand.New(rand.NewPCG(s.seed, 9))}
}

// disorder is coprime to every number of entries that is not a multiple of it, so
// that stepping by it visits all of them.
const disorder = 7_368_787

func (m *made) key(i int) string {
	if m.mixed {
		i = int(uint64(i) * disorder % uint64(m.n))
	}
	return fmt.Sprintf("key-%010d", i)
}

// Next implements tree.BulkSource.
func (m *made) Next(_ context.Context, e *tree.BulkEntry) error {
	if m.at == m.n {
		return io.EOF
	}
	if len(m.scratch) < m.value {
		m.scratch = make([]byte, m.value+8)
	}
	for i := 0; i < m.value; i += 8 {
		binary.LittleEndian.PutUint64(m.scratch[i:], m.rng.Uint64())
	}
	e.Key, e.Value = m.key(m.at), m.scratch[:m.value]
	m.at++
	return nil
}

// bulkOnAzurite loads once with the plain client, which takes a share of the
// entries, and once with ours.
func bulkOnAzurite(ctx context.Context, s *settings, out io.Writer) error {
	at, err := azurite.Install(ctx, ".")
	if err != nil {
		return err
	}
	emulator, err := azurite.Start(ctx, azurite.Options{Program: at})
	if err != nil {
		return err
	}
	defer emulator.Stop()
	share := max(s.bulkEntries/20, 100)
	plain, err := measured("plain aztables, transactions of 100", share, func() error {
		return plainTransactions(ctx, emulator.ConnectionString(), makeEntries(s, share, false))
	})
	if err != nil {
		return err
	}
	plain.print(out, "")
	for i, mixed := range []bool{false, true} {
		name := "one-shot in process, Azurite, in order"
		if mixed {
			name = "one-shot in process, Azurite, in disorder"
		}
		t, finish, err := bulkTree(ctx, emulator.ConnectionString(), fmt.Sprintf("bulk%d", i))
		if err != nil {
			return err
		}
		l, err := measured(name, s.bulkEntries, func() error { return loadAll(ctx, t.BulkLoad, makeEntries(s, s.bulkEntries, mixed)) })
		if err = errors.Join(err, finish()); err != nil {
			return err
		}
		l.print(out, fmt.Sprintf("%.0f x plain (%s), at most %d MiB", l.rate()/plain.rate(), verdict(l.rate()/plain.rate(), bulkShare), bulkMemory))
	}
	return nil
}

// plainTransactions is how the users of the SDK load in bulk: transactions of as
// many entities as one takes, eight at a time.
func plainTransactions(ctx context.Context, connection string, m *made) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 64
	defer transport.CloseIdleConnections()
	service, err := aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: transport}},
	})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, err := service.CreateTable(ctx, "plainbulk", nil); err != nil {
		return fmt.Errorf("create a table: %w", err)
	}
	table := service.NewClient("plainbulk")
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for p := 0; m.at < m.n; p++ {
		actions, err := m.actions(fmt.Sprintf("p%02d", p%16))
		if err != nil {
			return err
		}
		g.Go(func() error {
			_, err := table.SubmitTransaction(gctx, actions, nil)
			return err
		})
	}
	return g.Wait()
}

// actions makes one transaction of the next entries.
func (m *made) actions(partition string) ([]aztables.TransactionAction, error) {
	var actions []aztables.TransactionAction
	var e tree.BulkEntry
	for len(actions) < store.MaxTransactionOps && m.Next(context.Background(), &e) == nil {
		entity, err := json.Marshal(aztables.EDMEntity{
			Entity:     aztables.Entity{PartitionKey: partition, RowKey: e.Key},
			Properties: map[string]any{"Value": aztables.EDMBinary(e.Value)},
		})
		if err != nil {
			return nil, err
		}
		actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeInsertReplace, Entity: entity})
	}
	return actions, nil
}

// bulkTree makes an empty tree of four shards on the emulator.
func bulkTree(ctx context.Context, connection, id string) (*tree.Tree, func() error, error) {
	table, blobs, err := emulated(ctx, connection, id)
	if err != nil {
		return nil, nil, err
	}
	return openBulkTree(ctx, table, blobs)
}

// emulated opens a store of its own on the emulator.
func emulated(ctx context.Context, connection, id string) (store.Table, store.BlobStore, error) {
	table, err := azuretable.New(ctx, azuretable.Options{ConnectionString: connection, TableName: id})
	if err != nil {
		return nil, nil, fmt.Errorf("open the table: %w", err)
	}
	blobs, err := blob.New(ctx, blob.Options{ConnectionString: connection, Container: id})
	if err != nil {
		return nil, nil, fmt.Errorf("open the container: %w", err)
	}
	return table, blobs, nil
}

func openBulkTree(ctx context.Context, table store.Table, blobs store.BlobStore) (*tree.Tree, func() error, error) {
	o := options.Default()
	db, err := tree.New(tree.Config{Table: table, Blobs: blobs, Clock: clock.NewSystem(), Options: o})
	if err != nil {
		return nil, nil, err
	}
	t, err := db.OpenOrCreate(ctx, "bench")
	if err != nil {
		return nil, nil, err
	}
	stop := maintain(db, &o)
	return t, func() error { return errors.Join(stop(), db.Close(ctx)) }, nil
}

// loadAll loads, and checks that all is there.
func loadAll(ctx context.Context, load func(context.Context, tree.BulkSource, tree.BulkOptions) (tree.BulkResult, error), m *made) error {
	r, err := load(ctx, m, tree.BulkOptions{})
	if err == nil && (r.Accepted != int64(m.n) || r.TotalLiveKeys != int64(m.n)) {
		err = fmt.Errorf("%d entries accepted, %d live, %d given", r.Accepted, r.TotalLiveKeys, m.n)
	}
	return err
}

// streamOnBolt loads streams of two lengths into folders: the longer one must not
// take more memory.
func streamOnBolt(ctx context.Context, s *settings, out io.Writer) error {
	for _, n := range []int{max(s.streamEntries/10, 1), s.streamEntries} {
		l, err := streamOnce(ctx, s, n)
		if err != nil {
			return err
		}
		l.print(out, "constant memory")
	}
	return nil
}

func streamOnce(ctx context.Context, s *settings, n int) (l loaded, err error) {
	folder, err := os.MkdirTemp("", "lattice-bench-")
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	st, err := bolt.Open(folder, bolt.Options{})
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	t, finish, err := openBulkTree(ctx, st.Table(), st.Blobs())
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, finish()) }()
	return measured("stream in process, bolt", n, func() error { return loadAll(ctx, t.BulkStream, makeEntries(s, n, false)) })
}

// sortKeys sorts entries on disk as a migration does, keys in disorder.
func sortKeys(ctx context.Context, s *settings, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "lattice-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	dir, err := durable.Open(folder, nil)
	if err != nil {
		return err
	}
	sp, err := spool.Open(dir, 0, spool.Options{})
	if err != nil {
		return err
	}
	m := makeEntries(s, s.streamEntries, true)
	l, err := measured("external sort of keys", m.n, func() error { return sortAll(ctx, sp, m) })
	if err != nil {
		return err
	}
	l.print(out, fmt.Sprintf("at most %d MiB", bulkMemory))
	return nil
}

func sortAll(ctx context.Context, sp *spool.Spool, m *made) error {
	for i := range m.n {
		if err := sp.Add(&spool.Entry{Key: m.key(i), Value: []byte("v")}); err != nil {
			return err
		}
	}
	if _, err := sp.Checkpoint(); err != nil {
		return err
	}
	n, last := 0, ""
	for e, err := range sp.Sorted(ctx, "") {
		if err != nil {
			return err
		}
		if e.Key <= last {
			return fmt.Errorf("key %q after %q", e.Key, last)
		}
		n, last = n+1, e.Key
	}
	if n != m.n {
		return fmt.Errorf("%d keys sorted, %d given", n, m.n)
	}
	return nil
}
