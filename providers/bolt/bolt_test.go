package bolt_test

import (
	"testing"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/core/store/storetest"
	"github.com/latticekv/lattice/providers/bolt"
)

// open opens a store that is verified and closed when the test ends.
func open(t testing.TB, dir string, o bolt.Options) *bolt.Store {
	t.Helper()
	s, err := bolt.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	s := open(t, t.TempDir(), bolt.Options{NoSync: true})
	suite := storetest.Config{LargeBlob: store.MaxBlobBytes}
	suite.RunTable(t, func(*testing.T) store.Table { return s.Table() })
	suite.RunBlobs(t, func(*testing.T) store.BlobStore { return s.Blobs() })
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
}

func TestConformanceWithSync(t *testing.T) {
	s := open(t, t.TempDir(), bolt.Options{})
	suite := storetest.Config{Rounds: 5, ModelSteps: 100, ListBlobs: 50}
	suite.RunTable(t, func(*testing.T) store.Table { return s.Table() })
	suite.RunBlobs(t, func(*testing.T) store.BlobStore { return s.Blobs() })
}
