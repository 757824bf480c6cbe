package blob

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
	"github.com/latticekv/lattice/tests/azurite"
)

// onAzurite opens a fresh container and writes in small blocks.
func onAzurite(t testing.TB) *Store {
	t.Helper()
	e := azurite.Shared(t)
	s, err := New(t.Context(), Options{ConnectionString: e.ConnectionString(), Container: e.ContainerName(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpeningAContainerTwiceFindsTheSame(t *testing.T) {
	e := azurite.Shared(t)
	o := Options{ConnectionString: e.ConnectionString(), Container: e.ContainerName(t)}
	for i := range 2 {
		s, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Put(t.Context(), "name", nil, store.Create)
		if (i == 0) != (err == nil) {
			t.Fatalf("opening %d: create gave %v", i, err)
		}
	}
}

func TestBlobInBlocksKeepsTheConditions(t *testing.T) {
	s := onAzurite(t)
	s.single, s.block = testSingle, testBlock
	first, second := numbered(7*testBlock+3), bytes.Repeat([]byte{9}, 5*testBlock)
	etag, err := s.Put(t.Context(), "name", first, store.Create)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(t.Context(), "name", second, store.Create)
	wantOnly(t, err, store.ErrExists)
	_, err = s.Put(t.Context(), "other", second, store.IfMatch(etag))
	wantOnly(t, err, store.ErrPrecondition)
	got, gotTag, err := s.Get(t.Context(), "name")
	if err != nil || !bytes.Equal(got, first) || gotTag != etag {
		t.Fatalf("got %d bytes, %q, %v", len(got), gotTag, err)
	}
	newer, err := s.Put(t.Context(), "name", second, store.IfMatch(etag))
	if err != nil || newer == etag {
		t.Fatalf("got %q, %v", newer, err)
	}
	_, err = s.Put(t.Context(), "name", first, store.IfMatch(etag))
	wantOnly(t, err, store.ErrPrecondition)
}

// TestRacingWritersOfBlocksDoNotMix has several writers stage blocks of one name
// at once: the blob is at all times what one of them wrote.
func TestRacingWritersOfBlocksDoNotMix(t *testing.T) {
	s := onAzurite(t)
	s.single, s.block = testSingle, testBlock
	for range 5 {
		var wait sync.WaitGroup
		for writer := range 6 {
			wait.Go(func() {
				data := bytes.Repeat([]byte{byte('a' + writer)}, 6*testBlock)
				// Losing all its blocks again and again is a writer's bad luck.
				if _, err := s.Put(t.Context(), "name", data, store.Always); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("writer %d: %v", writer, err)
				}
			})
		}
		wait.Wait()
		data, _, err := s.Get(t.Context(), "name")
		if err != nil || len(data) != 6*testBlock || bytes.Count(data, data[:1]) != len(data) {
			t.Fatalf("%d bytes, of which %d are the first; %v", len(data), bytes.Count(data, data[:1]), err)
		}
	}
}

func TestSharedAccessSignatureIsEnough(t *testing.T) {
	e := azurite.Shared(t)
	key, err := service.NewSharedKeyCredential(azuriteserver.AccountName, azuriteserver.AccountKey)
	if err != nil {
		t.Fatal(err)
	}
	values := sas.AccountSignatureValues{
		Protocol:      sas.ProtocolHTTPSandHTTP,
		StartTime:     time.Now().Add(-time.Hour),
		ExpiryTime:    time.Now().Add(time.Hour),
		Permissions:   "rwdlac",
		ResourceTypes: "sco",
	}
	signed, err := values.SignWithSharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{ServiceURL: e.BlobURL(), SAS: signed.Encode(), Container: e.ContainerName(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "name", []byte("data"), store.Create); err != nil {
		t.Fatal(err)
	}
	if data, _, err := s.Get(t.Context(), "name"); err != nil || string(data) != "data" {
		t.Fatalf("got %q, %v", data, err)
	}
}

func TestWrongKeyIsRefusedAndNotTold(t *testing.T) {
	e := azurite.Shared(t)
	const wrong = "d3Jvbmctd3Jvbmctd3Jvbmc="
	_, err := New(t.Context(), Options{
		ConnectionString: "AccountName=devstoreaccount1;AccountKey=" + wrong + ";BlobEndpoint=" + e.BlobURL(),
		Container:        e.ContainerName(t),
	})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "403") {
		t.Fatalf("got %v, want a refusal", err)
	}
	if strings.Contains(err.Error(), wrong) {
		t.Fatalf("error %q tells the key", err)
	}
}

func BenchmarkPut(b *testing.B) {
	s := onAzurite(b)
	for _, size := range []int{4 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			data := make([]byte, size)
			for i := range b.N {
				if _, err := s.Put(b.Context(), fmt.Sprintf("put/%d/%d/%d", size, b.N, i), data, store.Always); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := onAzurite(b)
	for _, size := range []int{4 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			name := fmt.Sprintf("get/%d", size)
			if _, err := s.Put(b.Context(), name, make([]byte, size), store.Always); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				if _, _, err := s.Get(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
