package memory_test

import (
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/memory"
)

func TestTableConformance(t *testing.T) {
	storetest.RunTable(t, func(*testing.T) store.Table { return memory.New(memory.Options{}).Table() })
}

func TestBlobConformance(t *testing.T) {
	suite := storetest.Config{LargeBlob: store.MaxBlobBytes}
	suite.RunBlobs(t, func(*testing.T) store.BlobStore { return memory.New(memory.Options{}).Blobs() })
}
