package blob_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/latticekv/lattice/core/store"
	azuriteserver "github.com/latticekv/lattice/providers/azurite"
	"github.com/latticekv/lattice/providers/blob"
	"github.com/latticekv/lattice/tests/azurite"
)

// TestFirstWritersOfAFreshAccountAllSucceed: several instances that know nothing
// of each other, with several writers each, find no container.
func TestFirstWritersOfAFreshAccountAllSucceed(t *testing.T) {
	e := azurite.Shared(t)
	name := e.ContainerName(t)
	const instances, writers = 4, 8
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range instances {
		s := lazy(t, e, name)
		for w := range writers {
			wg.Go(func() {
				<-start
				data := []byte{byte(i), byte(w)}
				if w == 0 {
					data = bytes.Repeat(data, 5<<20) // in blocks
				}
				if _, err := s.Put(t.Context(), fmt.Sprintf("b%d-%d", i, w), data, store.Create); err != nil {
					t.Errorf("instance %d, writer %d: %v", i, w, err)
				}
			})
		}
	}
	close(start)
	wg.Wait()
	if page, err := lazy(t, e, name).List(t.Context(), "", ""); err != nil || len(page.Blobs) != instances*writers {
		t.Fatalf("%d blobs: %v", len(page.Blobs), err)
	}
}

// TestCredentialThatMayNotCreateUsesWhatIsThere: a signature for blobs alone.
func TestCredentialThatMayNotCreateUsesWhatIsThere(t *testing.T) {
	e := azurite.Shared(t)
	name := e.ContainerName(t)
	key, err := service.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := sas.AccountSignatureValues{
		Protocol: sas.ProtocolHTTPSandHTTP, StartTime: time.Now().Add(-time.Hour), ExpiryTime: time.Now().Add(time.Hour),
		Permissions: "rwdlac", ResourceTypes: "o",
	}.SignWithSharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	limited := blob.Options{ServiceURL: e.BlobURL(), SAS: signed.Encode(), Container: name, Lazy: true}
	s, err := blob.New(t.Context(), limited)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "name"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("read before: %v", err)
	}
	_, err = s.Put(t.Context(), "name", nil, store.Create)
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("write: %v", err)
	}
	for _, want := range []string{"may not create it", "az storage container create --name " + name, "Storage Blob Data Contributor"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell %q", err, want)
		}
	}
	// Somebody creates it, and the same instance serves.
	if _, err := lazy(t, e, name).Put(t.Context(), "other", nil, store.Create); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "name", nil, store.Create); err != nil {
		t.Fatal(err)
	}
	limited.Lazy = false
	if _, err := blob.New(t.Context(), limited); err != nil {
		t.Errorf("opening what is there: %v", err)
	}
}
