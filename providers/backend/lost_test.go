package backend

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/tests/azurite"
)

func lost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrCorrupt) || store.Transient(err) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%s: %v", what, err)
	}
}

// A process that starts after the table was deleted must not take what is left
// for a fresh account: neither reads nor writes, which would make a new, empty
// table over the data.
func TestLostTableIsNotTakenForAFreshStore(t *testing.T) {
	server := azurite.Start(t)
	c := Config{Store: Azure, DataDir: t.TempDir(), ConnectionString: server.ConnectionString(), TableName: "lost", ContainerName: "lost"}
	probe(t, mustOpen(t, c))
	tables, err := aztables.NewServiceClientFromConnectionString(c.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.DeleteTable(t.Context(), c.TableName, nil); err != nil {
		t.Fatal(err)
	}
	b, err := OpenLazily(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Table.Get(t.Context(), "p", "k")
	lost(t, "get", err)
	_, err = b.Table.Range(t.Context(), "p", store.RangeQuery{Limit: 1})
	lost(t, "range", err)
	_, err = b.Table.Apply(t.Context(), "p", []store.Op{store.Insert("k", []byte("v"))})
	lost(t, "apply", err)
	_, err = Open(t.Context(), c)
	lost(t, "open", err)
	if _, err := tables.CreateTable(t.Context(), c.TableName, nil); err != nil {
		t.Errorf("the table was made: %v", err)
	}
}

// Likewise the container, which a soft delete could bring back only while there
// is no other of its name.
func TestLostContainerIsNotMadeAnew(t *testing.T) {
	server := azurite.Start(t)
	c := Config{Store: Azure, DataDir: t.TempDir(), ConnectionString: server.ConnectionString(), TableName: "lost", ContainerName: "lost"}
	probe(t, mustOpen(t, c))
	blobs, err := azblob.NewClientFromConnectionString(c.ConnectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.DeleteContainer(t.Context(), c.ContainerName, nil); err != nil {
		t.Fatal(err)
	}
	b, err := OpenLazily(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Blobs.Put(t.Context(), "b", []byte("v"), store.Create)
	lost(t, "put", err)
	_, err = Open(t.Context(), c)
	lost(t, "open", err)
	if _, err := blobs.CreateContainer(t.Context(), c.ContainerName, nil); err != nil {
		t.Errorf("the container was made: %v", err)
	}
}
