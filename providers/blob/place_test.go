package blob

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

var (
	noContainer   = failure(404, "ContainerNotFound")
	containerMade = azfake.Answer{Status: http.StatusCreated}
)

func TestContainerIsFoundOrCreated(t *testing.T) {
	for _, tc := range []struct {
		name     string
		script   []azfake.Answer
		want     error
		requests int
	}{
		{"Found", []azfake.Answer{failure(404, "BlobNotFound")}, nil, 1},
		{"Created", []azfake.Answer{noContainer, containerMade}, nil, 2},
		{"CreatedByAnother", []azfake.Answer{noContainer, failure(409, "ContainerAlreadyExists")}, nil, 2},
		{"BeingDeleted", []azfake.Answer{noContainer, failure(409, "ContainerBeingDeleted")}, store.ErrUnavailable, 2},
		{"BusyAtFirst", []azfake.Answer{failure(503, "ServerBusy"), noContainer, failure(503, "ServerBusy"), containerMade}, nil, 4},
		{"MayNotCreate", []azfake.Answer{noContainer, failure(403, "AuthorizationFailure")}, store.ErrUnavailable, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := azfake.New(t, tc.script...)
				s, err := New(t.Context(), Options{ConnectionString: fakeString, Container: "box", Transport: service})
				if !errors.Is(err, tc.want) || (s == nil) != (tc.want != nil) || len(service.Seen()) != tc.requests {
					t.Fatalf("got %v, %v after %d requests", s, err, len(service.Seen()))
				}
			})
		})
	}
}

func TestLazyOpeningAsksNothing(t *testing.T) {
	if _, service := scripted(t); len(service.Seen()) != 0 {
		t.Fatalf("%d requests", len(service.Seen()))
	}
}

func TestMissingContainerReadsAsEmpty(t *testing.T) {
	s, service := scripted(t, noContainer)
	_, _, errGet := s.Get(t.Context(), "name")
	_, _, errRange := s.GetRange(t.Context(), "name", 3, 4)
	for _, err := range []error{errGet, errRange, s.Delete(t.Context(), "name")} {
		wantOnly(t, err, store.ErrNotFound)
		if !strings.Contains(err.Error(), "box") {
			t.Errorf("%v does not name the container", err)
		}
	}
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Blobs) != 0 || page.Next != "" {
		t.Errorf("got %+v, %v", page, err)
	}
	if n := len(service.Seen()); n != 4 {
		t.Errorf("%d requests", n)
	}
}

func TestFirstWriteCreatesTheContainer(t *testing.T) {
	s, service := scripted(t, noContainer, containerMade, created())
	if _, err := s.Put(t.Context(), "name", []byte("data"), store.Create); err != nil {
		t.Fatal(err)
	}
	seen := service.Seen()
	if len(seen) != 3 || !strings.Contains(seen[1].URL, "restype=container") || seen[0].Body != "data" || seen[2].Body != "data" {
		t.Fatalf("sent %+v", seen)
	}
	// In blocks, the first of them makes it.
	s, service = scripted(t, noContainer, containerMade, created())
	s.block = 10 * testSingle
	if _, err := s.Put(t.Context(), "name", numbered(2*testSingle), store.Create); err != nil {
		t.Fatal(err)
	}
	if n := len(service.Seen()); n != 4 {
		t.Fatalf("%d requests", n)
	}
}
