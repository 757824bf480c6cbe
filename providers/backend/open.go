package backend

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/azuretable"
	"github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/providers/bolt"
	"github.com/latticekv/lattice/providers/memory"
)

// Backend is an open table and blob store.
type Backend struct {
	Table store.Table
	Blobs store.BlobStore
	// Description says where the state is, without secrets.
	Description string
	// Exclusive says that no other process can have the same state open.
	Exclusive bool

	close func() error
}

// Close gives the stores back. Nothing may use them any more.
func (b *Backend) Close() error {
	if b.close == nil {
		return nil
	}
	return b.close()
}

// Open opens what the configuration names, finds out that it answers, and creates
// what does not exist. An error says what to do about it, and never tells a key.
// The context bounds the opening alone.
func Open(ctx context.Context, c Config) (*Backend, error) { return open(ctx, c, false) }

// OpenLazily opens what the configuration names without asking a storage account
// anything, for hosts on which a request waits for the start: table and container
// are created by the first write that misses them, and a storage that does not
// answer is found out by the first request, and by /readyz. For the other stores it
// is Open.
func OpenLazily(ctx context.Context, c Config) (*Backend, error) { return open(ctx, c, true) }

func open(ctx context.Context, c Config, lazy bool) (*Backend, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	switch c.Store {
	case Memory:
		s := memory.New(memory.Options{})
		return &Backend{Table: s.Table(), Blobs: s.Blobs(), Description: "memory, lost at the end", Exclusive: true}, nil
	case Azurite:
		return openAzurite(ctx, c, lazy)
	case Azure:
		return openAccount(ctx, c, lazy)
	}
	return openBolt(c)
}

func openBolt(c Config) (*Backend, error) {
	s, err := bolt.Open(c.DataDir, bolt.Options{})
	if errors.Is(err, bolt.ErrInUse) {
		return nil, fmt.Errorf("data folder %s is in use by another process; stop it, or choose another with --data-dir: %w", c.DataDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open data folder %s: %w", c.DataDir, err)
	}
	return &Backend{
		Table: s.Table(), Blobs: s.Blobs(), Description: "bolt in " + c.DataDir, Exclusive: true,
		close: s.Close,
	}, nil
}

// openAzurite uses the emulator of the connection string if there is one, else
// the one at the default ports, which it starts if it is not there.
func openAzurite(ctx context.Context, c Config, lazy bool) (*Backend, error) {
	if c.ConnectionString != "" {
		return openAccount(ctx, c, lazy)
	}
	address, server, err := azurite.Default(ctx, filepath.Join(c.DataDir, "azurite"))
	if err != nil {
		return nil, err
	}
	c.ConnectionString = address
	b, err := openAccount(ctx, c, lazy)
	if server == nil {
		return b, err
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	b.Description += ", started for this process"
	b.close = func() error {
		server.Stop()
		return nil
	}
	return b, nil
}

func openAccount(ctx context.Context, c Config, lazy bool) (*Backend, error) {
	tableOptions := azuretable.Options{ConnectionString: c.ConnectionString, TableName: c.TableName, Lazy: lazy}
	blobOptions := blob.Options{ConnectionString: c.ConnectionString, Container: c.ContainerName, Lazy: true, Fixed: true}
	ends, err := c.authenticate(&tableOptions, &blobOptions)
	if err != nil {
		return nil, err
	}
	blobs, err := blob.New(ctx, blobOptions)
	if err != nil {
		return nil, c.explain("open container "+c.ContainerName, err)
	}
	// Both are made together, at the very beginning: one that is missing beside the
	// other was lost, and must not be taken for a fresh store.
	tableOptions.Unused, tableOptions.Prepare = blobs.Unused, blobs.Make
	table, err := azuretable.New(ctx, tableOptions)
	if err != nil {
		return nil, c.explain("open table "+c.TableName, err)
	}
	if !lazy {
		if err := blobs.Reach(ctx); err != nil {
			return nil, c.explain("open container "+c.ContainerName, err)
		}
	}
	description := fmt.Sprintf("%s, table %s and container %s", c.Store, c.TableName, c.ContainerName)
	if !ends.IsZero() {
		description += ", by a signature that ends at " + ends.Format(time.RFC3339)
	}
	return &Backend{Table: table, Blobs: blobs, Description: description}, nil
}

// explain names what was attempted and, where an argument is at fault, where it
// comes from.
func (c *Config) explain(attempt string, err error) error {
	if errors.Is(err, store.ErrInvalid) && c.ConnectionString != "" {
		return fmt.Errorf("%s with the connection string in %s: %w", attempt, ConnectionStringVariable, err)
	}
	return fmt.Errorf("%s: %w", attempt, err)
}
