package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/client"
	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/tree"
)

// subject is one way to keep keys and values on the emulator.
type subject struct {
	name     string
	put, get operation
	// close ends it.
	close func() error
}

var errMissing = errors.New("a key that was written is missing")

// plain is the client of the SDK as its users have it, with connections enough
// for all of them: one request for each operation.
func plain(ctx context.Context, connection string, value func() []byte) (*subject, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 512
	service, err := aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: transport}},
	})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := service.CreateTable(ctx, "plain", nil); err != nil {
		return nil, fmt.Errorf("create a table: %w", err)
	}
	table := service.NewClient("plain")
	return &subject{
		name: "plain aztables",
		put: func(ctx context.Context, key string) error {
			entity, err := json.Marshal(aztables.EDMEntity{
				Entity:     aztables.Entity{PartitionKey: partition(key), RowKey: key},
				Properties: map[string]any{"Value": aztables.EDMBinary(value())},
			})
			if err != nil {
				return err
			}
			_, err = table.UpsertEntity(ctx, entity, nil)
			return err
		},
		get: func(ctx context.Context, key string) error {
			answer, err := table.GetEntity(ctx, partition(key), key, nil)
			if err != nil {
				return err
			}
			var entity aztables.EDMEntity
			if err := json.Unmarshal(answer.Value, &entity); err != nil {
				return err
			}
			if _, ok := entity.Properties["Value"]; !ok {
				return errMissing
			}
			return nil
		},
		close: func() error {
			transport.CloseIdleConnections()
			return nil
		},
	}, nil
}

// partition spreads the entities of the plain client over some partitions.
func partition(key string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // it never fails
	return fmt.Sprintf("p%02d", h.Sum32()%16)
}

// inProcess is a DB of this process on the emulator, with the maintenance that
// a service has.
func inProcess(ctx context.Context, connection, id string, shards int, leases bool, value func() []byte) (*subject, error) {
	table, blobs, err := emulated(ctx, connection, id)
	if err != nil {
		return nil, err
	}
	o := options.Default()
	o.Leases = leases
	db, err := tree.New(tree.Config{Table: table, Blobs: blobs, Clock: clock.NewSystem(), Options: o})
	if err != nil {
		return nil, err
	}
	if _, _, err := db.Create(ctx, "bench", tree.CreateOptions{ShardCount: shards}); err != nil {
		return nil, fmt.Errorf("create the tree: %w", err)
	}
	t, err := db.OpenOrCreate(ctx, "bench")
	if err != nil {
		return nil, err
	}
	stop := maintain(db, &o)
	name := fmt.Sprintf("in process, %d shards", shards)
	if shards == 1 {
		name = "in process, 1 shard"
	}
	return &subject{
		name:  name + leaseName(leases),
		put:   func(ctx context.Context, key string) error { return drop(t.Put(ctx, key, value(), tree.PutOptions{})) },
		get:   func(ctx context.Context, key string) error { return present(t.Get(ctx, key, tree.ReadOptions{})) },
		close: func() error { return errors.Join(stop(), db.Close(ctx)) },
	}, nil
}

func leaseName(leases bool) string {
	if leases {
		return ", leases on"
	}
	return ", leases off"
}

func drop(_ tree.PutResult, err error) error { return err }

func present(_ tree.Item, ok bool, err error) error {
	if err == nil && !ok {
		return errMissing
	}
	return err
}

// maintain runs the ticks of a service until the function it returns is called.
func maintain(db *tree.DB, o *options.Options) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	every := func(interval time.Duration, tick func(context.Context, time.Duration) (tree.Report, error)) {
		all.Go(func() {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				if _, err := tick(ctx, 0); err != nil && ctx.Err() == nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	every(o.CheckpointInterval, db.Checkpoint)
	every(o.CollectInterval, db.Collect)
	return func() error {
		cancel()
		all.Wait()
		return failed
	}
}

// overHTTP is a process of the service and the project's own client.
func overHTTP(ctx context.Context, connection, id string, leases bool, value func() []byte) (*subject, error) {
	p, err := launch(ctx, connection, id, leases)
	if err != nil {
		return nil, err
	}
	c, err := client.New(p.url, client.Options{})
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	t := c.Tree("bench")
	if _, err := t.Create(ctx, client.CreateOptions{ShardCount: 4}); err != nil {
		return nil, errors.Join(fmt.Errorf("create the tree: %w", err), p.stop())
	}
	return &subject{
		name: "over HTTP, 4 shards" + leaseName(leases),
		put: func(ctx context.Context, key string) error {
			_, err := t.Set(ctx, key, value(), client.SetOptions{})
			return err
		},
		get: func(ctx context.Context, key string) error {
			_, err := t.Get(ctx, key, client.ReadOptions{})
			return err
		},
		close: p.stop,
	}, nil
}
