package blob_test

import (
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/tests/azurite"
)

func TestBlobsOnAzuriteKeepTheContract(t *testing.T) {
	e := azurite.Shared(t)
	suite := storetest.Config{LargeBlob: store.MaxBlobBytes}
	suite.RunBlobs(t, func(t *testing.T) store.BlobStore { return open(t, e) })
}

func open(t testing.TB, e *azurite.Emulator) *blob.Store {
	t.Helper()
	s, err := blob.New(t.Context(), blob.Options{
		ConnectionString: e.ConnectionString(),
		Container:        e.ContainerName(t),
	})
	if err != nil {
		t.Fatalf("open container: %v", err)
	}
	return s
}
