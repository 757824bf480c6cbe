package memory_test

import (
	"fmt"
	"sync"
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

// TestWritersMeetInAPartitionThatComesAndGoes empties a partition over and
// over while others write to it: no write may go to one that has left.
func TestWritersMeetInAPartitionThatComesAndGoes(t *testing.T) {
	table := memory.New(memory.Options{}).Table()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			key := fmt.Sprintf("row%d", w)
			for range 5000 {
				etags, err := table.Apply(t.Context(), "p", []store.Op{store.Insert(key, nil)})
				if err == nil {
					_, err = table.Apply(t.Context(), "p", []store.Op{store.Delete(key, etags[0])})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
