package blob

import (
	"context"
	"net/http"

	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// newPlace returns how the container is found missing, and made.
func newPlace(s *Store, name string) *azhttp.Place {
	return &azhttp.Place{
		What: "container", Name: name, Setting: "LATTICE_CONTAINER_NAME",
		Role:    "Storage Blob Data Contributor",
		Command: "az storage container create --name " + name,
		Missing: func(e *azhttp.StatusError) bool {
			return e.Status == http.StatusNotFound && e.Code == string(bloberror.ContainerNotFound)
		},
		BeingDeleted: string(bloberror.ContainerBeingDeleted),
		Exists:       string(bloberror.ContainerAlreadyExists),
		Create:       s.create,
	}
}

// create makes the container, in one exchange.
func (s *Store) create(ctx context.Context) error {
	return s.once(ctx, false, func(ctx context.Context, _ patience) error {
		_, err := s.container.Create(ctx, nil)
		return err
	})
}

// nowhere is the name of a blob that there never is.
const nowhere = "open"

// open finds out whether the container is there, and creates it if not.
func (s *Store) open(ctx context.Context) error {
	return s.place.Open(ctx, func(ctx context.Context) error {
		return s.once(ctx, false, func(ctx context.Context, _ patience) error {
			answer, err := s.container.NewBlobClient(nowhere).DownloadStream(ctx, &sdk.DownloadStreamOptions{Range: sdk.HTTPRange{Count: 1}})
			if err == nil {
				err = answer.Body.Close()
			}
			return err
		})
	})
}
