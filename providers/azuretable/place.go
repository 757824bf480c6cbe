package azuretable

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azhttp"
)

// newPlace returns how the table is found missing, and made.
func newPlace(t *Table, client *aztables.ServiceClient) *azhttp.Place {
	return &azhttp.Place{
		What: "table", Name: t.name, Setting: "LATTICE_TABLE_NAME",
		Role:    "Storage Table Data Contributor",
		Command: "az storage table create --name " + t.name,
		Missing: func(e *azhttp.StatusError) bool {
			return e.Status == http.StatusNotFound && e.Code == string(aztables.TableNotFound)
		},
		BeingDeleted: string(aztables.TableBeingDeleted),
		Exists:       string(aztables.TableAlreadyExists),
		Create:       func(ctx context.Context) error { return t.create(ctx, client) },
	}
}

// create makes the table, in one exchange.
func (t *Table) create(ctx context.Context, client *aztables.ServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, t.wire.timeout)
	defer cancel()
	ctx, sent := azhttp.Watch(ctx)
	_, err := client.CreateTable(ctx, t.name, nil)
	if err == nil {
		return nil
	}
	if refused := azhttp.FromSDK(err); refused != nil {
		return azhttp.Fail(refused, false)
	}
	return azhttp.Lost(ctx, err, false, sent)
}

// open finds out whether the table is there, and creates it if not. A query tells
// the table's absence from a row's.
func (t *Table) open(ctx context.Context) error {
	q := store.RangeQuery{Limit: 1}
	const nowhere = "~open"
	return t.place.Open(ctx, func(ctx context.Context) error {
		_, _, err := t.ask(ctx, nowhere, q, rangeFilter(nowhere, q), position{})
		return err
	})
}
