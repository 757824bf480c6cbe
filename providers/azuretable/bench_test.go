package azuretable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/providers/internal/azhttp"
	"github.com/latticekv/lattice/tests/azurite"
)

var clientCounts = []int{1, 16, 64, 256}

// each runs b.N calls of work on several goroutines, each with its own number.
func each(b *testing.B, clients int, work func(client, i int) error) {
	b.Helper()
	var next atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for c := range clients {
		wait.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				if err := work(c, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

var runs atomic.Int64

// freshParts returns a partition for each client that no run before has used.
func freshParts() func(client int) string {
	run := runs.Add(1)
	return func(c int) string { return fmt.Sprintf("part%d-%d", run, c) }
}

// BenchmarkAppend is the append of a log: insert a row and replace the head, one
// partition a client.
func BenchmarkAppend(b *testing.B) {
	table := open(b, azurite.Shared(b))
	data := make([]byte, 200)
	for _, n := range clientCounts {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			heads := make([]store.ETag, n)
			part := freshParts()
			for c := range heads {
				etags, err := table.Apply(b.Context(), part(c), []store.Op{store.Insert("head", data)})
				if err != nil {
					b.Fatal(err)
				}
				heads[c] = etags[0]
			}
			each(b, n, func(c, i int) error {
				etags, err := table.Apply(b.Context(), part(c), []store.Op{
					store.Insert(fmt.Sprintf("%012d", i), data), store.Replace("head", data, heads[c]),
				})
				if err == nil {
					heads[c] = etags[1]
				}
				return err
			})
		})
	}
}

// BenchmarkAppendSDK does the same with the client of the SDK, for comparison.
// That one returns no ETags of a transaction, so the head is matched by any.
func BenchmarkAppendSDK(b *testing.B) {
	client := sdkClient(b, azurite.Shared(b))
	data := make([]byte, 200)
	entity := func(part, key string) []byte {
		raw, err := json.Marshal(aztables.EDMEntity{
			Entity:     aztables.Entity{PartitionKey: part, RowKey: key},
			Properties: map[string]any{"P0": aztables.EDMBinary(data)},
		})
		if err != nil {
			b.Fatal(err)
		}
		return raw
	}
	for _, n := range clientCounts {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			part := freshParts()
			for c := range n {
				if _, err := client.AddEntity(b.Context(), entity(part(c), "head"), nil); err != nil {
					b.Fatal(err)
				}
			}
			each(b, n, func(c, i int) error {
				_, err := client.SubmitTransaction(b.Context(), []aztables.TransactionAction{
					{ActionType: aztables.TransactionTypeAdd, Entity: entity(part(c), fmt.Sprintf("%012d", i))},
					{ActionType: aztables.TransactionTypeUpdateReplace, Entity: entity(part(c), "head"), IfMatch: to.Ptr(azcore.ETagAny)},
				}, nil)
				return err
			})
		})
	}
}

func sdkClient(b *testing.B, e *azurite.Emulator) *aztables.Client {
	b.Helper()
	options := &aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: azhttp.NewTransport()}}
	service, err := aztables.NewServiceClientFromConnectionString(e.ConnectionString(), options)
	if err != nil {
		b.Fatal(err)
	}
	name := e.TableName(b)
	if _, err := service.CreateTable(b.Context(), name, nil); err != nil {
		b.Fatal(err)
	}
	return service.NewClient(name)
}

// BenchmarkInsert is a transaction of one operation.
func BenchmarkInsert(b *testing.B) {
	table := open(b, azurite.Shared(b))
	data := make([]byte, 200)
	for _, n := range clientCounts {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			part := freshParts()
			each(b, n, func(c, i int) error {
				_, err := table.Apply(b.Context(), part(c), []store.Op{store.Insert(fmt.Sprintf("%012d", i), data)})
				return err
			})
		})
	}
}

// BenchmarkRange reads the head and the latest rows of a log, as a strong read
// does.
func BenchmarkRange(b *testing.B) {
	for _, rows := range []int{1, 100} {
		table, part := filled(b, rows)
		for _, n := range clientCounts {
			b.Run(fmt.Sprintf("rows=%d/clients=%d", rows, n), func(b *testing.B) {
				b.ReportAllocs()
				each(b, n, func(int, int) error { return readRows(b.Context(), table, part, rows) })
			})
		}
	}
}

func filled(b *testing.B, rows int) (*azuretable.Table, string) {
	b.Helper()
	table := open(b, azurite.Shared(b))
	ops := make([]store.Op, rows)
	for i := range ops {
		ops[i] = store.Insert(fmt.Sprintf("%012d", i), make([]byte, 1000))
	}
	if _, err := table.Apply(b.Context(), "log", ops); err != nil {
		b.Fatal(err)
	}
	return table, "log"
}

func readRows(ctx context.Context, table store.Table, part string, want int) error {
	page, err := table.Range(ctx, part, store.RangeQuery{From: "0"})
	if err == nil && len(page.Rows) != want {
		return fmt.Errorf("%d rows, want %d", len(page.Rows), want)
	}
	return err
}

// BenchmarkGet is a point query.
func BenchmarkGet(b *testing.B) {
	table, part := filled(b, 100)
	for _, n := range clientCounts {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			each(b, n, func(_, i int) error {
				_, err := table.Get(b.Context(), part, fmt.Sprintf("%012d", i%100))
				return err
			})
		})
	}
}
