// Package splits holds the tests of shard splitting against a real table: how
// long slots are refused, and that a hot tree spreads by itself.
package splits

import (
	"context"
	"fmt"
	"testing"

	"github.com/latticekv/lattice/core/clock"
	"github.com/latticekv/lattice/core/options"
	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/tree"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/tests/azurite"
)

// world is one store on the emulator, with any number of instances.
type world struct {
	emulator         *azurite.Emulator
	table, container string
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	e := azurite.Start(tb)
	return &world{emulator: e, table: e.TableName(tb), container: e.ContainerName(tb)}
}

// stores opens table and blobs as a process of its own would.
func (w *world) stores(ctx context.Context) (store.Table, store.BlobStore, error) {
	table, err := azuretable.New(ctx, azuretable.Options{ConnectionString: w.emulator.ConnectionString(), TableName: w.table})
	if err != nil {
		return nil, nil, err
	}
	blobs, err := blob.New(ctx, blob.Options{ConnectionString: w.emulator.ConnectionString(), Container: w.container})
	return table, blobs, err
}

// instance opens the store.
func (w *world) instance(tb testing.TB, edit func(*options.Options)) *tree.DB {
	tb.Helper()
	table, blobs, err := w.stores(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	o := options.Default()
	edit(&o)
	db, err := tree.New(tree.Config{Table: table, Blobs: blobs, Clock: clock.NewSystem(), Options: o})
	if err != nil {
		tb.Fatal(err)
	}
	return db
}

func keyOf(i int) string { return fmt.Sprintf("key-%08d", i) }
