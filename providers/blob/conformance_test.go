package blob_test

import (
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/tests/azurite"
)

// The container does not exist when the suite begins.
func TestBlobsOnAzuriteKeepTheContract(t *testing.T) {
	e := azurite.Shared(t)
	suite := storetest.Config{LargeBlob: store.MaxBlobBytes}
	suite.RunBlobs(t, func(t *testing.T) store.BlobStore { return lazy(t, e, e.ContainerName(t)) })
}

func lazy(t testing.TB, e *azurite.Emulator, name string) *blob.Store {
	t.Helper()
	s, err := blob.New(t.Context(), blob.Options{ConnectionString: e.ConnectionString(), Container: name, Lazy: true})
	if err != nil {
		t.Fatalf("open container: %v", err)
	}
	return s
}
